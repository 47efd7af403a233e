"""Checks of category `code`: is what ran known, and would it run from a fresh clone?"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re

from repro_gate.checkout.inspection import lfs_pointers, submodules
from repro_gate.checks.ignored import files_of_this_machine
from repro_gate.checks.interface import (
    CHECKOUT,
    GIT,
    TRACED,
    Evidence,
    Finding,
    check,
    failed,
    missing,
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
from repro_gate.files import Unreadable, is_below, read_text
from repro_gate.runs.launch import SNIPPET

_LICENCE = re.compile(r"(?:(?:un)?licen[cs]es?|copying)(?:[-._ ].*)?", re.IGNORECASE)
# the field of a project in pyproject.toml, of whichever tool
_FIELD = re.compile(
    r"""^\s*(?:["']?license["']?\s*=\s*(?:\{\s*text\s*=\s*)?["'][^"']|\[project\.license\])""",
    re.MULTILINE,
)
_PROJECT_BYTES = 1024 * 1024
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
    if evidence.checkout.uncommitted:
        return missing(
            f"{len(evidence.checkout.uncommitted)} uncommitted paths are part of what runs",
            evidence.checkout.uncommitted,
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
            f"{len(moved)} submodules are at another commit than the recorded one",
            moved,
            f"{_UPDATE}, or `git add` a submodule that you moved on purpose",
        )
    absent = [
        f"{item.path}: not initialised" for item in recorded if item.actual is None
    ]
    if absent:
        return missing(
            f"the files of {len(absent)} submodules are absent",
            absent,
            f"{_UPDATE} (actions/checkout: `submodules: recursive`)",
        )
    return passed(
        f"{len(recorded)} submodules are at their recorded commits",
        [f"{item.path} {item.recorded}" for item in recorded],
    )


@check("code/lfs", "No tracked file is a Git LFS pointer in place of its content.", GIT)
def lfs_resolved(evidence: Evidence) -> Finding:
    """Check for pointers among the files that git's attributes assign to LFS; any other pointer may
    be intended (a test's fixture)."""
    pointers = lfs_pointers(evidence.root)
    if pointers:
        return missing(
            f"{len(pointers)} files are Git LFS pointers without their content",
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
    "code/licence",
    "The checkout says under which licence its code may be run again.",
    CHECKOUT,
)
def licence(evidence: Evidence) -> Finding:
    """Check for a file with a usual name, or pyproject's `license`, at the root or in the spec's
    folder. The content of the licence is not checked."""
    root = evidence.root
    tracked = evidence.tracked
    folders = dict.fromkeys((root, evidence.folder))
    for path in (path for folder in folders for path in sorted(folder.glob("*"))):
        is_stated = _LICENCE.fullmatch(path.name)
        if path.name == "pyproject.toml":
            with contextlib.suppress(Unreadable):
                is_stated = _FIELD.search(read_text(path, root, _PROJECT_BYTES))
        # The path may be a file, or a folder of files (LICENSES of the REUSE convention).
        for item in (path, *path.glob("*")) if is_stated else ():
            name = os.path.relpath(item, root)
            is_known = tracked is None or name in tracked
            if is_known and item.is_file() and item.stat().st_size > 0:
                return passed(f"{name} states the licence", (name,))
    return missing(
        "there is no licence file, and pyproject.toml names none",
        [
            f"{folder}: neither a licence file nor `license` in pyproject.toml"
            for folder in folders
        ],
        "add a LICENSE file at the root, or `license` to pyproject.toml",
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
            f"a run crashed because {len(absent)} files are in this checkout but in no clone: git "
            "does not track them",
            [f"{path} (not found by {name})" for path, name in absent.items()],
            f"track it with git, declare it under `data:` (`- path: {json.dumps(first)}`), or "
            "create it in train.run",
        )
    bad = [f"{run.name}: {run.problem}" for run in evidence.runs if not run.good]
    count = len(evidence.runs)
    if len(bad) == count:
        return skipped("no run ran to its end", bad[:3])
    ended = f"{count - len(bad)} of {count} runs ran to their end"
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
            f"training imported {len(elsewhere[ORIGINAL])} modules from the original checkout "
            "instead of the run's own workspace",
            lines,
            "use no absolute path of the checkout in sys.path, PYTHONPATH or the command: "
            "relative paths lead to the workspace",
        )
    if elsewhere:
        return missing(
            f"training imported {len(lines)} modules that git ignores, so no clone has them and no "
            "hash covers them",
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
        f"training opened {len(faults)} files that a clone of the checkout does not have",
        "`git add` what a clone needs, open the checkout's own files by relative paths, create "
        "git-ignored files in `train.run`, install code from outside as a package of the "
        "lockfile, and declare data under `data:` (`data: [{path: …}]`)",
    )
    if finding is not None:
        return finding
    count = sum(item.inside for item in files)
    if tracked is None:
        return skipped(
            f"without git it is unknown which of {count} files of the folder a clone has; no file "
            "outside it is source"
        )
    return passed(
        f"{count} files of the checkout that training opened are tracked; none of "
        f"{len(files) - count} others is source or settings"
    )
