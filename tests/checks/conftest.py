"""Every check that does not pass says what it saw and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks.interface import Check, CheckResult, Evidence


def lines_of(result: CheckResult) -> tuple[str, ...]:
    """Return the evidence as a person reads it."""
    return tuple(map(str, result.evidence))


def outcome(check: Check, evidence: Evidence) -> tuple[str, tuple[str, ...]]:
    """Return a check's status in the basic profile, and its evidence."""
    result = check(evidence)
    return result.status, lines_of(result)


def statuses(check: Check, evidence: Evidence) -> tuple[str, str]:
    """Return a check's status in the basic and in the strict profile."""
    checklist = evidence.spec.checklist
    specs = [
        replace(evidence.spec, checklist=replace(checklist, profile=profile))
        for profile in ("basic", "strict")
    ]
    basic, strict = (check(replace(evidence, spec=spec)).status for spec in specs)
    return basic, strict


@pytest.fixture(autouse=True)
def what_does_not_pass_says_what_was_seen_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever test of this folder a check looks. What exactly it says is for that test."""
    look = Check.__call__

    def looked(self: Check, evidence: Evidence) -> CheckResult:
        result = look(self, evidence)
        assert result.message.strip()
        if result.status in ("warn", "fail"):
            assert lines_of(result) and all(line.strip() for line in lines_of(result)), result
            assert result.remedy.strip(), result
        return result

    monkeypatch.setattr(Check, "__call__", looked)
