"""What a dependence is worth: a finding of the check, and whether the result is robust. No run is
started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks import random_state
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.gate.robustness import is_robust, not_robust
from repro_gate.runs.results import Varied
from tests.checks.conftest import statuses
from tests.checks.test_random_state import APART
from tests.support import reports
from tests.support.built_traces import results, run

HOME = replace(reports.SHELL, factor="home", cause="process-identity")
DIFFERS = {42: Varied(run("deterministic-2"), None, same=False)}
SAME = {42: Varied(run("deterministic-2"), None, same=True)}


@pytest.mark.parametrize(
    ("dependence", "asked", "basic", "strict"),
    [
        (reports.SHELL, None, "warn", "fail"),
        (reports.SHELL, "warn", "warn", "warn"),
        (reports.SHELL, "fail", "fail", "fail"),
        # what differs between users is none of this key
        (HOME, "fail", "warn", "fail"),
        (HOME, "warn", "warn", "fail"),
    ],
)
def test_the_spec_decides_what_a_dependence_on_the_shell_is_worth(
    dependence: Diagnosis, asked: str | None, basic: str, strict: str
) -> None:
    facts = replace(APART, not_robust=not_robust(dependence, asked))
    assert statuses(random_state.robust, facts) == (basic, strict)


def test_a_result_is_robust_unless_another_shell_of_the_user_changes_it() -> None:
    assert is_robust(results(), None) is None
    assert is_robust(results(varied=SAME), None) is True
    assert is_robust(results(varied=DIFFERS), None) is None
    assert is_robust(results(varied=DIFFERS), HOME) is True
    assert is_robust(results(varied=DIFFERS), reports.SHELL) is False
