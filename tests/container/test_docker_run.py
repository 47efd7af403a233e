"""docker-run/action.yml's own steps in the real image: training without a network, then publishing
without the training.

`docker` is the machine's engine with a script in front of it: that gives the container that
publishes this machine's loopback, where the tests' GitHub listens, and takes away what podman
without control groups does not know.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.container.attacks import TOKEN
from tests.container.engine import Engine
from tests.container.image import Image
from tests.container.runner import PULL, REPOSITORY, RUN_ID, RUNNER
from tests.support.composite import ROOT, Job
from tests.support.github.server import BOT, GitHub
from tests.support.github.stage import pull_request
from tests.support.repositories import git

TRAINING = """\
import os, random, socket
from repro_gate import record, step
from urllib.parse import urlsplit
assert os.getuid() == 64180, os.getuid()
assert not os.path.exists("/var/run/docker.sock")
for address in (("127.0.0.1", PORT), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, timeout=2)
    except OSError:
        pass
    else:
        raise SystemExit(f"the training reached {address}")
for number in range(3):
    record("loss", random.random())
    step()
"""
SPEC = "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\n"


@dataclass
class Stage:
    """One job on a machine with Docker, and the GitHub that it talks to."""

    job: Job
    github: GitHub
    image: str

    def step(self, name: str) -> tuple[int, str]:
        """Exit code and log of one of the action's steps."""
        inputs = {"token": TOKEN, "comment": "always", "gpus": "none", "shm_size": "128m"}
        done = self.job.run("docker-run", name, {**inputs, "image": self.image})
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stage(engine: Engine, image: Image, tmp_path: Path) -> Iterator[Stage]:
    """A pull request of a repository whose training looks for a way out."""
    tmp_path.chmod(0o755)
    with GitHub(REPOSITORY) as github:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/docker"
        program.write_text(_in_front_of(engine))
        program.chmod(0o755)
        variables = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "CI": "true",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_REF": f"refs/pull/{PULL}/merge",
            "GITHUB_RUN_ID": str(RUN_ID),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_API_URL": github.url,
            "GITHUB_GRAPHQL_URL": github.graphql_url,
            "RUNNER_ENVIRONMENT": "self-hosted",
        }
        job = Job(tmp_path / "job", variables, ROOT / "docker-run")
        head = _checkout(job.folder / "workspace", github.port)
        variables["GITHUB_SHA"] = head
        event = pull_request(REPOSITORY, fork=False, sha=head)
        (job.folder / "event.json").write_bytes(event)
        github.token(BOT, value=TOKEN)
        github.add_pull(PULL, head)
        yield Stage(job, github, image.name)
        assert github.faults == []


def _checkout(workspace: Path, port: int) -> str:
    """The commit that is checked out; the files are the runner's user's."""
    (workspace / "train.py").write_text(TRAINING.replace("PORT", str(port)))
    (workspace / "repro.yml").write_text(SPEC)
    git(workspace, "init", "-q")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "what is tested")
    head = git(workspace, "rev-parse", "HEAD")
    if os.geteuid() == 0:
        for path in [workspace, *workspace.rglob("*")]:
            os.chown(path, RUNNER, RUNNER)
    return head


def _in_front_of(engine: Engine) -> str:
    """The script that the action's steps find as `docker`."""
    run = [item for item in engine.run if item not in ("--cap-add", "AUDIT_WRITE,MKNOD,NET_RAW")]
    return f"""#!/usr/bin/env bash
set -euo pipefail
if [ "$1" = version ]; then echo 1; exit; fi
if [ "$1" != run ]; then exec {shlex.join(engine.client)} "$@"; fi
shift
kept=() network=(--network host)
while [ $# -gt 0 ]; do
  case "$1" in
    --network) network=("$1" "$2"); shift ;;
    --pids-limit) {"shift" if engine.name == "podman" else 'kept+=("$1" "$2"); shift'} ;;
    *) kept+=("$1") ;;
  esac
  shift
done
exec {shlex.join(run)} "${{network[@]}}" "${{kept[@]}}"
"""


def test_the_training_has_no_network_and_the_finding_is_posted_all_the_same(stage: Stage) -> None:
    code, log = stage.step("image")
    assert code == 0, log
    code, log = stage.step("gate")
    assert code == 0, log
    assert stage.github.requests == []
    workspace = stage.job.folder / "workspace"
    report = json.loads((workspace / "repro-gate-report/report.json").read_text())
    assert (report["verdict"], report["subject"]["sandbox"]) == ("pass", "own-user"), log
    code, log = stage.step("publish")
    assert code == 0, log
    (comment,) = stage.github.comments(PULL)
    assert "pass" in comment["body"]
    assert stage.job.outputs["publish"]["verdict"] == "pass"
    assert stage.job.outputs["publish"]["comment_url"] == comment["html_url"]
    assert "pass" in stage.job.command_file("publish", "STEP_SUMMARY")
    assert {path.lstat().st_uid for path in workspace.rglob("*")} == {workspace.stat().st_uid}
