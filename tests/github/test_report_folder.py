"""The report folder: ours alone in an untrusted checkout, owned by the workspace's owner, unseen by
git."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.report_folder import (
    PROBLEM,
    REPORT,
    Problem,
    find_report,
    open_folder,
    read_problem,
)
from repro_gate.report.document import ReportError

RUNNER = 1001
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def test_what_is_written_is_there_and_git_does_not_see_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with open_folder(tmp_path, "out/report") as folder:
        folder.write(REPORT, "{}")
    assert (tmp_path / "out/report" / REPORT).read_text() == "{}"
    assert (
        subprocess.run(
            ["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        == b""
    )


@AS_ROOT
def test_everything_in_it_belongs_to_the_workspaces_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, RUNNER, RUNNER)
    with open_folder(tmp_path, "a/b") as folder:
        folder.write(REPORT, "{}")
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert len(made) == 4
    assert {path.stat().st_uid for path in made} == {RUNNER}


@pytest.mark.parametrize("place", ["report", "report/inner"])
def test_a_link_of_the_checkouts_is_not_followed(tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    workspace = tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / "report").symlink_to(outside)
    with (
        pytest.raises(UsageError, match=r"report: .* cannot be used") as caught,
        open_folder(workspace, place),
    ):
        pass
    assert "with:" in caught.value.remedy
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [REPORT, PROBLEM, ".gitignore"])
def test_a_folder_under_one_of_our_names_is_named_and_a_problem_that_was_there_is_gone(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / PROBLEM).write_text("{}")
    if name == PROBLEM:
        (tmp_path / "report" / PROBLEM).unlink()
    (tmp_path / "report" / name).mkdir()
    said = f"'report' cannot be used: '{name}' in it cannot be replaced"
    with pytest.raises(UsageError, match=said) as caught, open_folder(tmp_path, "report"):
        pass
    assert "with:" in caught.value.remedy and not (tmp_path / "report" / PROBLEM).is_file()


def test_a_link_under_the_reports_name_is_replaced_not_written_through(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / REPORT).symlink_to(secret)
    with open_folder(tmp_path, "report") as folder:
        folder.write(REPORT, "{}")
    assert secret.read_text() == "untouched"
    assert not (tmp_path / "report" / REPORT).is_symlink()


def test_an_older_report_is_gone_before_the_gate_begins(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / REPORT).write_text("old")
    (tmp_path / "report" / PROBLEM).write_text("old")
    (tmp_path / "report" / "notes.txt").write_text("not ours")
    with open_folder(tmp_path, "report"):
        assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
            ".gitignore",
            "notes.txt",
        ]


def test_a_problem_comes_back_as_it_was(tmp_path: Path) -> None:
    problem = Problem("repro.yml:4:3: train.stpes: unknown key", "did you mean `steps`?", 2)
    assert read_problem(tmp_path) is None
    with open_folder(tmp_path, "report") as folder:
        folder.write_problem(problem)
    assert read_problem(tmp_path / "report") == problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"message": 1, "remedy": "", "exit_code": 0, "reason_id": ""}',
        '{"message": "", "remedy": "", "exit_code": 77, "reason_id": ""}',
        '{"message": "", "remedy": "", "exit_code": 1, "reason_id": ""}',
        '{"message": "", "remedy": "", "exit_code": false, "reason_id": ""}',
        '{"message": "", "remedy": "", "exit_code": 0.0, "reason_id": ""}',
    ],
)
def test_a_problem_of_somebody_elses_making_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PROBLEM).write_text(text)
    with pytest.raises(ReportError):
        read_problem(tmp_path)


def test_a_problem_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(
        json.dumps({"message": "", "remedy": "", "exit_code": 0, "reason_id": ""})
    )
    (tmp_path / PROBLEM).symlink_to(tmp_path / "real")
    with pytest.raises(ReportError, match="is a link"):
        read_problem(tmp_path)


@pytest.mark.parametrize("name", ["link", "link/inner", "real/link", "real"])
def test_a_report_behind_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/link").symlink_to("inner")
    (tmp_path / "real" / REPORT).symlink_to("inner")
    with pytest.raises(ReportError, match="is a link") as caught:
        find_report(tmp_path, name)
    assert "with:" in caught.value.remedy


def test_a_workspace_that_is_reached_through_a_link_is_as_good_as_any(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "workspace").symlink_to("real")
    assert find_report(tmp_path / "workspace", "report") == tmp_path / "workspace/report" / REPORT
