"""Checks of category `code`: is what ran known, and would it run from a fresh clone?"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator

from repro_gate.checkout.inspection import lfs_pointers, submodules
from repro_gate.checks.ignored import files_of_this_machine
from repro_gate.checks.interface import (
    CHECKOUT,
    GIT,
    PAIR,
    TRACED,
    Evidence,
    Finding,
    check,
    failed,
    missing,
    noticed,
    passed,
    skipped,
)
from repro_gate.checks.opened import (
    COPY,
    ORIGINAL,
    declared_paths,
    imported_from_elsewhere,
    is_source,
    misplaced,
    missing_files,
    opened,
)
from repro_gate.compare.distances import losses_of
from repro_gate.compare.traces import processes
from repro_gate.escape import counted, listed
from repro_gate.files import is_below
from repro_gate.runs.launch import SNIPPET
from repro_gate.trace.model import Trace

_UPDATE = "run `git submodule update --init --recursive`"
_UNTRACKED = "not tracked by git"
_DATA = "data that git does not track"
_OUTSIDE = "outside the checkout"


@check("code/commit", "The checkout is at a commit.", CHECKOUT)
def commit_known(evidence: Evidence) -> Finding:
    """Check that there is a commit: without one nobody can check out the code of a result."""
    commit = evidence.checkout.commit
    if commit is None:
        return missing(
            "the code is in no git commit, so nobody can check out what ran",
            (str(evidence.root),),
            "run `git init && git add -A && git commit`",
        )
    return passed(f"the code is commit {commit[:12]}", (commit,))


@check("code/clean", "Nothing in the checkout is uncommitted.", CHECKOUT)
def tree_clean(evidence: Evidence) -> Finding:
    """Check for uncommitted paths. Git-ignored files do not count: no workspace has them."""
    if evidence.checkout.commit is None:
        return skipped("there is no commit to compare the tree with")
    if paths := evidence.checkout.uncommitted:
        return missing(
            f"{counted(len(paths), 'uncommitted path', 'are')} part of what runs",
            paths,
            "commit them, or add them to .gitignore if training does not need them",
        )
    return passed("nothing is uncommitted")


@check(
    "code/submodules",
    "The files of every submodule are there, at the commit that the checkout records.",
    GIT,
)
def submodules_present(evidence: Evidence) -> Finding:
    """Another commit than the recorded one is a fault; one that is not there is missing."""
    recorded = submodules(evidence.root)
    if not recorded:
        return skipped("the checkout has no submodules")
    moved = [
        f"{item.path}: recorded {item.recorded[:12]}, found {item.actual[:12]}"
        for item in recorded
        if item.actual is not None and item.actual != item.recorded
    ]
    if moved:
        return failed(
            f"{counted(len(moved), 'submodule', 'are')} at another commit than the recorded one",
            moved,
            f"{_UPDATE}, or `git add` a submodule that you moved on purpose",
        )
    absent = [
        f"{item.path}: not initialised" for item in recorded if item.actual is None
    ]
    if absent:
        return missing(
            f"the files of {counted(len(absent), 'submodule')} are absent",
            absent,
            f"{_UPDATE} (actions/checkout: `submodules: recursive`)",
        )
    return passed(
        f"{counted(len(recorded), 'submodule', 'are')} at the recorded commit",
        [f"{item.path} {item.recorded}" for item in recorded],
    )


@check("code/lfs", "No tracked file is a Git LFS pointer in place of its content.", GIT)
def lfs_resolved(evidence: Evidence) -> Finding:
    """Check for pointers among the files that git's attributes assign to LFS; any other pointer may
    be intended (a test's fixture)."""
    pointers = lfs_pointers(evidence.root)
    if pointers:
        return missing(
            f"{counted(len(pointers), 'file', 'are')} a Git LFS pointer without the content",
            pointers,
            "run `git lfs pull` (actions/checkout: `lfs: true`)",
        )
    return passed("no tracked file is a Git LFS pointer")


@check(
    "code/spec-tracked",
    "The spec itself is tracked by git, so that a change to it is reviewed.",
    GIT,
)
def spec_tracked(evidence: Evidence) -> Finding:
    """Check that git tracks the spec; `code/clean` reports whether it was modified."""
    path = os.path.relpath(evidence.folder / evidence.spec.path.name, evidence.root)
    if path in (evidence.tracked or ()):
        return passed(f"{path} is tracked", (path,))
    return missing(
        f"{path} is not tracked by git, so nobody reviews a change to it",
        (path,),
        f"run `git add {path}` and commit it",
    )


@check(
    "code/pristine-workspace",
    "The command ran to its end from a fresh copy of the checkout, so nothing that git ignores was "
    "needed.",
)
def pristine_workspace(evidence: Evidence) -> Finding:
    """Check how the runs ended: each starts in a new copy of the files that git sees, and a crash
    may name a file that only this machine has."""
    absent = files_of_this_machine(evidence)
    if absent:
        first = os.path.relpath(evidence.root / next(iter(absent)), evidence.folder)
        return failed(
            f"a run crashed because {counted(len(absent), 'file', 'are')} in this "
            "checkout but in no clone: not tracked by git",
            [f"{path} (not found by {name})" for path, name in absent.items()],
            f"track it with git, declare it under `data:` (`- path: {json.dumps(first)}`), or "
            "create it in train.run",
        )
    bad = [f"{run.name}: {run.problem}" for run in evidence.runs if not run.good]
    count = len(evidence.runs)
    if len(bad) == count:
        return skipped("no run ran to its end", bad[:3])
    ended = f"{count - len(bad)} of {counted(count, 'run')} ran to the end"
    return passed(f"{ended} in a fresh copy of the checkout", bad[:3])


@check(
    "code/imports-checkout",
    "Every module of the checkout that training imported came from the run's own workspace.",
    TRACED,
)
def imports_checkout(evidence: Evidence) -> Finding:
    """Check, at the end of each process, for modules from the original checkout or from an
    installed copy of its packages."""
    elsewhere = imported_from_elsewhere(evidence, evidence.runs)
    lines = [
        f"{item.module}: {item.path}, {why}"
        for why, items in elsewhere.items()
        for item in items
    ]
    if COPY in elsewhere:
        names = " ".join(sorted({item.distribution for item in elsewhere[COPY]}))
        return failed(
            f"training imported another copy of the checkout's packages ({names}), not the code "
            "under test",
            lines,
            "install it as a link to the checkout (`pip install -e .`), or `pip uninstall "
            f"{names}` if the command works without it",
        )
    if ORIGINAL in elsewhere:
        return failed(
            f"training imported {counted(len(elsewhere[ORIGINAL]), 'module')} from the original "
            "checkout instead of the run's own workspace",
            lines,
            "use no absolute path of the checkout in sys.path, PYTHONPATH or the command: "
            "relative paths lead to the workspace",
        )
    if elsewhere:
        return missing(
            f"training imported {counted(len(lines), 'module')} that git ignores: no clone has "
            "that, and no hash covers it",
            lines,
            "build them in `train.run`, install them as a package of the lockfile, or rebuild them "
            "before each gate run",
        )
    return passed(
        "all modules of the checkout that training imported came from the run's own workspace"
    )


@check(
    "code/opened-files",
    "Every source and settings file that training opened is tracked, or belongs to the "
    "interpreter.",
)
def opened_files(evidence: Evidence) -> Finding:
    """Check the files seen by Python's audit hook. Declared data belongs to the checks of
    `data`."""
    files = opened(evidence).values()
    if not files:
        return skipped("no run recorded a file that it opened")
    # `code/imports-checkout` names them
    imported = {item.path for trace in evidence.traces for item in trace.imports}
    tracked = evidence.tracked
    declared = [*declared_paths(evidence)]
    faults = []
    for item in files:
        is_code = is_source(item.path)
        fault = ""
        if not item.inside:
            fault = (misplaced(evidence, item.path) or _OUTSIDE) if is_code else ""
        elif not (
            tracked is None
            or item.path in tracked
            or posixpath.basename(item.path) == SNIPPET
            or is_below(item.path, declared)
        ):
            fault = _UNTRACKED if is_code else _DATA
        if fault and item.path not in imported:
            faults.append((item, fault))
    finding = missing_files(
        evidence,
        faults,
        f"training opened {counted(len(faults), 'file')} that a clone does not have",
        "`git add` what a clone needs, open the checkout's own files by relative paths, create "
        "git-ignored files in `train.run`, install code from outside as a package of the "
        "lockfile, and declare data under `data:` (`data: [{path: …}]`)",
    )
    if finding is not None:
        return finding
    count = sum(item.inside for item in files)
    if tracked is None:
        return skipped(
            f"without git it is unknown which of {counted(count, 'file')} of the folder a clone "
            "has; no file outside it is source"
        )
    return passed(
        f"{counted(count, 'opened file', 'are')} of the checkout and tracked; "
        f"{len(files) - count} of elsewhere, none of which is source or settings"
    )


@check(
    "code/trains",
    "Something moved in the steps compared: a parameter changed, and not every gradient was zero.",
    PAIR,
)
def trains(evidence: Evidence) -> Finding:
    """Check that something moves, since two runs in which nothing happens are identical too. What
    was not recorded is no evidence. A constant loss alone is none either: what a gradient is taken
    of need not be the loss that is watched (`loss / loss.detach()`)."""
    traces = processes(evidence.pair[0].traces).values()
    steps = max((len(trace.steps) for trace in traces), default=0)
    if steps < 2:
        return skipped("one step was compared, which does not show that anything moves")
    changes = {changed for trace in traces for changed in _changes(trace)}
    still = ["no parameter changed"] if changes == {False} else []
    if {trace.facts.get("gradients") for trace in traces} == {"zero"}:
        still.append("every gradient was zero")
    losses = {value for trace in traces for value in losses_of(trace).values()}
    if still and len(losses) == 1:
        still.append(f"the loss stayed {losses.pop():.6g}")
    if still:
        blocks = (
            block
            for trace in traces
            for block in trace.blocks
            if block.kind == "parameter"
        )
        names = {row[0]: None for block in blocks for row in block.rows}
        return noticed(
            f"in {steps} steps {', '.join(still)}",
            (f"{counted(len(names), 'parameter')}: {listed([*names], 10)}",),
            "check that the optimizer has the model's parameters, that the loss depends on them, "
            "and that the learning rate is not 0; or compare more steps",
        )
    if not changes:
        return skipped("no parameter was recorded twice")
    return passed(f"in {steps} steps parameters changed")


def _changes(trace: Trace) -> Iterator[bool]:
    """Yield whether a parameter had changed each time it was recorded again, up to the first
    change."""
    before = dict[str, bytes]()
    for block in trace.blocks:
        for name, digest in block.items() if block.kind == "parameter" else ():
            if before.setdefault(name, digest) != digest:
                yield True
                return
            if block.step > trace.blocks[0].step:
                yield False
