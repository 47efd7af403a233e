"""Checks of category `code`: is what ran known, and would it run from a fresh clone?"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from repro_gate.checkout.contents import lfs_pointers, submodules
from repro_gate.checks.interface import (
    CHECKOUT,
    Evidence,
    Finding,
    check,
    failed,
    missing,
    passed,
    skipped,
)
from repro_gate.checks.opened import (
    ABSOLUTE,
    IGNORED,
    declared_paths,
    folded,
    imported_from_elsewhere,
    in_workspace,
    is_source,
    misplaced,
    opened,
    told,
    unlisted,
)
from repro_gate.files import Unreadable, is_inside, parse_toml, read_text
from repro_gate.runs.launch import SNIPPET
from repro_gate.trace.fields import Opened

_LICENCE = re.compile(r"(?:(?:un)?licen[cs]es?|copying)(?:[-._ ].*)?", re.IGNORECASE)
_PROJECT_BYTES = 1024 * 1024
_UNTRACKED, _DATA, _OUTSIDE = (
    "not tracked by git",
    "data that git does not track",
    "outside the checkout",
)
_QUOTED = r"(?:'([^'\n]{1,1000})'|\"([^\"\n]{1,1000})\")"
_ABSENT = re.compile(  # a whole line that says which file is not there
    rf"(?:\[rank\d{{1,6}}\]: )?[\w.]{{0,200}}(?:Error|Exception): .{{0,200}}?No such file or "
    rf"directory: {_QUOTED}"
    rf"(?:(?: -> |; ).*)?|\S{{1,200}}: can't open file {_QUOTED}: \[Errno 2\] No such file or "
    r"directory"
    r"|(?:OSError|ImportError): (\S{1,1000}): cannot open shared object file: No such file or "
    r"directory"
)
_REMEDIES = {  # what to do about a file that training opened, by what is wrong with it
    _UNTRACKED: "`git add` what is not tracked",
    _DATA: "declare data under `data:` (`data: [{path: …}]`), or `git add` it",
    ABSOLUTE: "open the checkout's own files by relative paths",
    IGNORED: "let `train.run` make what git ignores, or declare it under `data:`",
    _OUTSIDE: "install what lies outside as a package of the lockfile, or declare it under `data:`",
}


@check("code/commit", "The checkout is at a commit.", CHECKOUT)
def commit_known(evidence: Evidence) -> Finding:
    """A result belongs to a commit, or nobody can check out what gave it."""
    if evidence.commit is None:
        message = "the code is in no git commit, so nobody can check out what ran"
        return missing(message, (str(evidence.root),), "run `git init && git add -A && git commit`")
    return passed(f"the code is commit {evidence.commit[:12]}", (evidence.commit,))


@check("code/clean", "Nothing in the checkout is uncommitted.", CHECKOUT)
def tree_clean(evidence: Evidence) -> Finding:
    """What git ignores does not count: it is not copied into the workspaces."""
    if evidence.commit is None:
        return skipped("there is no commit to compare the tree with")
    if evidence.uncommitted:
        remedy = "commit them, or add them to .gitignore if training does not need them"
        return missing(
            f"{len(evidence.uncommitted)} uncommitted paths are part of what runs",
            evidence.uncommitted,
            remedy,
        )
    return passed("nothing is uncommitted")


@check(
    "code/submodules",
    "The files of every submodule are there, at the commit that the checkout records.",
    CHECKOUT,
)
def submodules_present(evidence: Evidence) -> Finding:
    """Another commit than the recorded one is a fault; one that is not there is missing."""
    if evidence.checkout is None or not evidence.checkout.is_git:
        return skipped("there is no git repository")
    found = submodules(evidence.checkout.root)
    if not found:
        return skipped("the checkout has no submodules")
    moved = [item for item in found if item.actual is not None and item.actual != item.recorded]
    remedy = "run `git submodule update --init --recursive`"
    if moved:
        lines = [
            f"{item.path}: recorded {item.recorded[:12]}, found {(item.actual or 'no commit')[:12]}"
            for item in moved
        ]
        message = f"{len(moved)} submodules are at another commit than the recorded one"
        remedy = f"{remedy}, or `git add {moved[0].path}` if the move is meant"
        return failed(message, lines, remedy)
    absent = [f"{item.path}: not initialised" for item in found if item.actual is None]
    if absent:
        remedy = f"{remedy} (actions/checkout: `submodules: recursive`)"
        return missing(f"the files of {len(absent)} submodules are not there", absent, remedy)
    return passed(
        f"{len(found)} submodules are at their recorded commits",
        [f"{item.path} {item.recorded}" for item in found],
    )


@check("code/lfs", "No tracked file is a Git LFS pointer in place of its content.", CHECKOUT)
def lfs_resolved(evidence: Evidence) -> Finding:
    """A pointer that git's attributes do not give to LFS may be meant as it is (a test's
    fixture)."""
    if evidence.checkout is None or not evidence.checkout.is_git:
        return skipped("there is no git repository")
    found = lfs_pointers(evidence.checkout.root)
    if found:
        remedy = "run `git lfs pull` (actions/checkout: `lfs: true`)"
        message = f"{len(found)} files are Git LFS pointers, their content is not there"
        return missing(message, found, remedy)
    return passed("no tracked file is a Git LFS pointer")


@check(
    "code/spec-tracked",
    "The spec itself is tracked by git, so that a change to it is reviewed.",
    CHECKOUT,
)
def spec_tracked(evidence: Evidence) -> Finding:
    """Whether it was modified since the commit is for `code/clean` to say."""
    if evidence.tracked is None or evidence.checkout is None:
        return skipped("there is no git repository")
    path = os.path.relpath(evidence.folder / evidence.spec.path.name, evidence.checkout.root)
    if path not in evidence.tracked:
        return missing(
            f"{path} is not tracked by git, so nobody reviews a change to it",
            (path,),
            f"run `git add {path}` and commit it",
        )
    return passed(f"{path} is tracked", (path,))


@check("code/licence", "The checkout says under which licence its code may be run again.", CHECKOUT)
def licence(evidence: Evidence) -> Finding:
    """A file of the usual name, or pyproject's `license`, at the root or beside the spec. What the
    licence says is not judged."""
    root = evidence.root
    folders = dict.fromkeys((root, evidence.folder))
    found = next(
        (name for folder in folders for name in _licences(folder, root, evidence.tracked)), None
    )
    if found:
        return passed(f"{found} states the licence", (found,))
    remedy = "add a LICENSE file at the root, or `license` to pyproject.toml"
    looked = [
        f"{folder}: neither a licence file nor `license` in pyproject.toml" for folder in folders
    ]
    return missing("there is no licence file, and pyproject.toml names none", looked, remedy)


@check(
    "code/pristine-workspace",
    "The command ran to its end from a fresh copy of the checkout, so nothing that git ignores was "
    "needed.",
)
def pristine_workspace(evidence: Evidence) -> Finding:
    """Each run starts in a new copy of what git would see; a file that only this machine has is not
    in it, and a crash may name it."""
    bad = [run for run in evidence.runs if not run.good]
    absent = files_of_this_machine(evidence)
    if absent:
        message = (
            f"a run crashed for want of {len(absent)} files that are in this checkout and in no "
            "clone: git does not track them"
        )
        first = os.path.relpath(evidence.root / next(iter(absent)), evidence.folder)
        remedy = (
            f"track it with git, declare it under `data:` (`- path: {json.dumps(first)}`), or let "
            "train.run make it"
        )
        return failed(
            message, [f"{path} (not found by {name})" for path, name in absent.items()], remedy
        )
    good = len(evidence.runs) - len(bad)
    problems = tuple(f"{run.plan.name}: {run.problem}" for run in bad[:3])
    if not good:
        return skipped("no run came to its end", problems)
    ended = (
        f"each of {good} runs came to its end"
        if not bad
        else f"{good} of {len(evidence.runs)} runs came to their end"
    )
    return passed(f"{ended} in a fresh copy of {evidence.files} files", problems)


@check(
    "code/imports-checkout",
    "Every module of the checkout that training imported came from the run's own workspace.",
    traced=True,
)
def imports_checkout(evidence: Evidence) -> Finding:
    """Modules with a file in the original checkout, or in an installed copy of what the checkout
    holds, at the end of each process."""
    found = imported_from_elsewhere(evidence, evidence.runs)
    if found.copies:
        names = " ".join(sorted({item.distribution for item in found.copies}))
        message = (
            f"training imported another copy of what the checkout holds ({names}), not the code "
            "under test"
        )
        remedy = (
            "install it as a link to the checkout (`pip install -e .`), or `pip uninstall "
            f"{names}` if the command finds it without"
        )
        return failed(
            message,
            [*told(found.copies), *told(found.others), *told(found.ignored)],
            remedy,
        )
    if found.others:
        message = (
            f"training imported {len(found.others)} modules from the original checkout instead of "
            "the run's own workspace"
        )
        remedy = (
            "name no absolute path of the checkout in sys.path, PYTHONPATH or the command: "
            "relative paths find the workspace"
        )
        return failed(message, [*told(found.others), *told(found.ignored)], remedy)
    if found.ignored:
        message = (
            f"training imported {len(found.ignored)} modules that git ignores, so no clone has "
            "them and no hash covers them"
        )
        remedy = (
            "build them in `train.run`, install them as a package of the lockfile, or build them "
            "anew before each gate run"
        )
        return missing(message, told(found.ignored), remedy)
    return passed("what training imported of the checkout came from the run's own workspace")


@check(
    "code/opened-files",
    "Every source and settings file that training opened is tracked, or belongs to the "
    "interpreter.",
)
def opened_files(evidence: Evidence) -> Finding:
    """Seen by Python's audit hook. Declared data is for the checks of `data`."""
    seen = opened(evidence)
    if not seen:
        return skipped("no run recorded a file that it opened")
    inside = [item for item in seen.values() if item.inside]
    known = tuple(declared_paths(evidence))
    untracked = [item for item in inside if _is_untracked(item, evidence.tracked, known)]
    # `code/imports-checkout` names them
    imported = {
        item.path for run in evidence.runs for trace in run.traces for item in trace.imports
    }
    outside = [
        item
        for item in seen.values()
        if not item.inside and is_source(item.path) and item.path not in imported
    ]
    cut = unlisted(evidence)
    if untracked or outside:
        found = [(item, _UNTRACKED if is_source(item.path) else _DATA) for item in untracked] + [
            (item, misplaced(evidence, item) or _OUTSIDE) for item in outside
        ]
        data = sum(why == _DATA for _, why in found)
        counted = ((len(found) - data, "source or settings files"), (data, "files of data"))
        opened_ones = " and ".join(f"{count} {words}" for count, words in counted if count)
        message = f"training opened {opened_ones} that are not those of a clone of the checkout"
        wrong = {why for _, why in found}
        return missing(
            message,
            (*folded(found), *cut[:2]),
            "; ".join(_REMEDIES[why] for why in _REMEDIES if why in wrong),
        )
    if cut:
        message = "training opened more files than the probe lists, so not all were looked at"
        return missing(
            message,
            cut[:2],
            "declare the folders that hold many files under `data:`: what is declared is not "
            "listed",
        )
    if evidence.tracked is None:
        return skipped(
            f"without git nobody can tell which of {len(inside)} files of the folder a clone has; "
            "none outside it is source"
        )
    others = len(seen) - len(inside)
    return passed(
        f"{len(inside)} files of the checkout that training opened are tracked; none of {others} "
        "others is source or settings"
    )


def _is_untracked(item: Opened, tracked: frozenset[str] | None, declared: tuple[str, ...]) -> bool:
    if tracked is None or item.path in tracked or posixpath.basename(item.path) == SNIPPET:
        return False
    return not any(item.path == path or item.path.startswith(f"{path}/") for path in declared)


def _licences(folder: Path, root: Path, tracked: frozenset[str] | None) -> Iterator[str]:
    """What states a licence in `folder`, by its path from `root`; only tracked files count where
    git knows them. A folder counts as far as it holds such files (LICENSES of the REUSE
    convention)."""
    for path in sorted(folder.glob("*")):
        shown = os.path.relpath(path, root)
        inside = [path] if path.is_file() else path.glob("*") if path.is_dir() else ()
        named = path.name == "pyproject.toml" and _states_licence(path, root)
        if (named or _LICENCE.fullmatch(path.name)) and any(
            item.is_file()
            and item.stat().st_size > 0
            and (tracked is None or os.path.relpath(item, root) in tracked)
            for item in inside
        ):
            yield shown


def _states_licence(path: Path, root: Path) -> bool:
    try:
        document = parse_toml(read_text(path, root, _PROJECT_BYTES))
    except Unreadable:
        return False
    tool = document.get("tool")
    tables = [document.get("project"), tool.get("poetry") if isinstance(tool, dict) else None]
    stated = [table.get("license") for table in tables if isinstance(table, dict)]
    return any(
        (isinstance(item, str) and item.strip()) or (isinstance(item, dict) and item.get("text"))
        for item in stated
    )


def files_of_this_machine(evidence: Evidence) -> dict[str, str]:
    """Path from the checkout's root -> the crashed run that did not find it, of files that git
    neither tracks nor would copy, and no data declares. Empty without git: then everything was
    copied."""
    if evidence.checkout is None or evidence.tracked is None:
        return {}
    root = evidence.checkout.root
    known = (*declared_paths(evidence), *evidence.uncommitted, ".git")
    found: dict[str, str] = {}
    for run in evidence.runs:
        for path in _asked_for(run.ended.tail, evidence) if run.outcome == "crashed" else ():
            copied = path in evidence.tracked or any(
                path == item or path.startswith(item.rstrip("/") + "/") for item in known
            )
            if not copied and is_inside(root / path, root) and (root / path).is_file():
                found.setdefault(path, run.plan.name)
    return found


def _asked_for(tail: Sequence[str], evidence: Evidence) -> Iterator[str]:
    """Paths below the checkout's root that the lines say are not there. A log is free text, so only
    whole lines of a traceback, of the interpreter or of the dynamic loader count."""
    root = Path(os.path.realpath(evidence.root))
    folder = evidence.folder / evidence.spec.train.working_directory
    for line in tail:
        if found := _ABSENT.fullmatch(line.strip()):
            name = next(value for value in found.groups() if value is not None)
            own = in_workspace(name)
            path = os.path.normpath((root if own != name else folder) / own)
            if "\0" not in path and path.startswith(f"{root}/"):
                yield os.path.relpath(path, root)
