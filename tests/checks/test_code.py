"""Category `code`: is what ran known, and would it run from a clean checkout?"""

from __future__ import annotations

import pytest

from repro_gate.checks.code import commit_known, pristine_workspace, tree_clean
from tests.analysis.builders import evidence, run, spec, training

PROFILES = pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])


@PROFILES
def test_code_in_no_commit_is_missing(profile: str, status: str) -> None:
    assert commit_known(evidence(spec=spec(profile=profile), commit=None)).status == status
    assert commit_known(evidence(spec=spec(profile=profile))).status == "pass"


@PROFILES
def test_uncommitted_paths_are_missing_and_named(profile: str, status: str) -> None:
    found = tree_clean(evidence(spec=spec(profile=profile), uncommitted=("train.py",)))
    assert (found.status, found.evidence) == (status, ("train.py",))
    assert tree_clean(evidence(spec=spec(profile=profile))).status == "pass"
    assert tree_clean(evidence(commit=None, uncommitted=("train.py",))).status == "skip"


def test_a_workspace_is_shown_to_be_enough_by_runs_that_end() -> None:
    good, bad = run("deterministic-1", training()), run("default-1", outcome="crashed", problem="it exited with status 1")
    assert pristine_workspace(evidence(runs=(good,))).status == "pass"
    assert pristine_workspace(evidence()).status == "skip"
    found = pristine_workspace(evidence(runs=(good, bad)))
    assert (found.status, found.evidence) == ("skip", ("it exited with status 1",))
