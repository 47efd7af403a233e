"""The checklist: one file for each category, one interface. `run_checks` executes all of them, or
those of `STATIC` that need no training, and applies waivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from repro_gate.checks import code, data, env, hardware, random_state
from repro_gate.checks.interface import CHECKOUT, Check, CheckResult, Evidence, failed
from repro_gate.errors import GateError
from repro_gate.spec.model import Waiver

# In the order in which each file defines them.
ALL = tuple(
    item
    for module in (code, data, env, random_state, hardware)
    for item in vars(module).values()
    if isinstance(item, Check)
)
STATIC = tuple(item for item in ALL if item.subject.name == CHECKOUT.name)


def run_checks(
    evidence: Evidence, today: date, checks: Sequence[Check] = ALL
) -> tuple[CheckResult, ...]:
    """Return the result of each check; one that a valid waiver names is `waived`. One that could
    not look has shown nothing, so it fails and says why: the others still have their say."""
    results = []
    for check in checks:
        try:
            result = check(evidence)
        except (GateError, OSError) as error:
            finding = failed(
                f"it could not look: {error}", (), getattr(error, "remedy", "")
            )
            result = replace(check.result(finding, evidence.spec), status="fail")
        waivers = (
            item for item in evidence.spec.checklist.waive if item.check == check.id
        )
        waiver = next(waivers, None)
        results.append(result if waiver is None else _waived(result, waiver, today))
    return tuple(results)


def _waived(result: CheckResult, waiver: Waiver, today: date) -> CheckResult:
    """Return the result under a waiver, which may have ended."""
    is_bad = result.status in ("warn", "fail")
    has_ended = waiver.until is not None and today > waiver.until
    if not is_bad and not has_ended:
        return result
    until = f" until {waiver.until}" if waiver.until else ""
    note = f"{result.message}: waived{until}, {waiver.reason}"
    if has_ended:
        note += ", a waiver that has ended"
        return replace(result, status="fail" if is_bad else result.status, message=note)
    return replace(result, status="waived", message=note)
