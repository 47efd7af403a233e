"""The report folder is ours alone in an untrusted checkout, owned by the workspace's owner, unseen
by git; the cache folder is the gate's while it runs, its owner's before and after."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.github.report_folder import (
    PROBLEM,
    REPORT,
    cache_folder,
    find_report,
    open_folder,
    read_problem,
)
from repro_gate.report.document import ReportError

RUNNER = 1001
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def owners(folder: Path) -> set[int]:
    """Who owns the folder and everything in it."""
    return {os.lstat(path).st_uid for path in (folder, *folder.rglob("*"))}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def runners(workspace: Path) -> Path:
    """A workspace of the runner's user."""
    os.chown(workspace, RUNNER, RUNNER)
    return workspace


def test_what_is_written_is_there_and_git_does_not_see_it(workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", workspace], check=True)
    with open_folder(workspace, "out/report") as folder:
        folder.write(REPORT, "{}")
    assert (workspace / "out/report" / REPORT).read_text() == "{}"
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, cwd=workspace, capture_output=True, check=True).stdout == b""


@AS_ROOT
def test_everything_in_it_belongs_to_the_workspaces_owner(runners: Path) -> None:
    with open_folder(runners, "a/b") as folder:
        folder.write(REPORT, "{}")
    assert len(list((runners / "a").rglob("*"))) == 3 and owners(runners) == {RUNNER}


@pytest.mark.parametrize("kind", ["report", "cache"])
@pytest.mark.parametrize("place", ["link", "link/inner"])
def test_a_link_of_the_checkouts_is_not_followed(workspace: Path, place: str, kind: str) -> None:
    (workspace / "link").symlink_to("../outside")
    cache, refused = workspace / place, pytest.raises(UsageError, match="is a link or no folder")
    opened = open_folder(workspace, place) if kind == "report" else cache_folder(cache, workspace)
    with refused as caught, opened:
        pass
    assert caught.value.message.startswith(f"{kind}: ") and "with:" in caught.value.remedy
    assert not list((workspace / "../outside").iterdir())


@pytest.mark.parametrize("name", [REPORT, PROBLEM, ".gitignore"])
def test_a_folder_under_one_of_our_names_is_refused(workspace: Path, name: str) -> None:
    report = workspace / "report"
    (report / name).mkdir(parents=True)
    if name != PROBLEM:
        (report / PROBLEM).write_text("{}")
    with pytest.raises(UsageError, match=f"'{name}'"), open_folder(workspace, "report"):
        pass
    assert not (report / PROBLEM).is_file()


def test_what_lies_in_the_folder_is_replaced_and_not_written_through(workspace: Path) -> None:
    secret, report = workspace / "secret", workspace / "report"
    secret.write_text("untouched")
    report.mkdir()
    (report / REPORT).symlink_to(secret)
    for name in (PROBLEM, "notes.txt"):
        (report / name).write_text("old")
    with open_folder(workspace, "report") as folder:
        assert {path.name for path in report.iterdir()} == {".gitignore", "notes.txt"}
        (report / REPORT).symlink_to(secret)
        folder.write(REPORT, "{}")
    assert secret.read_text() == "untouched" and not (report / REPORT).is_symlink()


A_PROBLEM = {"message": "", "remedy": "", "exit_code": 2, "reason_id": ""}
CHANGES: list[dict[str, object]] = [{"message": 1}, {"message": "x" * 20_001}]
# 0 would turn a step green for a gate that never ran
CHANGES += [{"exit_code": code} for code in (77, 1, 0)]


def test_a_problem_of_somebody_elses_is_refused_and_ours_read_back(workspace: Path) -> None:
    for text in ("", "[]", "{}", *(json.dumps(A_PROBLEM | change) for change in CHANGES)):
        (workspace / PROBLEM).write_text(text)
        with pytest.raises(ReportError):
            read_problem(workspace)
    (workspace / PROBLEM).unlink()
    (workspace / "real").write_text(json.dumps(A_PROBLEM))
    (workspace / PROBLEM).symlink_to(workspace / "real")
    with pytest.raises(ReportError, match="is a link"):
        read_problem(workspace)
    for kind in (UsageError, Inconclusive):
        with open_folder(workspace, ".") as folder:
            folder.write_problem(
                kind("\udcff" + "x" * 90_000 + "the end", remedy="y", reason_id="a/b")
            )
        found = read_problem(workspace)
        assert found is not None and found.message.endswith("the end")
        assert (found.remedy, found.reason_id, found.exit_code) == ("y", "a/b", kind.exit_code)


def test_a_report_behind_a_link_is_refused_but_not_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/link").symlink_to("inner")
    (tmp_path / "real" / REPORT).symlink_to("inner")
    for name in ("link", "link/inner", "real/link", "real"):
        with pytest.raises(UsageError, match="is a link") as caught:
            find_report(tmp_path, name)
        assert "with:" in caught.value.remedy
    assert find_report(tmp_path / "link", "report") == tmp_path / "link/report" / REPORT


# The cache.


@AS_ROOT
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_cache_is_the_gates_meanwhile(runners: Path, error: type[BaseException] | None) -> None:
    cache = runners / "kept/cache"
    cache.mkdir(parents=True)
    for path in (cache, cache.parent):
        os.chown(path, RUNNER, RUNNER)
    (cache / "link").symlink_to(runners / "../outside")
    with pytest.raises(error) if error else nullcontext(), cache_folder(cache, runners):
        assert owners(cache) == {0}
        (cache / "repro-gate").mkdir(mode=0o700)
        (cache / "repro-gate/data.json").write_text("x")
        if error:
            raise error
    assert owners(runners) == {RUNNER}
    assert (runners / "../outside").stat().st_uid == 0, "what a link leads to keeps its owner"


def test_a_folder_outside_the_workspace_is_left_alone(workspace: Path) -> None:
    elsewhere = workspace.parent / "elsewhere"
    with cache_folder(elsewhere, workspace), cache_folder(None, workspace):
        pass
    assert not elsewhere.exists()
    for name in (".", "a/.."):  # its files would be hidden from git, and change their owner
        with pytest.raises(UsageError), cache_folder(workspace / name, workspace):
            pass
    assert list(workspace.iterdir()) == []
