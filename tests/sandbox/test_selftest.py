"""The self-test with a user of its own for the training: a file that this user wrote is changed
with that user's rights, and found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import processes_of
from tests.sandbox.test_gate_runs import RECORDED, ROOT, project
from tests.support.starting import SYSTEM, needs_own_user, python

pytestmark = [needs_own_user, pytest.mark.slow]


def test_faults_are_put_in_and_caught_with_a_user_of_its_own(tmp_path: Path) -> None:
    checkout, out, temporary = (
        project(tmp_path / "p", RECORDED),
        tmp_path / "selftest.json",
        tmp_path / "p" / "tmp",
    )
    home = tmp_path / "p" / "home"
    for folder in (home, temporary):
        folder.mkdir()
    path = f"{os.path.dirname(python())}:{SYSTEM}"
    only = ("--only", "generator", "--only", "checkpoint")
    done = subprocess.run(
        [sys.executable, "-m", "repro_gate", "selftest", str(checkout), "--json", str(out), *only],
        env={
            "PATH": path,
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "REPRO_GATE_SANDBOX": "own-user",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    generator, checkpoint = json.loads(out.read_text())["faults"]
    assert generator["outcome"] == "caught"
    assert checkpoint["found"]["name"] == "out/metrics.json: loss"
    assert list(temporary.iterdir()) == [] and processes_of(UID) == []
