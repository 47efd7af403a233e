"""Claims about the copy of a compile cache: no link is followed, and nothing stays of a cache that is too large."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.runs import workspaces
from repro_gate.runs.workspaces import copy_cache


def cache(folder: Path) -> Path:
    """A small cache with everything in it that must not be copied."""
    (folder / "source" / "ab" / "cd").mkdir(parents=True)
    (folder / "source" / "ab" / "cd" / "kernel.so").write_bytes(b"k" * 100)
    (folder / "source" / "ab" / "link").symlink_to("/etc/passwd")
    (folder / "source" / "folder").symlink_to("/etc")
    os.mkfifo(folder / "source" / "pipe")
    return folder / "source"


def test_a_cache_is_copied_without_links_and_pipes(tmp_path: Path) -> None:
    source, target = cache(tmp_path), tmp_path / "target"
    assert copy_cache(source, target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["ab", "ab/cd", "ab/cd/kernel.so"]
    assert not os.path.samefile(source / "ab/cd/kernel.so", target / "ab/cd/kernel.so")


@pytest.mark.parametrize(("limit", "most"), [("MAX_ENTRIES", 4), ("MAX_BYTES", 99), ("MAX_DEPTH", 1)])
def test_nothing_stays_of_a_cache_that_is_too_large(limit: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, limit, most)
    assert not copy_cache(cache(tmp_path), tmp_path / "target") and not (tmp_path / "target").exists()


def test_a_link_in_the_place_of_the_cache_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(cache(tmp_path))
    assert not copy_cache(tmp_path / "link", tmp_path / "target") and not (tmp_path / "target").exists()
