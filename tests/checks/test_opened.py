"""What the runs opened: which of it is source, where it lies, and whether all of it is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks.opened import (
    folded,
    in_workspace,
    opened,
)
from repro_gate.trace.fields import Location, Opened
from tests.support.built_traces import evidence, run, training


def test_each_file_is_told_once_with_the_line_that_is_known() -> None:
    lines = (None, Location("train.py", 3), Location("train.py", 9))
    files = [[Opened("a", True, by), Opened("/b", False)] for by in lines]
    runs = tuple(run("deterministic-1", replace(training(), opened=each)) for each in files)
    found = {"a": Opened("a", True, Location("train.py", 3)), "/b": Opened("/b", False)}
    assert opened(evidence(runs=runs)) == found


def test_a_few_files_are_told_one_by_one_and_many_by_their_folders() -> None:
    def told(*files: tuple[Opened, str]) -> list[str]:
        return [str(seen) for seen in folded(files)]

    at = Location("a.py", 1)
    few = [(Opened(f"/srv/{number:02}", False), "") for number in range(20)]
    assert told(*few) == [f"/srv/{number:02}" for number in range(20)]
    assert told(*few, (Opened("/srv/x", False, at), "")) == ["/srv/: 21 files"]
    deep = [
        (Opened(f"/srv/{n % 3}/{n}/{m}", False, at), "why") for n in range(30) for m in range(2)
    ]
    assert told(*deep) == [f"a.py:1: opens /srv/{n}/: 20 files: why" for n in range(3)]
    inside = [(Opened(f"{n}.txt", True), "not tracked by git") for n in range(21)]
    assert told(*inside) == ["./: 21 files: not tracked by git"]


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/tmp/repro-gate-x1/workspace/train.py", "train.py"),
        ("/repro-gate-x1/place/workspace/a/workspace/b.py", "a/workspace/b.py"),
        ("/tmp/repro-gate-x1/data/file", "/tmp/repro-gate-x1/data/file"),
        ("/home/me/workspace/b.py", "/home/me/workspace/b.py"),
        ("repro-gate-x1/workspace/b.py", "repro-gate-x1/workspace/b.py"),
    ],
)
def test_the_runs_temporary_folder_is_taken_off(path: str, own: str) -> None:
    assert in_workspace(path) == own
