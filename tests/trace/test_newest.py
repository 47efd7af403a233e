"""Claims about `trace.newest`: which checkpoint a training wrote last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.files import remove_tree
from repro_gate.trace import newest as module
from repro_gate.trace.newest import newest


def put(folder: Path, name: str, time: float) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time, time))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out/*.pt", "out/b.pt"),
        ("out/step-*", "out/step-8"),  # a folder, by the newest file in it
        ("**/*.pt", "out/step-8/deep/c.pt"),
        ("out/**/c.pt", "out/step-8/deep/c.pt"),
        ("out/a.pt", "out/a.pt"),
        ("./out/a.pt", "out/a.pt"),
        ("out/**", "out/step-8"),
        ("out/*", "out/step-8"),  # no leading dot
        ("out/.*", "out/.new.pt"),
        ("*.pt", ""),
        ("out/none*", ""),
    ],
)
def test_the_newest_match_is_found(tmp_path: Path, pattern: str, expected: str) -> None:
    times = {"out/a.pt": 110, "out/b.pt": 120, "out/old.pt": 90, "train.py": 500}
    times |= {"out/step-4/c.pt": 115, "out/step-8/d.txt": 116, "out/step-8/deep/c.pt": 130}
    times["out/.new.pt"] = 140
    for name, time in times.items():
        put(tmp_path, name, time)
    changed, found = newest(str(tmp_path), pattern, (100, ""))
    assert found == expected and (changed > 100) == bool(expected)
    assert newest(str(tmp_path), pattern, (changed, found)) == (changed, found)


def test_no_link_is_followed_and_no_more_than_the_limit_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "out/a.pt", 110)
    (tmp_path / "out/loop").symlink_to(tmp_path)
    (tmp_path / "out/b.pt").symlink_to("/etc/passwd")
    assert newest(str(tmp_path), "**/" * 9 + "*.pt", (100, ""))[1] == "out/a.pt"
    for number in range(20):  # what cannot match is not entered, empty folders count
        (tmp_path / "data" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(module, "_MOST", 10)
    assert newest(str(tmp_path), "out/*.pt", (100, ""))[1] == "out/a.pt"
    monkeypatch.setattr(module, "_MOST", 1)
    assert newest(str(tmp_path), "**/*.pt", (100, ""))[1] == ""


def test_a_deep_folder_ends_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "out/a.pt", 110)
    monkeypatch.chdir(tmp_path)
    for _ in range(1_500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(tmp_path)
    assert newest(str(tmp_path), "**/*.pt", (100, ""))[1] == "out/a.pt"
    remove_tree(tmp_path / "d")
