"""Listing a folder: its order, and what somebody made so that it never ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.data import tree
from repro_gate.data.tree import list_files
from tests.support.repositories import write


def test_a_listing_is_ordered_by_the_bytes_of_whole_paths(tmp_path: Path) -> None:
    write(tmp_path, a__b="", a_dot_b="", **{"a-b": ""})
    assert [name for name, _ in list_files(tmp_path).files] == [b"a-b", b"a.b", b"a/b"]


def test_what_links_lead_to_counts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that double at each level would make a few folders a million."""
    write(tmp_path, a__b="")
    (tmp_path / "again").symlink_to("a")
    monkeypatch.setattr(tree, "MAX_FOLDERS", 3)
    monkeypatch.setattr(tree, "MAX_FILES", 2)
    assert [name for name, _ in list_files(tmp_path).files] == [b"a/b", b"again/b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="more than 3 folders lie below"):
        list_files(tmp_path)
    (tmp_path / "empty").rmdir()
    write(tmp_path, last="")
    with pytest.raises(OSError, match="more than 2 files lie below"):
        list_files(tmp_path)
