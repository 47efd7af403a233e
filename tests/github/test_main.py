"""The action's phases as its steps start them, in a process of their own: exit codes, what the log
shows, and what is kept out of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.github import __main__ as action
from repro_gate.github.report_folder import PROBLEM, REPORT
from tests.support.github.stage import HEAD

ROOT = Path(__file__).resolve().parents[2]


def job(tmp_path: Path, **more: str) -> dict[str, str]:
    """The environment of a fork's pull request on a self-hosted runner, which is refused before
    anything of it is run."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    for name in ("output", "summary"):
        (tmp_path / name).touch()
    side = {"sha": HEAD, "ref": "topic", "repo": {"full_name": "stranger/trainer"}}
    base = {"ref": "main", "repo": {"full_name": "octo-org/trainer"}}
    pull = {"number": 7, "state": "open", "draft": False, "head": side, "base": base}
    (tmp_path / "event.json").write_text(
        json.dumps({"action": "opened", "number": 7, "pull_request": pull})
    )
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "octo-org/trainer",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_SHA": "f" * 40,
        "GITHUB_RUN_ID": "4711",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "RUNNER_ENVIRONMENT": "self-hosted",
        **more,
    }


def step(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "repro_gate.github", *arguments],
        cwd=environment.get("GITHUB_WORKSPACE", "/"),
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=60,
        check=False,
    )


def test_the_gate_leaves_the_reason_and_is_silent_and_the_publishing_step_tells_it(
    tmp_path: Path,
) -> None:
    environment = job(tmp_path)
    gated = step("gate", environment=environment)
    assert (gated.returncode, gated.stdout) == (0, "")
    assert sorted(path.name for path in (tmp_path / "workspace/repro-gate-report").iterdir()) == [
        ".gitignore",
        PROBLEM,
    ]
    assert (tmp_path / "output").read_text() == ""
    told = step("publish", environment=environment)
    assert told.returncode == 2
    assert told.stdout.startswith("::error title=Repro Gate::")
    assert "stranger/trainer" in told.stdout
    assert "allow_forks" in (tmp_path / "summary").read_text()


def test_a_committed_link_does_not_turn_the_step_green(tmp_path: Path) -> None:
    """The checkout has a link where the report folder would be, and a file behind it that says that
    nothing was to be done."""
    environment = job(tmp_path, INPUT_ALLOW_FORKS="true")
    theirs = tmp_path / "workspace/theirs"
    theirs.mkdir()
    (theirs / PROBLEM).write_text(
        '{"message": "all is well", "remedy": "", "exit_code": 0, "reason_id": "action/nothing"}'
    )
    (tmp_path / "workspace/repro-gate-report").symlink_to("theirs")
    gated, told = step("gate", environment=environment), step("publish", environment=environment)
    assert (gated.returncode, told.returncode) == (2, 2)
    assert "is a link" in gated.stdout
    assert "is a link" in told.stdout
    assert "all is well" not in told.stdout
    assert not (theirs / REPORT).exists()


def test_every_secret_of_the_job_is_known_though_the_gate_no_longer_has_it(tmp_path: Path) -> None:
    """In the container one process gates and publishes: what it took out of its environment must
    not be in what it posts."""
    environment = job(
        tmp_path,
        INPUT_ALLOW_FORKS="true",
        DB_PASSWORD="correct-horse-battery",
        INPUT_TOKEN="ghs_not-of-that-shape",
    )
    (tmp_path / "workspace/repro.yml").write_text(
        "version: 1\ncorrect-horse-battery: 1\nghs_not-of-that-shape: 2\n"
    )
    told = step("action", environment=environment)
    assert told.returncode == 2 and "repro.yml" in told.stdout
    problem = (tmp_path / "workspace/repro-gate-report" / PROBLEM).read_text()
    for text in (told.stdout, told.stderr, (tmp_path / "summary").read_text(), problem):
        assert "correct-horse-battery" not in text and "ghs_not-of-that-shape" not in text
    assert "[redacted]" in problem


def test_a_runner_with_another_locale_is_told_all_the_same(tmp_path: Path) -> None:
    environment = job(
        tmp_path, INPUT_ALLOW_FORKS="true", INPUT_SPEC="权重.yml", PYTHONIOENCODING="ascii"
    )
    told = step("action", environment=environment)
    assert told.returncode == 2
    assert "Traceback" not in told.stderr
    assert told.stdout.startswith("::error ")
    assert "\\u6743" in told.stdout


@pytest.mark.parametrize("arguments", [["post"], ["gate", "publish"]])
def test_what_is_no_phase_is_refused(arguments: list[str], tmp_path: Path) -> None:
    told = step(*arguments, environment=job(tmp_path))
    assert told.returncode == 2 and "gate, publish" in told.stdout


@pytest.mark.parametrize("name", ["INPUT_FAIL_ON", "GITHUB_RUN_ID"])
def test_a_wrong_input_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    told = step("action", environment=job(tmp_path, **{name: "x\n::error::forged"}))
    assert told.returncode == 2
    (line,) = told.stdout.splitlines()
    assert line.startswith("::error title=Repro Gate::")
    assert name.removeprefix("INPUT_").lower() in line.lower()


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
