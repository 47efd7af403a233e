"""What a crashed run did not find and this checkout has: which lines of a log count, and which
files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checks.code import files_of_this_machine
from repro_gate.checks.interface import Evidence
from repro_gate.spec.model import DataItem, Train
from tests.support.built_traces import evidence, run, spec
from tests.support.repositories import repository, write

WORKSPACE = "/tmp/repro-gate-x1/deterministic-1/workspace"
ABSENT = "No such file or directory"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout whose `build/` is ignored by git and full."""
    folder = repository(tmp_path / "repo")
    write(
        folder,
        build__vocab_dot_json="{}",
        build__ops_dot_py="",
        new_dot_txt="",
    )
    (folder / "build/fused.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    return folder


def crashed(folder: Path, *tail: str, outcome: str = "crashed", inside: str = ".") -> Evidence:
    """The evidence of a checkout where a run ended with these lines."""
    checkout = inspect_checkout(folder)
    return evidence(
        spec=replace(spec(folder), train=Train(run="x", working_directory=inside)),
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        uncommitted=checkout.uncommitted,
        runs=(run("deterministic-1", outcome=outcome, problem="x", tail=tail),),
    )


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"FileNotFoundError: [Errno 2] {ABSENT}: 'build/vocab.json'", "build/vocab.json"),
        (
            f"[rank3]: FileNotFoundError: [Errno 2] {ABSENT}: './src/../build/vocab.json'",
            "build/vocab.json",
        ),
        (
            f"FileNotFoundError: [Errno 2] {ABSENT}: '{WORKSPACE}/build/vocab.json'",
            "build/vocab.json",
        ),
        (f'my.io.ReadError: {ABSENT}: "build/vocab.json"', "build/vocab.json"),
        (f"python: can't open file '{WORKSPACE}/build/ops.py': [Errno 2] {ABSENT}", "build/ops.py"),
        (
            (
                "OSError: build/fused.cpython-311-x86_64-linux-gnu.so: cannot open shared object "
                f"file: {ABSENT}"
            ),
            "build/fused.cpython-311-x86_64-linux-gnu.so",
        ),
    ],
)
def test_a_line_that_names_what_was_not_there(line: str, path: str, repo: Path) -> None:
    assert files_of_this_machine(crashed(repo, "Traceback (most recent call last):", line)) == {
        path: "deterministic-1"
    }


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: 'build/vocab.json' holds no words",
        f"warning: no cache, [Errno 2] {ABSENT}: 'build/vocab.json'",
        f"cat: build/vocab.json: {ABSENT}",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'build/gone.json'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'train.py'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'new.txt'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'build'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: '.git/config'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: '/etc/hostname'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: '../outside.txt'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: '{WORKSPACE}/../../../../../etc/hostname'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'build/link'",
        f"FileNotFoundError: [Errno 2] {ABSENT}: 'build/vocab\0.json'",
        "ModuleNotFoundError: No module named 'build.ops'",
    ],
)
def test_other_lines_and_other_files_are_left_alone(line: str, repo: Path) -> None:
    (repo.parent / "outside.txt").write_text("")
    (repo / "build/link").symlink_to(repo.parent / "outside.txt")
    assert files_of_this_machine(crashed(repo, line)) == {}


LINE = f"FileNotFoundError: [Errno 2] {ABSENT}: 'vocab.json'"


def test_a_relative_path_starts_at_the_working_directory(repo: Path) -> None:
    assert files_of_this_machine(crashed(repo, LINE)) == {}
    assert list(files_of_this_machine(crashed(repo, LINE, inside="build"))) == ["build/vocab.json"]


def test_declared_data_and_runs_that_did_not_crash_are_no_finding(repo: Path) -> None:
    line = f"FileNotFoundError: [Errno 2] {ABSENT}: 'build/vocab.json'"
    found = crashed(repo, line)
    for item, is_other in (("build", False), ("build/vocab.json", False), ("build/vocab", True)):
        declared = replace(found, spec=replace(found.spec, data=(DataItem(item),)))
        assert bool(files_of_this_machine(declared)) is is_other
    for outcome in ("finished", "timed-out", "interrupted"):
        assert files_of_this_machine(crashed(repo, line, outcome=outcome)) == {}


def test_without_git_everything_was_copied(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    assert files_of_this_machine(crashed(tmp_path, LINE)) == {}
    assert files_of_this_machine(evidence()) == {}
