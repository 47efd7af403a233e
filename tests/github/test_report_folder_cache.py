"""The cache folder: the gate's while it runs, its owner's before and after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.report_folder import cache_folder

RUNNER = 1001
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def owners(folder: Path) -> set[int]:
    """Who owns the folder and everything in it."""
    return {os.lstat(path).st_uid for path in (folder, *folder.rglob("*"))}


@AS_ROOT
def test_it_is_roots_while_the_gate_runs_and_the_runners_afterwards(tmp_path: Path) -> None:
    os.chown(tmp_path, RUNNER, RUNNER)
    cache = tmp_path / "kept/cache"
    with cache_folder(cache, tmp_path):
        assert owners(cache) == {0}
        (cache / "repro-gate").mkdir(mode=0o700)
        (cache / "repro-gate/data.json").write_text("x")
    assert owners(tmp_path) == {RUNNER}
    with cache_folder(cache, tmp_path):
        assert owners(cache) == {0}
    assert owners(tmp_path) == {RUNNER}


@AS_ROOT
def test_it_is_given_back_when_the_gate_fails(tmp_path: Path) -> None:
    os.chown(tmp_path, RUNNER, RUNNER)

    def interrupted() -> None:
        with cache_folder(tmp_path / "cache", tmp_path):
            (tmp_path / "cache/file").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert owners(tmp_path) == {RUNNER}


@AS_ROOT
def test_what_a_link_in_it_leads_to_keeps_its_owner(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    (workspace / "cache").mkdir(parents=True)
    outside.write_text("root's")
    (workspace / "cache/link").symlink_to(outside)
    os.chown(workspace, RUNNER, RUNNER)
    with cache_folder(workspace / "cache", workspace):
        pass
    assert outside.stat().st_uid == 0
    assert os.lstat(workspace / "cache/link").st_uid == RUNNER


def test_a_link_of_the_checkouts_is_refused(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "cache").symlink_to(outside)
    with (
        pytest.raises(UsageError, match="is a link or no folder"),
        cache_folder(workspace / "cache", workspace),
    ):
        pass
    assert list(outside.iterdir()) == []


def test_a_folder_outside_the_workspace_is_left_alone(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with cache_folder(tmp_path / "elsewhere", workspace), cache_folder(None, workspace):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("spelled", [".", "a/.."])
def test_the_workspace_itself_is_no_cache(tmp_path: Path, spelled: str) -> None:
    """Its files would be hidden from git, and change their owner."""
    with (
        pytest.raises(UsageError, match="it is the workspace itself"),
        cache_folder(tmp_path / spelled, tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
