"""The action's phases as its steps start them, in a process of their own: exit codes, what the log
shows, and what is kept out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro_gate.github import __main__ as action
from repro_gate.github.report_folder import PROBLEM, REPORT
from tests.support.github.stage import Stage, pull_request, staged

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A fork's pull request on a self-hosted runner, which is refused before anything of it is
    run."""
    with staged(tmp_path) as stage:
        (tmp_path / "event.json").write_bytes(pull_request(stage.github.repository, fork=True))
        yield Job(stage, tmp_path, tmp_path / "workspace", tmp_path / "workspace/repro-gate-report")


@dataclass
class Job:
    """What the steps of the action see, and leave."""

    stage: Stage
    place: Path
    workspace: Path
    report: Path

    def step(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "octo-org/trainer",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.place / "event.json"),
            "GITHUB_SHA": "f" * 40,
            "GITHUB_RUN_ID": "4711",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(self.place / "output"),
            "GITHUB_STEP_SUMMARY": str(self.place / "summary"),
            "RUNNER_ENVIRONMENT": "self-hosted",
            **more,
        }
        return subprocess.run(
            [sys.executable, "-m", "repro_gate.github", *arguments],
            cwd=self.workspace,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=60,
            check=False,
        )


def test_a_refused_gate_leaves_the_reason_in_place_of_a_committed_report(job: Job) -> None:
    """Another job would post that report as if it were the gate's; the publishing step tells the
    reason."""
    job.report.mkdir()
    (job.report / REPORT).write_text('{"verdict": "pass"}')
    gated = job.step("gate")
    assert {path.name for path in job.report.iterdir()} == {".gitignore", PROBLEM}
    assert (gated.returncode, gated.stdout, job.stage.outputs) == (0, "", {})
    told = job.step("publish")
    assert told.returncode == 2 and told.stdout.startswith("::error title=Repro Gate::")
    assert "stranger/trainer" in told.stdout and "allow_forks" in job.stage.summary


def test_a_committed_link_does_not_turn_the_step_green(job: Job) -> None:
    """The checkout has a link where the report folder would be, and a file behind it that says that
    nothing was to be done."""
    theirs = job.workspace / "theirs"
    theirs.mkdir()
    (theirs / PROBLEM).write_text(
        '{"message": "all is well", "remedy": "", "exit_code": 0, "reason_id": "action/nothing"}'
    )
    job.report.symlink_to("theirs")
    for phase in ("gate", "publish"):
        told = job.step(phase, INPUT_ALLOW_FORKS="true")
        assert told.returncode == 2 and "is a link" in told.stdout
        assert "all is well" not in told.stdout
    assert [path.name for path in theirs.iterdir()] == [PROBLEM]


def test_every_secret_of_the_job_is_known_though_the_gate_no_longer_has_it(job: Job) -> None:
    """In the container one process gates and publishes: what it took out of its environment must
    not be in what it posts."""
    secrets = {"DB_PASSWORD": "correct-horse-battery", "INPUT_TOKEN": "ghs_not-of-that-shape"}
    (job.workspace / "repro.yml").write_text(
        "version: 1\n" + "".join(f"{value}: 1\n" for value in secrets.values())
    )
    told = job.step("action", INPUT_ALLOW_FORKS="true", **secrets)
    assert told.returncode == 2 and "repro.yml" in told.stdout
    problem = (job.report / PROBLEM).read_text()
    for text in (told.stdout, told.stderr, job.stage.summary, problem):
        assert not any(value in text for value in secrets.values())
    assert "[redacted]" in problem


def test_a_wrong_phase_or_input_is_one_line_in_any_locale(job: Job) -> None:
    for arguments in (["post"], ["gate", "publish"]):
        told = job.step(*arguments)
        assert told.returncode == 2 and "gate, publish" in told.stdout
    for name in ("INPUT_FAIL_ON", "GITHUB_RUN_ID"):
        told = job.step("action", **{name: "x\n::error::forged"})
        assert told.returncode == 2
        (line,) = told.stdout.splitlines()
        assert line.startswith("::error title=Repro Gate::")
        assert name.removeprefix("INPUT_").lower() in line.lower()
    told = job.step(
        "action", INPUT_ALLOW_FORKS="true", INPUT_SPEC="权重.yml", PYTHONIOENCODING="ascii"
    )
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert told.stdout.startswith("::error ") and "\\u6743" in told.stdout


def test_a_mistake_of_ours_is_inconclusive_and_its_trace_is_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken(*_: object) -> int:
        raise RuntimeError("one\n::error::forged")

    monkeypatch.setattr(action, "_run", mistaken)
    assert action.main(["publish"]) == 3
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    assert line.startswith("::error ") and "please report it" in line and "RuntimeError" in line
