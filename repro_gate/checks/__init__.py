"""The checklist: one file for each category, one interface. `run_checks` executes all of them and
applies waivers, `run_static` those that need no training; `uncovered` says which categories nothing
was shown for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from repro_gate.checks import code, data, env, hardware, random_state
from repro_gate.checks.interface import CATEGORIES, CHECKOUT, Check, CheckResult, Evidence, failed
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
    """Return every check's result, in the order of the categories; one that a valid waiver names is
    `waived`."""
    return _results(ALL, evidence, today)


def run_static(evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    """Return the results of the checks that look at the checkout alone."""
    return _results([check for check in ALL if check.needs == CHECKOUT], evidence, today)


def uncovered(results: Sequence[CheckResult]) -> tuple[str, ...]:
    """Return the categories without a check that passed; a waiver shows nothing. Failures are
    reported by themselves."""
    covered = {item.category for item in results if item.status == "pass"}
    return tuple(category for category in CATEGORIES if category not in covered)


def _results(checks: Sequence[Check], evidence: Evidence, today: date) -> tuple[CheckResult, ...]:
    """Return the checks' results. One that could not look has shown nothing, so it fails and says
    why: the others still have their say."""
    results = []
    for check in checks:
        try:
            result = check(evidence)
        except (GateError, OSError) as error:
            remedy = error.remedy if isinstance(error, GateError) else ""
            finding = failed(f"it could not look: {error}", (), remedy)
            # whatever `checklist.severity` says of what it would have found
            result = replace(check.result(finding, evidence.spec), status="fail")
        results.append(_waived(result, evidence.spec.checklist.waive, today))
    return tuple(results)


def _waived(result: CheckResult, waivers: Sequence[Waiver], today: date) -> CheckResult:
    waiver = next((item for item in waivers if item.check == result.id), None)
    if waiver is None:
        return result
    bad = result.status in ("warn", "fail")
    if waiver.until is not None and today > waiver.until:
        status = "fail" if bad else result.status
        reason = f": {waiver.reason}" if bad else " and can go"
        note = f" (its waiver ended on {waiver.until}{reason})"
    elif bad:
        status = "waived"
        until = f" until {waiver.until}" if waiver.until else ""
        note = f": waived{until}, {waiver.reason}"
    else:
        return result
    return replace(result, status=status, message=result.message + note)
