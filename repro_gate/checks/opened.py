"""What the runs opened, as `code/opened-files`, `data/undeclared-reads` and `data/revisions` look
at it: which of it is the program and its settings and which is data, and whether the probe lists
all of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from repro_gate.checks.interface import (
    Evidence,
    EvidenceLine,
    Finding,
    missing,
    traces_of,
)
from repro_gate.data.declared import data_path
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import FIRST, SECOND
from repro_gate.trace.fields import Imported, Opened

# Outside the checkout these are source or settings, which `code/opened-files` judges; any other
# file is data, for `data/undeclared-reads`.
SOURCE = frozenset(
    {".py", ".pyi", ".so", ".pyd", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh"}
)
MOST_LINES = 20  # files that are named one by one
ABSOLUTE = (
    "opened in the original checkout, by an absolute path, instead of in the workspace"
)
IGNORED = "in the original checkout, and git ignores it: no workspace has it"
COPY = "a copy that was installed, or another clone"
ORIGINAL = "in the original checkout"
# the probe's note where a process opened more files than it lists
NOT_ALL = "opened-not-all"
_WORKSPACE = re.compile(  # in the temporary folder of one gate run
    rf"^/(?:.*?/)?repro-gate-[^/]+/(?:[^/]+/){{0,2}}?(?:{FIRST.workspace}|{SECOND.workspace})/"
)


def imported_from_elsewhere(
    evidence: Evidence, runs: Sequence[RunResult]
) -> dict[str, tuple[Imported, ...]]:
    """Return the modules of the checkout that these runs imported from elsewhere than their
    workspaces, by what is wrong with that (COPY, ORIGINAL or IGNORED) and by name."""
    modules: dict[str, list[Imported]] = {COPY: [], ORIGINAL: [], IGNORED: []}
    imports = {item for trace in traces_of(runs) for item in trace.imports}
    for item in sorted(imports, key=lambda item: item.module):
        is_ignored = misplaced(evidence, item.path) == IGNORED
        original = IGNORED if is_ignored else ORIGINAL
        modules[COPY if item.distribution else original].append(item)
    return {why: tuple(items) for why, items in modules.items() if items}


def why_runs_are_unusable(evidence: Evidence, runs: Sequence[RunResult]) -> str:
    """Return why the results of these runs are not those of the code in their workspaces; empty if
    nothing says so."""
    elsewhere = imported_from_elsewhere(evidence, runs)
    for module in elsewhere.get(COPY) or elsewhere.get(ORIGINAL, ()):
        return f"training imported {module.module} from {module.path}, not from its own workspace"
    for file in left_over(runs):
        return f"training read {file.path}, which an earlier run of this gate run made or changed"
    return ""


def left_over(runs: Sequence[RunResult]) -> dict[Opened, list[str]]:
    """Return the files that a run read and an earlier one had made or changed, with the names of
    the runs that read each."""
    readers = defaultdict[Opened, list[str]](list)
    for run in runs:
        for item in dict.fromkeys(
            item for trace in run.traces for item in trace.opened
        ):
            if item.left:
                readers[item].append(run.request.name)
    return readers


def opened(evidence: Evidence) -> dict[str, Opened]:
    """Return each file that a run opened and no earlier run had made, by its path; one that a line
    of the workspace opened says which."""
    files: dict[str, Opened] = {}
    for item in (item for trace in evidence.traces for item in trace.opened):
        if not item.left and (item.path not in files or not files[item.path].by):
            files[item.path] = item
    return files


def unlisted(evidence: Evidence) -> list[str]:
    """Return what the probe says if it does not list every file that a process opened."""
    notes = {note for trace in evidence.traces for note in trace.notes}
    return sorted(text for name, text in notes if name == NOT_ALL)


def missing_files(
    evidence: Evidence, files: Sequence[tuple[Opened, str]], message: str, remedy: str
) -> Finding | None:
    """Return the finding on files that are not in order, each with what is wrong, or on files of
    which the probe does not list all; None if all is well."""
    notes = unlisted(evidence)
    if not files and not notes:
        return None
    return missing(
        message if files else "training opened more files than the probe lists",
        (*folded(files), *notes),
        remedy or "declare the folders that hold many files under `data:`",
    )


def is_source(path: str) -> bool:
    """Return whether a file outside the checkout is what a program is made of, not what it learns
    from."""
    return posixpath.splitext(path)[1].lower() in SOURCE


def declared_paths(evidence: Evidence) -> Iterator[str]:
    """Yield declared data by its paths in the workspace, which are those relative to the checkout's
    root."""
    for item in evidence.spec.data:
        yield os.path.relpath(data_path(item, evidence.folder), evidence.root)


def is_below(path: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of these, or lies below one."""
    return any(
        path == place or path.startswith(f"{place.rstrip('/')}/") for place in places
    )


def from_root(path: str, folder: Path, root: Path) -> str:
    """Return a path that a run named, in its workspace or relative to `folder`, as one relative to
    the checkout's root."""
    own = _WORKSPACE.sub("", path)
    return os.path.relpath((folder if own == path else root) / own, root)


def misplaced(evidence: Evidence, path: str) -> str:
    """Return what is wrong with where a file outside the workspace lies; empty if it lies outside
    the original checkout as well."""
    inside = os.path.relpath(path, evidence.root)
    tracked = evidence.tracked
    if inside.startswith(".."):
        return ""
    is_known = tracked is None or inside in tracked or inside in evidence.uncommitted
    return ABSOLUTE if is_known else IGNORED


def folded(files: Iterable[tuple[Opened, str]]) -> list[EvidenceLine]:
    """Return a line for each file, with what is wrong with it; for many files a line for each of a
    few folders, with the number of files."""
    ordered = sorted(files, key=lambda file: file[0].path)
    deepest = max((item.path.count("/") for item, _ in ordered), default=0) + 1
    groups: dict[tuple[str, str], list[Opened]] = {}
    for parts in range(deepest, -1, -1):
        groups = defaultdict(list)
        for item, fault in ordered:
            groups["/".join(item.path.split("/")[:parts]), fault].append(item)
        if len(groups) <= MOST_LINES:
            break
    lines = []
    for (place, fault), items in groups.items():
        name = (
            items[0].path if len(items) == 1 else f"{place or '.'}/: {len(items)} files"
        )
        location = items[0].by if len({item.by for item in items}) == 1 else None
        text = name if location is None else f"opens {name}"
        lines.append(EvidenceLine(f"{text}: {fault}" if fault else text, location))
    return lines
