"""Claims about taking artifacts out of a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.runs.artifacts import collect
from repro_gate.trace.artifacts.read import read_leaves


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name in ("out/a.pt", "out/b.pt", "out/metrics.json", "out/deep/er/c.pt", "out/.hidden.pt", "top.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def found(root: Path, *globs: str) -> list[str]:
    return [item.name for item in collect(root, globs, root.parent / "kept")[0]]


def test_files_are_copied_and_outlive_the_workspace(root: Path, tmp_path: Path) -> None:
    artifacts, unmatched = collect(root, ["out/*.pt", "out/metrics.json", "none/*.pt"], tmp_path / "kept")
    assert [item.name for item in artifacts] == ["out/a.pt", "out/b.pt", "out/metrics.json"]
    assert unmatched == ("none/*.pt",)
    (root / "out/a.pt").write_text("changed")
    assert artifacts[0].path.read_text() == "out/a.pt" and artifacts[0].path.suffix == ".pt"


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("**/*.pt", ["out/a.pt", "out/b.pt", "out/deep/er/c.pt"]),
        ("out/**", ["out/a.pt", "out/b.pt", "out/deep/er/c.pt", "out/metrics.json"]),
        ("out/[ab].p?", ["out/a.pt", "out/b.pt"]),
        ("*/.hid*", ["out/.hidden.pt"]),
        ("./top.json", ["top.json"]),
        ("out", []),
        ("out/a.pt/x", []),
        ("OUT/*.pt", []),
    ],
)
def test_globs_match_as_documented(root: Path, glob: str, names: list[str]) -> None:
    assert found(root, glob) == names


def test_a_file_that_two_globs_match_is_taken_once(root: Path) -> None:
    assert found(root, "out/*.pt", "**/a.pt") == ["out/a.pt", "out/b.pt"]


@pytest.mark.parametrize("glob", ["../x", "/etc/passwd", "out/../../x", ""])
def test_a_glob_that_leaves_the_root_is_refused(root: Path, glob: str) -> None:
    with pytest.raises(UsageError, match=r"capture\.artifacts"):
        collect(root, [glob], root.parent / "kept")


def test_links_inside_count_and_links_outside_are_never_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.pt").write_text("secret")
    (root / "out/last.pt").symlink_to("a.pt")
    (root / "out/leak.pt").symlink_to(tmp_path / "secret.pt")
    (root / "away").symlink_to(tmp_path)
    (root / "run").symlink_to("out")
    os.mkfifo(root / "out/pipe.pt")
    artifacts = {item.name: item for item in collect(root, ["out/*.pt", "away/*.pt", "run/a.pt"], tmp_path / "kept")[0]}
    assert artifacts["out/last.pt"].path.read_text() == "out/a.pt" and "run/a.pt" in artifacts
    assert not any(name.startswith("away") for name in artifacts)
    for name in ("out/leak.pt", "out/pipe.pt"):
        assert artifacts[name].note and read_leaves(artifacts[name].path).format == "refused"


def test_too_many_files_are_not_cut_off_in_silence(root: Path) -> None:
    for number in range(1001):
        (root / f"{number}.bin").touch()
    with pytest.raises(Inconclusive, match="1,001"):
        collect(root, ["*.bin"], root.parent / "kept")
