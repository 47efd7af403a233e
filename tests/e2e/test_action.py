"""The action's two halves as its composite steps start them, with real processes, against a GitHub
of our own: a pull request, a fork, and what a training can see of the job around it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.gates import LOOP, ROOT, environment, training, with_line
from tests.support.github.server import GitHub
from tests.support.github.stage import obeyed
from tests.support.repositories import git

BROKEN = with_line("x = random.SystemRandom().random()")
Done = subprocess.CompletedProcess[str]


@dataclass
class Runner:
    """A self-hosted runner with one job: its folders, its variables, its GitHub."""

    github: GitHub
    home: Path
    workspace: Path
    token: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def event(self, name: str, payload: Mapping[str, object]) -> None:
        """What the job runs for."""
        (self.home / "event.json").write_text(json.dumps(payload))
        self.variables |= {"GITHUB_EVENT_NAME": name}

    def step(self, phase: str, token: str | None = None, **inputs: str) -> Done:
        """One step; its outputs and summary begin anew."""
        for name in ("output", "summary"):
            (self.home / name).write_text("")
        inputs |= {"token": token} if token is not None else {}
        given = {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        return self.run("repro_gate.github", phase, **given)

    def run(self, module: str, *arguments: str, **more: str) -> Done:
        """A Python module in the workspace."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=self.workspace,
            env=environment(PYTHONPATH=str(ROOT), **self.variables, **more),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    @property
    def outputs(self) -> str:
        return (self.home / "output").read_text()

    @property
    def summary(self) -> str:
        return (self.home / "summary").read_text()

    @property
    def head(self) -> str:
        return git(self.workspace, "rev-parse", "HEAD")

    @property
    def report(self) -> Path:
        return self.workspace / "repro-gate-report"

    def pull_request(self, fork: bool = False) -> None:
        """A pull request whose head is checked out."""
        head = "stranger/trainer" if fork else self.github.repository
        self.github.add_pull(7, self.head, head_repository=head if fork else "")
        side = {"sha": self.head, "ref": "topic", "repo": {"full_name": head}}
        base = {"ref": "main", "repo": {"full_name": self.github.repository}}
        pull = {"number": 7, "state": "open", "draft": False, "head": side, "base": base}
        self.event("pull_request", {"action": "synchronize", "number": 7, "pull_request": pull})


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A runner with an empty checkout of a clean training."""
    home, workspace = tmp_path / "runner", tmp_path / "workspace"
    home.mkdir()
    with GitHub() as github:
        found = Runner(github, home, workspace, github.token())
        check_out(found, LOOP)
        found.variables = {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": github.repository,
            "GITHUB_SHA": found.head,
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_RUN_ID": "4711",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_API_URL": github.url,
            "GITHUB_GRAPHQL_URL": github.graphql_url,
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_EVENT_PATH": str(home / "event.json"),
            "GITHUB_OUTPUT": str(home / "output"),
            "GITHUB_STEP_SUMMARY": str(home / "summary"),
            "RUNNER_ENVIRONMENT": "self-hosted",
        }
        yield found
        assert github.faults == []


def check_out(runner: Runner, source: str) -> None:
    """A checkout at one commit, with this training."""
    training(runner.workspace, source)
    if not (runner.workspace / ".git").exists():
        git(runner.workspace, "init", "-q")
    git(runner.workspace, "add", "-A")
    git(runner.workspace, "commit", "-qm", "change", "--allow-empty")
    if runner.variables:
        runner.variables["GITHUB_SHA"] = runner.head


def test_a_pull_request_is_gated_and_told_and_a_training_that_diverges_turns_it_red(
    runner: Runner,
) -> None:
    runner.pull_request()
    gated = runner.step("gate")
    assert gated.returncode == 0, gated.stderr
    # the half that runs untrusted code writes to nothing of the runner's
    assert runner.outputs == ""
    told = runner.step("publish", runner.token, comment="always")  # a pass is silent by default
    assert told.returncode == 0, told.stdout
    assert (runner.report / "report.html").read_text().startswith("<!doctype html>")
    assert "verdict<<" in runner.outputs and "pass" in runner.outputs
    (comment,) = runner.github.comments(7)
    assert runner.head[:7] in comment["body"]
    # the report is there, and git does not see it
    assert git(runner.workspace, "status", "--porcelain") == ""

    check_out(runner, BROKEN)
    runner.github.change_pull(7, head_sha=runner.head)
    runner.pull_request()
    runner.variables["GITHUB_RUN_ID"] = "4712"
    told = runner.step("action", runner.token)
    assert told.returncode == 1, told.stdout + told.stderr
    (again,) = runner.github.comments(7)
    assert again["id"] == comment["id"]
    assert "fail" in again["body"] and runner.head[:7] in again["body"]
    assert "::error " in told.stdout
    assert "loss" in runner.summary


def test_a_training_sees_no_token_and_forges_no_command(runner: Runner) -> None:
    spy = """
import os
seen = [*os.environ.items()]
for pid in (os.getppid(), 1):
    try:
        seen.append((pid, open(f"/proc/{pid}/environ", "rb").read()))
    except OSError:
        pass
print("secrets seen:", repr(seen).count("S3cr3tS3cr3t"))
print("::error::forged by training")
print("##[add-path]/forged")
print("::stop-commands::forged")
assert "GITHUB_OUTPUT" not in os.environ and "GITHUB_ENV" not in os.environ
"""
    check_out(runner, spy + LOOP + "\nraise SystemExit('end ::error::forged at the end')\n")
    spec = "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\n"
    (runner.workspace / "repro.yml").write_text(spec)
    git(runner.workspace, "commit", "-qam", "spec")
    runner.pull_request()
    secret = "ghs_" + "S3cr3t" * 6
    runner.variables |= {"MY_API_KEY": secret[4:]}
    told = runner.step("action", secret, comment="never")
    assert told.returncode == 3, told.stdout + told.stderr  # it ends by an exception
    assert "secrets seen: 0" in told.stderr
    assert secret not in told.stdout + told.stderr + runner.summary
    assert not [path for path in runner.report.iterdir() if secret in path.read_text()]
    own = ("::group::run", "::endgroup::", "::error ", "::warning ", "::notice ")
    for line in [*obeyed(told.stdout), *obeyed(told.stderr)]:
        assert line.startswith(own), line


def test_a_fork_is_refused_on_a_self_hosted_runner_and_nothing_of_it_runs(
    runner: Runner, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    check_out(runner, f"open('{ran}', 'w')\n" + LOOP)
    runner.pull_request(fork=True)
    told = runner.step("action", runner.token)
    assert told.returncode == 2
    assert "stranger/trainer" in told.stdout and "allow_forks" in told.stdout
    assert "allow_forks" in runner.summary
    assert not ran.exists()
    assert runner.github.comments(7) == []


def test_a_forks_report_is_posted_by_a_workflow_of_its_own(runner: Runner) -> None:
    runner.pull_request(fork=True)
    runner.variables["RUNNER_ENVIRONMENT"] = "github-hosted"
    told = runner.step("action", runner.github.token(write=False))
    assert told.returncode == 0, told.stdout + told.stderr
    assert runner.github.comments(7) == []
    assert "pass" in runner.summary

    repository = {"full_name": runner.github.repository}
    run = {
        "id": 4711,
        "run_attempt": 1,
        "name": "gate",
        "event": "pull_request",
        "status": "completed",
        "conclusion": "success",
        "head_sha": runner.head,
        "head_branch": "topic",
        "head_repository": {"full_name": "stranger/trainer"},
        "repository": repository,
        "pull_requests": [],
    }
    event = {"action": "completed", "workflow_run": run, "repository": repository}
    runner.event("workflow_run", event)
    runner.variables |= {"GITHUB_RUN_ID": "4800", "GITHUB_SHA": "a" * 40}
    relayed = runner.step("comment", runner.token, comment="always")
    assert relayed.returncode == 0, relayed.stdout + relayed.stderr
    (comment,) = runner.github.comments(7)
    assert "actions/runs/4711" in comment["body"]

    report = runner.report / "report.json"
    by_hand = runner.run("repro_gate", "comment", str(report), GITHUB_TOKEN=runner.token)
    assert by_hand.returncode == 0, by_hand.stdout + by_hand.stderr
    assert "comment created" in by_hand.stdout
    first, second = comments = runner.github.comments(7)
    assert first == comment and "actions/runs/4711" in second["body"]

    forged = json.loads(report.read_text())
    forged["origin"]["run_id"] = 99
    report.write_text(json.dumps(forged))
    refused = runner.step("comment", runner.token)
    assert refused.returncode == 2 and "not of the run it came with" in refused.stdout
    assert "pass" not in runner.outputs + runner.summary
    assert runner.github.comments(7) == comments


def test_a_bad_spec_is_shown_on_its_line(runner: Runner) -> None:
    spec = "version: 1\ntrain: {run: python train.py, stpes: 3}\n"
    (runner.workspace / "repro.yml").write_text(spec)
    runner.pull_request()
    told = runner.step("action", runner.token)
    assert told.returncode == 2
    assert "file=repro.yml,line=2" in told.stdout
    assert "did you mean `steps`" in told.stdout.replace("%60", "`")
