"""What the runs opened: which of it is source, where it lies, and whether all of it is listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks.opened import (
    NOT_ALL,
    declared_paths,
    folded,
    in_workspace,
    is_source,
    opened,
    unlisted,
    with_line,
)
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Opened
from tests.support.built_traces import evidence, run, spec, training


def test_each_file_is_told_once_with_the_line_that_is_known() -> None:
    traces = [
        replace(training(), opened=[Opened("a", True, by), Opened("/b", False)])
        for by in ("", "train.py:3", "train.py:9")
    ]
    found = opened(evidence(runs=tuple(run("deterministic-1", trace) for trace in traces)))
    assert found == {"a": Opened("a", True, "train.py:3"), "/b": Opened("/b", False)}
    assert [with_line(item) for item in found.values()] == ["a (opened by train.py:3)", "/b"]


def test_what_the_probe_leaves_out_is_told_once() -> None:
    trace = replace(training(), notes=[(NOT_ALL, "more"), ("probe-slow", "x")])
    assert unlisted(
        evidence(runs=(run("deterministic-1", trace), run("deterministic-2", trace)))
    ) == ("more",)
    assert unlisted(evidence(runs=(run("deterministic-1", training()),))) == ()


def test_a_few_files_are_told_one_by_one_and_many_by_their_folders() -> None:
    few = [(Opened(f"/srv/{number:02}", False), "") for number in range(20)]
    assert folded(few) == [f"/srv/{number:02}" for number in range(20)]
    assert folded([*few, (Opened("/srv/x", False, "a.py:1"), "")]) == ["/srv/: 21 files"]
    deep = [
        (Opened(f"/srv/{n % 3}/{n}/{m}", False, "a.py:1"), "why")
        for n in range(30)
        for m in range(2)
    ]
    assert folded(deep) == [f"/srv/{n}/: 20 files (opened by a.py:1): why" for n in range(3)]
    inside = [(Opened(f"{n}.txt", True), "not tracked by git") for n in range(21)]
    assert folded(inside) == ["./: 21 files: not tracked by git"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", True),
        ("a.SO", True),
        ("a.yml", True),
        ("a.json", False),
        ("a", False),
        (".py", False),
    ],
)
def test_source_and_settings_are_told_by_their_suffix(name: str, source: bool) -> None:
    assert is_source(f"/srv/x.py/{name}") is source


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


def test_declared_data_has_its_path_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    declared = spec(tmp_path / "exp", data=(DataItem("../data/a"), DataItem("b")))
    assert list(
        declared_paths(evidence(spec=declared, checkout=Checkout(root=tmp_path.resolve())))
    ) == ["data/a", "exp/b"]
    assert list(declared_paths(evidence(spec=declared))) == []
