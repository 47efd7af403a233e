"""Every check that does not pass says what it saw and what to do about it."""

from __future__ import annotations

import pytest

from repro_gate.checks.interface import Check, CheckResult, Evidence


def lines_of(found: CheckResult) -> tuple[str, ...]:
    """Return the evidence as a person reads it."""
    return tuple(map(str, found.evidence))


@pytest.fixture(autouse=True)
def what_does_not_pass_says_what_was_seen_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever test of this folder a check looks. What exactly it says is for that test."""
    look = Check.__call__

    def looked(self: Check, evidence: Evidence) -> CheckResult:
        found = look(self, evidence)
        assert found.message.strip()
        if found.status in ("warn", "fail"):
            assert lines_of(found) and all(line.strip() for line in lines_of(found)), found
            assert found.remedy.strip(), found
        return found

    monkeypatch.setattr(Check, "__call__", looked)
