"""The scripts of the composite actions, run as the runner runs them: what the gate is given and
kept from, and what outlives it.

`native` and `comment` make their real environment; the gate in it is one that writes down what it
was given. `test_entrypoint` has the steps that start containers, `e2e/test_action` the real gate and
a hostile training.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.composite import ROOT, Job

SYSTEM = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GITHUB_EVENT_NAME": "push"}
TOKEN = "a-token-that-nobody-may-see"
# Writes down its arguments and its environment.
GATE = """
import json, os, sys
os.makedirs("seen", exist_ok=True)
given = {"flags": [sys.flags.isolated, sys.path], "argv": sys.argv[1:], "environment": dict(os.environ)}
with open(f"seen/{sys.argv[1]}.json", "w") as file:
    json.dump(given, file)
sys.exit(int(os.environ.get("EXIT", "0")))
"""
# action and step, and the phase that it starts
ENVIRONMENTS = [("native", "gate", "action"), ("comment", "comment", "comment")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository that holds a gate of ours and needs no packages."""
    root = tmp_path_factory.mktemp("action")
    package = root / "repro_gate/github"
    for folder in (package, root / "native", root / "comment", root / "requirements"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "native/setup", root / "native")
    (root / "requirements/gate.lock").write_text("# nothing\n")
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "__main__.py").write_text(GATE)
    return root


def job_of(folder: Path, root: Path, action: str) -> Job:
    """A job that uses an action of the repository's copy."""
    job = Job(folder, dict(SYSTEM), root / action)
    # what an untrusted checkout may hold: it is the current folder of each step
    for name in ("venv", "pip", "sysconfig", "repro_gate"):
        (folder / f"workspace/{name}.py").write_text(
            "raise SystemExit('the checkout was imported')\n"
        )
    return job


each = pytest.mark.parametrize(
    ("action", "step", "phase"),
    [ENVIRONMENTS[0], pytest.param(*ENVIRONMENTS[1], marks=pytest.mark.slow)],
)


@each
def test_the_gate_runs_in_an_environment_of_its_own(
    action: str, step: str, phase: str, root: Path, tmp_path: Path
) -> None:
    job = job_of(tmp_path, root, action)
    hostile = '$(touch pwned) `touch pwned` "; touch pwned; #'
    inputs = {"python": sys.executable, "report": hostile, "token": TOKEN}
    ended = job.run(action, step, inputs, EXIT="3")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    found = json.loads((tmp_path / f"workspace/seen/{phase}.json").read_text())
    given, (isolated, path) = found["environment"], found["flags"]
    assert isolated and str(root) in path
    assert str(tmp_path / "workspace") not in path and "" not in path
    # an input is no code
    assert given["INPUT_REPORT"] == hostile and not (tmp_path / "workspace/pwned").exists()
    told = (given.get("INPUT_TOKEN"), given["INPUT_COMMENT"])
    assert told == ((None, "never") if action == "native" else (TOKEN, "on-change"))
    assert TOKEN not in json.dumps(found) or action == "comment"
    assert [item.name for item in (tmp_path / "temp").iterdir()] == [f"{step}.sh"]


@each
def test_an_interpreter_that_will_not_do_is_named(
    action: str, step: str, phase: str, root: Path, tmp_path: Path
) -> None:
    missing, old = "no such interpreter", "needs Python 3.10 or newer"
    for python, message in (("no-such-python", missing), ("false", old)):
        ended = job_of(tmp_path, root, action).run(action, step, {"python": python})
        assert ended.returncode == 2 and not (tmp_path / f"workspace/seen/{phase}.json").exists()
        assert "::error title=Repro Gate::python:" in ended.stdout and message in ended.stdout


def test_pip_is_not_given_the_token(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nenv >>"$SEEN"\nexit 1\n')
    program.chmod(0o755)
    inputs, seen = {"python": str(program), "token": TOKEN}, tmp_path / "seen"
    job = job_of(tmp_path, root, "comment")
    assert job.run("comment", "comment", inputs, SEEN=str(seen)).returncode == 2
    assert "INPUT_PYTHON" in seen.read_text() and TOKEN not in seen.read_text()
