"""The scripts of the composite actions, run as the runner runs them: what the gate is given and
kept from, and what outlives it.

`native` and `comment` make their real environment; the gate in it is one that writes down what it
was given. `docker` is a program that does the same. `e2e/test_action` has the real gate and a
hostile training.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.composite import ROOT, Job, load

SYSTEM = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GITHUB_EVENT_NAME": "push"}
TOKEN = "a-token-that-nobody-may-see"
# What the code knows of to keep it from the training, or looks for where there is no container:
# none of it is for the gate's container.
NEVER = {"GITHUB_TOKEN", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "RUNNER_TEMP"}
# Writes down its arguments and its environment.
GATE = """
import json, os, sys
os.makedirs("seen", exist_ok=True)
given = {"flags": [sys.flags.isolated, sys.path], "argv": sys.argv[1:], "environment": dict(os.environ)}
with open(f"seen/{sys.argv[1]}.json", "w") as file:
    json.dump(given, file)
sys.exit(int(os.environ.get("EXIT", "0")))
"""
DOCKER = """#!{python}
import json, os, sys
with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1:2] == ["build"]:
    with open(sys.argv[sys.argv.index("--iidfile") + 1], "w") as file:
        file.write("sha256:" + "1" * 64)
sys.exit(int(os.environ.get("EXIT", "0")) if sys.argv[1] == "run" else 0)
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


@pytest.fixture
def docker(tmp_path: Path) -> Job:
    """A job on whose PATH `docker` writes down what it is asked."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker"
    program.write_text(DOCKER.format(python=sys.executable, log=str(tmp_path / "docker.log")))
    program.chmod(0o755)
    github = {"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": "push"}
    github |= {"GITHUB_TOKEN": TOKEN, "ACTIONS_RUNTIME_TOKEN": TOKEN}
    return Job(tmp_path, {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **github}, tmp_path)


def asked(job: Job, step: str, **inputs: str) -> list[str]:
    """The arguments of the one `docker run` of a step."""
    job.outputs.setdefault("image", {"image": "gate@sha256:1", "by_digest": "gate@sha256:1"})
    job.run("docker-run", step, {"token": TOKEN, **inputs})
    calls = [json.loads(line) for line in (job.folder / "docker.log").read_text().splitlines()]
    (found,) = [call for call in calls if call[0] == "run"]
    return list(found)


def values(argv: list[str], option: str) -> list[str]:
    return [after for before, after in itertools.pairwise(argv) if before == option]


def test_the_gates_container_has_no_token_network_or_socket(docker: Job) -> None:
    argv = asked(docker, "gate")
    assert argv[-2:] == ["gate@sha256:1", "gate"]
    assert (values(argv, "--network"), values(argv, "--cap-drop")) == (["none"], ["ALL"])
    capabilities = "CHOWN DAC_OVERRIDE FOWNER KILL SETGID SETPCAP SETUID"
    assert " ".join(sorted(values(argv, "--cap-add"))) == capabilities
    assert "--privileged" not in argv and values(argv, "--security-opt") == ["no-new-privileges"]
    mounts = {mount.split("target=")[1] for mount in values(argv, "--mount")}
    assert mounts == {"/github/workspace", "/github/workflow/event.json,readonly"}
    handed = {text.partition("=")[0] for text in values(argv, "--env")}
    assert handed.isdisjoint({"ACTIONS_RUNTIME_TOKEN", "GITHUB_OUTPUT", *NEVER})
    inputs = {f"INPUT_{name.upper()}" for name in load("container")["inputs"]}
    assert inputs - handed == {"INPUT_TOKEN"} and TOKEN not in " ".join(argv)


def test_whoever_publishes_is_told_what_the_code_asks(docker: Job) -> None:
    argv = asked(docker, "publish")
    code = "".join(path.read_text() for path in (ROOT / "repro_gate").rglob("*.py"))
    wanted = set(re.findall(r'"((?:GITHUB|RUNNER)_[A-Z_]+)"', code)) - NEVER
    # all that the code asks of the runner
    assert wanted and wanted <= {text.partition("=")[0] for text in values(argv, "--env")}
    assert "--read-only" in argv and "--gpus" not in argv and "--network" not in argv
    assert values(argv, "--cap-add") == ["DAC_OVERRIDE"] and values(argv, "--cap-drop") == ["ALL"]
    assert docker.run("docker-run", "publish", {}, EXIT="1").returncode == 1
    writable = [mount for mount in values(argv, "--mount") if not mount.endswith(",readonly")]
    places = [mount.split("target=/github/file_commands/")[1] for mount in writable]
    assert places == ["output", "summary"]
    assert "INPUT_TOKEN" in values(argv, "--env") and TOKEN not in " ".join(argv)


@pytest.mark.parametrize(
    ("gpus", "option"),
    [("all", ["all"]), ("device=0,1", ['"device=0,1"']), ("none", []), ("", [])],
)
def test_gpus_and_shared_memory_are_as_asked_for(docker: Job, gpus: str, option: list[str]) -> None:
    argv = asked(docker, "gate", gpus=gpus, shm_size="8g")
    assert values(argv, "--gpus") == option and values(argv, "--shm-size") == ["8g"]
    assert ("NVIDIA_VISIBLE_DEVICES=void" in values(argv, "--env")) is not bool(option)


def test_an_image_is_built_or_named_and_what_is_none_is_refused(docker: Job) -> None:
    named = "ghcr.io/o/i@sha256:" + "2" * 64
    for image, outputs in {
        "": {"image": "sha256:" + "1" * 64},  # a branch builds its image
        named: {"image": named, "by_digest": named},
        **{name: {} for name in ("--privileged", "a b", "x;y", "\n")},
    }.items():
        ended = docker.run("docker-run", "image", {"image": image})
        assert docker.outputs["image"] == outputs
        assert ended.returncode == (0 if outputs else 2)
        assert ("image: no image is called that" in ended.stdout) is not bool(outputs)
