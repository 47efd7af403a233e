"""Claims about removing what an untrusted process left behind."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.files import copy_file, remove_tree
from tests.support.repositories import tree, write


def test_a_hostile_tree_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept", file="x")
    top = tmp_path / "top"
    write(tmp_path, top__locked__inner__file="x", top__plain="y")
    (top / "link").symlink_to(tmp_path / "kept")
    (top / "locked/link").symlink_to(tmp_path / "kept/file")
    os.mkfifo(top / "pipe")
    (top / ".removing-0").mkdir()
    (top / "locked/inner").chmod(0)
    (top / "locked").chmod(0o500)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    top.chmod(0o100)
    remove_tree(top)
    assert not top.exists() and tree(tmp_path / "kept") == ["file"]


def test_files_that_take_long_to_unlink_are_unlinked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 took some 3 ms for each file that had reached the disk, nearly all of it waiting: 20,000 files took a minute."""
    write(tmp_path, **{f"top__{number}": "x" for number in range(200)})
    unlink, began = os.unlink, time.monotonic()
    monkeypatch.setattr(os, "unlink", lambda *path, **of: (time.sleep(0.02), unlink(*path, **of)))
    remove_tree(tmp_path / "top")
    assert time.monotonic() - began < 2 and tree(tmp_path) == []


def test_a_link_is_removed_not_what_it_points_to(tmp_path: Path) -> None:
    write(tmp_path, real__file="x")
    (tmp_path / "link").symlink_to("real")
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "never-there")
    assert tree(tmp_path) == ["real/file"]


def test_what_cannot_be_removed_is_named() -> None:
    with pytest.raises(Inconclusive, match="cannot remove /proc/self/fdinfo"):
        remove_tree(Path("/proc/self/fdinfo"))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lacks", ["", "copy_file_range", "lseek"])
def test_a_file_is_copied_whatever_the_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str, sparse: bool) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    source, content = tmp_path / "source", os.urandom(3_000_001)
    source.write_bytes(content)
    if sparse:
        os.truncate(source, 64 << 20)
    if lacks:
        monkeypatch.setattr(os, lacks, refuse)
    assert copy_file(source, tmp_path / "copy") == source.stat().st_size
    assert (tmp_path / "copy").read_bytes() == content + bytes(source.stat().st_size - len(content))
    assert lacks == "lseek" or (tmp_path / "copy").stat().st_blocks <= source.stat().st_blocks + 64
