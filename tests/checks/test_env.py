"""Category `env`: can the software be set up again?"""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.checks.env import lockfile, versions_equal
from repro_gate.spec.model import Env
from tests.analysis.builders import FACTS, evidence, run, spec, training


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_no_lockfile_is_missing(profile: str, status: str) -> None:
    assert lockfile(evidence(spec=spec(profile=profile))).status == status


def test_a_declared_lockfile_must_be_there_and_hold_something(tmp_path: Path) -> None:
    declared = evidence(spec=spec(tmp_path, env=Env("requirements.lock")))
    assert lockfile(declared).status == "fail"
    (tmp_path / "requirements.lock").write_text("")
    assert lockfile(declared).status == "fail"
    (tmp_path / "requirements.lock").write_text("torch==2.13.0\n")
    assert lockfile(declared).status == "pass"
    assert lockfile(evidence(spec=spec(tmp_path, env=Env(".")))).status == "fail"


@pytest.mark.parametrize("fact", ["python", "torch", "cuda"])
def test_versions_must_be_the_same_in_every_process(fact: str) -> None:
    other = training(key="rank1", facts={**FACTS, fact: "0"})
    assert versions_equal(evidence(runs=(run("deterministic-1", training(), other),))).status == "fail"
    assert versions_equal(evidence(runs=(run("deterministic-1", training()), run("default-1", other)))).status == "fail"
    assert versions_equal(evidence(runs=(run("deterministic-1", training(), training(key="rank1")),))).status == "pass"
    assert versions_equal(evidence()).status == "skip"
