"""The checklist: one file for each category, one interface. `run_checks` executes all checks, or
only the `STATIC` ones, which need no training, and applies waivers."""

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
    """Return the result of each check; one with a valid waiver is `waived`. A check that raises an
    error proves nothing, so it fails with that error, and the others still run."""
    waivers = {item.check: item for item in reversed(evidence.spec.checklist.waive)}
    return tuple(
        _result(check, evidence, waivers.get(check.id), today) for check in checks
    )


def _result(
    check: Check, evidence: Evidence, waiver: Waiver | None, today: date
) -> CheckResult:
    """Return the result of a check under its waiver, which may have expired."""
    try:
        result = check(evidence)
    except (GateError, OSError) as error:
        remedy = getattr(error, "remedy", "")
        finding = failed(f"the check could not run: {error}", (), remedy)
        result = replace(check.result(finding, evidence.spec), status="fail")
    is_bad = result.status in ("warn", "fail")
    has_ended = waiver and waiver.until and today > waiver.until
    if waiver is None or not (is_bad or has_ended):
        return result
    until = f" until {waiver.until}" if waiver.until else ""
    ended = ", but this waiver has expired" if has_ended else ""
    status = "waived" if not has_ended else "fail" if is_bad else result.status
    message = f"{result.message}: waived{until}, {waiver.reason}{ended}"
    return replace(result, status=status, message=message)
