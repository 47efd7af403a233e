"""Listing a folder: its order, its faults, and what somebody made so that it never ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.data import tree
from repro_gate.data.declared import verify_data
from repro_gate.data.tree import list_files
from repro_gate.spec.model import DataItem
from tests.support.repositories import write


def doubling(folder: Path, levels: int) -> Path:
    """`d0/a` and `d0/b` are both a link to `d1`, and so on: 2 ** levels paths."""
    for level in range(levels):
        (folder / f"d{level}").mkdir(parents=True)
        for name in "ab":
            (folder / f"d{level}" / name).symlink_to(f"../d{level + 1}")
    write(folder / f"d{levels}", file="x")
    return folder


def test_links_that_double_at_each_level_are_refused_and_a_few_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name, _ in list_files(doubling(tmp_path / "few", 5) / "d0").files]
    assert len(names) == 2**5 and names[0] == b"a/a/a/a/a/file"
    monkeypatch.setattr(tree, "MAX_FOLDERS", 1_000)
    doubling(tmp_path / "data", 36)
    (finding,) = verify_data((DataItem("data/d0"),), tmp_path)
    assert finding.actual is None and "more than 1,000 folders" in finding.problem


def test_folders_and_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a__b__c="", d__e="")
    monkeypatch.setattr(tree, "MAX_FOLDERS", 4)
    monkeypatch.setattr(tree, "MAX_FILES", 2)
    assert len(list_files(tmp_path).files) == 2
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="more than 4 folders lie below"):
        list_files(tmp_path)
    (tmp_path / "f").rmdir()
    write(tmp_path, last="")
    with pytest.raises(OSError, match="more than 2 files lie below"):
        list_files(tmp_path)


def test_a_listing_is_ordered_by_the_bytes_of_whole_paths(tmp_path: Path) -> None:
    write(tmp_path, a__b="", a_dot_b="", **{"a-b": ""})
    (tmp_path / "deep" / "/".join("x" * 600)).mkdir(parents=True)
    assert [name for name, _ in list_files(tmp_path).files] == [b"a-b", b"a.b", b"a/b"]


def test_a_loop_a_broken_link_and_a_missing_folder_are_errors_with_their_path(
    tmp_path: Path,
) -> None:
    write(tmp_path, loop__a__b="")
    (tmp_path / "loop/a/up").symlink_to("..")
    with pytest.raises(OSError, match="leads back to a folder above it"):
        list_files(tmp_path / "loop")
    (tmp_path / "broken/a").mkdir(parents=True)
    (tmp_path / "broken/a/link").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError) as caught:
        list_files(tmp_path / "broken")
    assert caught.value.filename == os.fsencode(tmp_path / "broken/a/link")
    with pytest.raises(FileNotFoundError):
        list_files(tmp_path / "gone")
