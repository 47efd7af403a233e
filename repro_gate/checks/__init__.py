"""The checklist: one file for each category, one interface. `run_checks` executes all of them and applies waivers; `uncovered` says which
categories nothing was shown for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from repro_gate.checks import code, data, env, hardware, random_state
from repro_gate.checks.interface import CATEGORIES, Check, CheckResult, Evidence
from repro_gate.spec.model import Waiver

ALL: tuple[Check, ...] = (*code.CHECKS, *data.CHECKS, *env.CHECKS, *random_state.CHECKS, *hardware.CHECKS)


def run_checks(evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    """Every check's result, in the order of the categories; a result that a valid waiver names is `waived`."""
    return tuple(_waived(check(evidence), evidence.spec.checklist.waive, today) for check in ALL)


def uncovered(results: Sequence[CheckResult]) -> tuple[str, ...]:
    """Categories without a check that passed or that a person waived. Failures are reported by themselves."""
    return tuple(
        category for category in CATEGORIES if not any(item.category == category and item.status in ("pass", "waived") for item in results)
    )


def _waived(result: CheckResult, waivers: Sequence[Waiver], today: date) -> CheckResult:
    waiver = next((item for item in waivers if item.check == result.id), None)
    if waiver is None or result.status not in ("warn", "fail"):
        return result
    if waiver.until is not None and today > waiver.until:
        return replace(result, status="fail", message=f"{result.message} (its waiver ended on {waiver.until})")
    until = f" until {waiver.until}" if waiver.until else ""
    return replace(result, status="waived", message=f"{result.message}: waived{until}, {waiver.reason}")
