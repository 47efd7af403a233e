"""Category `code`: is what ran known, and would it run from a fresh clone? And the files that the
runs opened: which are named, and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import inspect_checkout, tracked_files
from repro_gate.checks import code
from repro_gate.checks.data import no_undeclared_reads
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import (
    IGNORED,
    NOT_ALL,
    ORIGINAL,
    opened,
    why_runs_are_unusable,
)
from repro_gate.runs.launch import SNIPPET
from repro_gate.spec.model import DataItem
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Imported, Location, Opened
from repro_gate.trace.model import Trace
from tests.checks.conftest import outcome, statuses
from tests.support.built_traces import FACTS, changed, evidence, flip, run, spec, training
from tests.support.repositories import git, repository, write

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 123456\n"
CRASHED: dict[str, Any] = {"outcome": "crashed", "problem": "it exited with status 1"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def commit(folder: Path, **files: str) -> None:
    write(folder, **files)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "more")


def of(folder: Path, inside: str = ".", data: tuple[str, ...] = (), **changes: object) -> Evidence:
    """Return the evidence of a real checkout, its spec in the folder `inside`."""
    checkout = inspect_checkout(folder)
    facts = evidence(
        spec=spec((folder / inside).resolve(), data=tuple(map(DataItem, data))),
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
    )
    return replace(facts, **changes)


def test_code_in_no_commit_or_with_changes_is_missing() -> None:
    assert statuses(code.commit_known, evidence(commit=None)) == ("warn", "fail")
    assert code.commit_known(evidence()).status == "pass"
    changed = evidence(uncommitted=("train.py",))
    assert statuses(code.tree_clean, changed) == ("warn", "fail")
    assert outcome(code.tree_clean, changed)[1] == ("train.py",)
    assert code.tree_clean(evidence()).status == "pass"
    assert code.tree_clean(evidence(uncommitted=("train.py",), commit=None)).status == "skip"


def test_submodules_must_be_there_at_the_recorded_commit(repo: Path, tmp_path: Path) -> None:
    assert code.submodules_present(of(repo)).status == "skip"
    inner = repository(tmp_path / "inner")
    git(repo, "submodule", "add", "-q", str(inner), "libs/inner")
    commit(repo)
    recorded = git(inner, "rev-parse", "HEAD")
    assert outcome(code.submodules_present, of(repo)) == ("pass", (f"libs/inner {recorded}",))

    git(tmp_path, "clone", "-q", str(repo), "clone")
    absent = of(tmp_path / "clone")
    assert outcome(code.submodules_present, absent)[1] == ("libs/inner: not initialised",)
    assert statuses(code.submodules_present, absent) == ("warn", "fail")

    (repo / "libs/inner/train.py").unlink()
    assert outcome(code.tree_clean, of(repo)) == ("warn", ("libs/inner/train.py",))
    git(repo / "libs/inner", "checkout", "-q", "--", ".")

    commit(repo / "libs/inner", new_dot_py="")
    moved = git(repo / "libs/inner", "rev-parse", "HEAD")
    line = f"libs/inner: recorded {recorded[:12]}, found {moved[:12]}"
    assert outcome(code.submodules_present, of(repo)) == ("fail", (line,))


def test_the_spec_must_be_tracked_and_lfs_pointers_are_not_content(repo: Path) -> None:
    write(repo, exp__repro_dot_yml="version: 1\n")
    assert outcome(code.spec_tracked, of(repo, "exp"))[1] == ("exp/repro.yml",)
    assert statuses(code.spec_tracked, of(repo, "exp")) == ("warn", "fail")
    commit(repo)
    assert code.spec_tracked(of(repo, "exp")).status == "pass"
    assert code.spec_tracked(of(repo)).status == "warn"
    commit(repo, tests__pointer_dot_txt=POINTER)
    assert code.lfs_resolved(of(repo)).status == "pass"
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    commit(repo, _dot_gitattributes=attributes, data__train_dot_bin=POINTER)
    assert outcome(code.lfs_resolved, of(repo))[1] == ("data/train.bin",)
    assert statuses(code.lfs_resolved, of(repo)) == ("warn", "fail")
    write(repo, data__train_dot_bin="the content itself")
    assert code.lfs_resolved(of(repo)).status == "pass"


def test_a_workspace_is_enough_if_runs_end(repo: Path) -> None:
    for good, bad, status in ((1, 0, "pass"), (0, 0, "skip"), (1, 1, "pass"), (0, 1, "skip")):
        runs = good * (run("deterministic-1", training()),) + bad * (run("default-1", **CRASHED),)
        lines = bad * ("default-1: it exited with status 1",)
        assert outcome(code.pristine_workspace, evidence(runs=runs)) == (status, lines)
    line = "FileNotFoundError: [Errno 2] No such file or directory: 'build/vocab.yaml'"
    runs = (run("run-1", **CRASHED, tail=[line]),)
    assert code.pristine_workspace(of(repo, runs=runs)).status == "skip"
    write(repo, build__vocab_dot_yaml="")
    lines = ("build/vocab.yaml (not found by run-1)",)
    assert outcome(code.pristine_workspace, of(repo, runs=runs)) == ("fail", lines)


def test_a_copy_and_a_module_of_the_original_checkout_fail_in_both_profiles(repo: Path) -> None:
    for name, distribution, expected, is_unsound in (
        ("", "", ("pass", "pass"), False),
        ("/venv/site-packages/pkg/__init__.py", "pkg", ("fail", "fail"), True),  # a copy
        ("ROOT/pkg/model.py", "", ("fail", "fail"), True),  # of the original checkout
        ("ROOT/pkg/_C.so", "", ("warn", "fail"), False),  # git ignores it
    ):
        path = name.replace("ROOT", str(repo.resolve()))
        imports = [Imported("pkg", path, distribution)] if path else []
        facts = of(repo, runs=(run("deterministic-1", replace(training(), imports=imports)),))
        assert statuses(code.imports_checkout, facts) == expected
        lines = outcome(code.imports_checkout, facts)[1]
        assert len(lines) == len(imports) and path in "".join(lines)
        assert (path in why_runs_are_unusable(facts, facts.runs)) is (is_unsound or not path)
        assert bool(why_runs_are_unusable(facts, facts.runs)) is is_unsound
        assert code.imports_checkout(of(repo)).status == "skip"


def opening(*files: Opened, **changes: Any) -> tuple[object, ...]:
    return (run("deterministic-1", replace(training(), opened=list(files), **changes)),)


def test_source_and_settings_that_no_clone_has_are_named(repo: Path) -> None:
    for name, line, why in (
        ("pkg/model.py", 1, ""),
        ("data/train.csv", 3, ""),
        (f"exp/{SNIPPET}", 0, ""),
        ("/mnt/data/train.bin", 3, ""),
        ("data/train.csv.bak", 0, "data that git does not track"),
        ("own.yaml", 0, "not tracked by git"),
        ("/home/me/lib/ops.py", 1, "outside the checkout"),
        ("/opt/ops/_C.cpython-311-x86_64-linux-gnu.so", 0, "outside the checkout"),
        ("ROOT/pkg/model.py", 1, ORIGINAL),
        ("ROOT/build/settings.yaml", 0, IGNORED),
    ):
        path = name.replace("ROOT", str(repo.resolve()))
        file = Opened(path, path[0] != "/", Location("train.py", line) if line else None)
        runs = opening(Opened("train.py", True), file)
        facts = of(repo, data=("data/train.csv", "data/parts"), runs=runs)
        text = f"train.py:{line}: opens {path}: {why}" if line else f"{path}: {why}"
        assert outcome(code.opened_files, facts)[1] == ((text,) if why else ())
        assert statuses(code.opened_files, facts) == (("warn", "fail") if why else ("pass", "pass"))


def test_opened_files_are_judged_once(repo: Path) -> None:
    path = f"{repo.resolve()}/build/_C.so"
    runs = opening(Opened("train.py", True), Opened(path, False), imports=[Imported("_C", path)])
    assert code.opened_files(of(repo, runs=runs)).status == "pass"
    assert code.imports_checkout(of(repo, runs=runs)).status == "warn"
    runs = opening(Opened("data/train.csv", True))
    assert code.opened_files(of(repo, "exp", runs=runs)).status == "warn"
    assert code.opened_files(of(repo, "exp", ("../data/train.csv",), runs=runs)).status == "pass"
    for file, lines in (("train.py", ()), ("own.py", ("own.py: not tracked by git",))):
        runs = opening(Opened(file, True), notes=[(NOT_ALL, "more than 20000 files")])
        facts = of(repo, runs=runs)
        assert outcome(code.opened_files, facts) == ("warn", (*lines, "more than 20000 files"))
        assert statuses(code.opened_files, facts) == ("warn", "fail")


def test_without_git_only_files_outside_are_judged(tmp_path: Path) -> None:
    files = Opened("any.py", True), Opened("/x/y.py", False)
    for count, expected in (
        (0, ("skip", ())),
        (1, ("skip", ())),
        (2, ("warn", ("/x/y.py: outside the checkout",))),
    ):
        assert outcome(code.opened_files, of(tmp_path, runs=opening(*files[:count]))) == expected
    lines = (None, Location("train.py", 3), Location("train.py", 9))
    files = [[Opened("a", True, by), Opened("/b", False)] for by in lines]
    runs = tuple(run("deterministic-1", replace(training(), opened=each)) for each in files)
    expected = {"a": Opened("a", True, Location("train.py", 3)), "/b": Opened("/b", False)}
    assert opened(evidence(runs=runs)) == expected


def test_a_few_files_are_named_one_by_one_and_many_by_their_folders() -> None:
    def texts(*files: Opened) -> list[str]:
        return [*outcome(no_undeclared_reads, evidence(runs=opening(*files)))[1]]

    at = Location("a.py", 1)
    few = [Opened(f"/srv/{number:02}", False) for number in range(20)]
    assert texts(*few) == [f"/srv/{number:02}" for number in range(20)]
    assert texts(*few, Opened("/srv/x", False, at)) == ["/srv/: 21 files"]
    assert texts(*few, Opened("/srv/x/y", False, at)) == [
        "/srv/: 20 files",
        "a.py:1: opens /srv/x/y",
    ]
    facts = evidence(runs=opening(*(Opened(f"{n}.txt", True) for n in range(21))), tracked=())
    lines = ("./: 21 files: data that git does not track",)
    assert outcome(code.opened_files, facts)[1] == lines


def still(trace: Trace, *kinds: str) -> Trace:
    """The trace, with the digests and values of these kinds as they were first."""
    first: dict[str, Block] = {}
    blocks = []
    for item in trace.blocks:
        begun = first.setdefault(item.kind, item)
        same = replace(item, content=begun.content, values=begun.values)
        blocks.append(same if item.kind in kinds else item)
    return replace(trace, blocks=blocks)


def without(trace: Trace, *kinds: str) -> Trace:
    return replace(trace, blocks=[item for item in trace.blocks if item.kind not in kinds])


ZERO = {**FACTS, "gradients": "zero"}
MOVES = training()
# (the processes of a run, status, what did not move)
TRAINED: list[tuple[tuple[Trace, ...], str, tuple[str, ...]]] = [
    ((MOVES,), "pass", ()),
    ((still(MOVES, "parameter"),), "warn", ("no parameter changed",)),
    ((training(facts=ZERO),), "warn", ("every gradient was zero",)),
    (
        (still(training(facts=ZERO), "parameter", "loss"),),
        "warn",
        ("no parameter changed", "every gradient was zero", "the loss stayed 1"),
    ),
    # what is watched may be constant by construction, and a process may only help
    ((still(MOVES, "loss"),), "pass", ()),
    ((still(MOVES, "gradient"),), "pass", ()),
    ((MOVES, still(training(key="rank1", facts=ZERO), "parameter")), "pass", ()),
    # a frozen layer, a warm-up that begins at 0
    ((changed(still(MOVES, "parameter"), -3, flip(1)),), "pass", ()),
    # what was not recorded is no evidence
    ((without(MOVES, "gradient", "loss"),), "pass", ()),
    ((still(without(MOVES, "parameter"), "loss"),), "skip", ()),
    ((still(training(1, facts=ZERO), "parameter", "loss"),), "skip", ()),
]


@pytest.mark.parametrize(("traces", "status", "lines"), TRAINED)
def test_two_runs_in_which_nothing_moves_are_told_from_a_training(
    traces: tuple[Trace, ...], status: str, lines: tuple[str, ...]
) -> None:
    runs = tuple(run(f"deterministic-{number}", *traces) for number in (1, 2))
    facts = evidence(runs=runs, pair=runs)
    found = code.trains(facts)
    assert found.status == status
    if lines:
        assert found.message == f"in 3 steps {', '.join(lines)}"
        assert [item.text for item in found.evidence] == ["2 parameters: fc.weight, fc.bias"]
