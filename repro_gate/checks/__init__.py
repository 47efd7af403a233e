"""The checklist: one file for each category, one interface. `run_checks` executes all of them and
applies waivers, `run_static` those that need no training; `uncovered` says which categories nothing
was shown for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from repro_gate.checks import code, data, env, hardware, random_state
from repro_gate.checks.interface import CATEGORIES, CHECKOUT, Check, CheckResult, Evidence
from repro_gate.errors import GateError
from repro_gate.spec.model import Waiver

# In the order in which each file defines them.
ALL = tuple(
    item
    for module in (code, data, env, random_state, hardware)
    for item in vars(module).values()
    if isinstance(item, Check)
)


def run_checks(evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    """Every check's result, in the order of the categories; a result that a valid waiver names is
    `waived`."""
    return _results(ALL, evidence, today)


def run_static(evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    """The same of the checks that look at the checkout alone."""
    return _results([check for check in ALL if check.needs == CHECKOUT], evidence, today)


def uncovered(results: Sequence[CheckResult]) -> tuple[str, ...]:
    """Categories without a check that passed; a waiver shows nothing. Failures are reported by
    themselves."""
    return tuple(
        category
        for category in CATEGORIES
        if not any(item.category == category and item.status == "pass" for item in results)
    )


def _results(checks: Sequence[Check], evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    return tuple(
        _waived(_looked(check, evidence), evidence.spec.checklist.waive, today) for check in checks
    )


def _looked(check: Check, evidence: Evidence) -> CheckResult:
    """The check's result. One that could not look has shown nothing, so it fails and says why: the
    others still have their say."""
    try:
        return check(evidence)
    except (GateError, OSError) as error:
        said, remedy = (
            (error.message, error.remedy) if isinstance(error, GateError) else (str(error), "")
        )
        return CheckResult(
            id=check.id,
            category=check.category,
            status="fail",
            message=f"it could not look: {said}",
            remedy=remedy,
        )


def _waived(result: CheckResult, waivers: Sequence[Waiver], today: date) -> CheckResult:
    waiver = next((item for item in waivers if item.check == result.id), None)
    if waiver is None:
        return result
    ended = waiver.until is not None and today > waiver.until
    if result.status not in ("warn", "fail"):
        return (
            replace(
                result, message=f"{result.message} (its waiver ended on {waiver.until} and can go)"
            )
            if ended
            else result
        )
    if ended:
        return replace(
            result,
            status="fail",
            message=f"{result.message} (its waiver ended on {waiver.until}: {waiver.reason})",
        )
    until = f" until {waiver.until}" if waiver.until else ""
    return replace(
        result, status="waived", message=f"{result.message}: waived{until}, {waiver.reason}"
    )
