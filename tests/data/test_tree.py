"""Claims about listing a folder that somebody made so that it never ends, and about folders with
many links that do end."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.data import tree
from repro_gate.data.declared import verify_data
from repro_gate.data.tree import entry_name, list_files
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


def test_links_that_double_at_each_level_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=r"links to links lead to the same folder below .* in more than 1,000 ways"
    ):
        list_files(doubling(tmp_path / "data", 36) / "d0")
    (finding,) = verify_data((DataItem("data/d0"),), tmp_path)
    assert finding.actual is None and "links to links" in finding.problem


def test_a_few_levels_of_links_are_all_listed(tmp_path: Path) -> None:
    names = [entry_name(entry) for entry in list_files(doubling(tmp_path, 5) / "d0").entries]
    assert len(names) == 2**5 and names[0] == b"a/a/a/a/a/file"


def test_many_links_to_one_folder_are_all_followed(tmp_path: Path) -> None:
    """A calibration that each of 1,500 recordings links to, below a link to the version in use."""
    write(tmp_path, common__calibration="x", data__readme="y")
    (tmp_path / "versions").mkdir()
    for number in range(1_500):
        (tmp_path / f"versions/{number}").symlink_to("../common")
    (tmp_path / "data/current").symlink_to("../versions")
    assert len(list_files(tmp_path / "data").entries) == 1_501


def test_folders_and_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a__b__c="", d__e="")
    monkeypatch.setattr(tree, "MAX_FOLDERS", 4)
    monkeypatch.setattr(tree, "MAX_FILES", 2)
    assert len(list_files(tmp_path).entries) == 2
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="more than 4 folders lie below"):
        list_files(tmp_path)
    (tmp_path / "f").rmdir()
    write(tmp_path, last="")
    with pytest.raises(OSError, match="more than 2 files lie below"):
        list_files(tmp_path)
