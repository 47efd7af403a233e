"""The files that the runs opened, for `code/opened-files`, `data/undeclared-reads` and
`data/revisions`: which are source or settings and which are data, and whether the probe lists all
of them."""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Sequence

from repro_gate.checks.interface import Evidence, EvidenceLine, Finding, missing
from repro_gate.data.declared import data_path
from repro_gate.escape import counted
from repro_gate.runs.launch import RunResult
from repro_gate.trace.fields import Imported, Location, Opened

# Outside the checkout these suffixes are source or settings, which `code/opened-files` checks; any
# other file is data, which `data/undeclared-reads` checks.
SOURCE = (".py", ".pyi", ".so", ".pyd", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh")
MOST_LINES = 20  # files that are named one by one
IGNORED = "in the original checkout, but git ignores it, so no workspace has it"
COPY = "an installed copy, or another clone"
ORIGINAL = "in the original checkout, not in the run's own workspace"
# The probe's note if a process opened more files than it lists.
NOT_ALL = "opened-not-all"


def imported_from_elsewhere(
    evidence: Evidence, runs: Sequence[RunResult]
) -> dict[str, list[Imported]]:
    """Return the modules of the checkout that these runs imported from outside their workspaces, by
    the fault (COPY, ORIGINAL or IGNORED), sorted by name."""
    modules = defaultdict(list)
    imports = {item for run in runs for trace in run.traces for item in trace.imports}
    for item in sorted(imports, key=lambda item: item.module):
        place = misplaced(evidence, item.path) or ORIGINAL
        modules[COPY if item.distribution else place].append(item)
    return modules


def why_runs_are_unusable(evidence: Evidence, runs: Sequence[RunResult]) -> str:
    """Return why these runs do not show the behaviour of the code in their workspaces; empty if
    they do."""
    elsewhere = imported_from_elsewhere(evidence, runs)
    for module in elsewhere[COPY] or elsewhere[ORIGINAL]:
        return f"training imported {module.module} from {module.path}, not from its own workspace"
    for file in left_over(runs):
        return f"training read {file.path}, which an earlier run of this gate run made or changed"
    return ""


def left_over(runs: Sequence[RunResult]) -> dict[Opened, dict[str, None]]:
    """Return the files that a run read after an earlier run had made or changed them, with the
    names of the runs that read each."""
    readers = defaultdict[Opened, dict[str, None]](dict)
    for run in runs:
        for item in (item for trace in run.traces for item in trace.opened):
            if item.left:
                readers[item][run.name] = None
    return readers


def opened(evidence: Evidence) -> dict[str, Opened]:
    """Return each file that a run opened and no earlier run had made, by its path. It names the
    line of the workspace that opened it, if there is one."""
    files = dict[str, Opened]()
    for item in (item for trace in evidence.traces for item in trace.opened):
        is_old = not (item.left or item.sought)
        if is_old and (item.path not in files or not files[item.path].by):
            files[item.path] = item
    return files


def sought(evidence: Evidence) -> dict[str, Location | None]:
    """Return what the runs looked for in their workspaces without finding a file there, with the
    line that did: absent files, and folders that were listed."""
    return {
        item.path: item.by
        for trace in evidence.traces
        for item in trace.opened
        if item.sought
    }


def unlisted(evidence: Evidence) -> list[str]:
    """Return the probe's notes on processes that opened more files than it lists."""
    notes = {note for trace in evidence.traces for note in trace.notes}
    return sorted(text for name, text in notes if name == NOT_ALL)


def missing_files(
    evidence: Evidence, files: Sequence[tuple[Opened, str]], message: str, remedy: str
) -> Finding | None:
    """Return the finding on faulty files, each with its fault, or on an incomplete list of opened
    files; None if there is neither. A line names each file, or if there are many, each folder with
    its number of files."""
    notes = unlisted(evidence)
    if not files and not notes:
        return None
    groups = defaultdict(list)
    for item, fault in files:
        place = posixpath.dirname(item.path) if len(files) > MOST_LINES else item.path
        groups[place, fault].append(item)
    lines = []
    for (place, fault), items in sorted(groups.items()):
        name = f"{place or '.'}/: {counted(len(items), 'file')}"
        name = items[0].path if len(items) == 1 else name
        places = {item.by for item in items}
        location = places.pop() if len(places) == 1 else None
        text = f"opens {name}" if location else name
        lines.append(EvidenceLine(f"{text}: {fault}" if fault else text, location))
    if not files:
        message = "training opened more files than the probe lists"
    return missing(message, (*lines, *notes), remedy)


def is_source(path: str) -> bool:
    """Return whether a file outside the checkout is source or settings, not data."""
    return path.lower().endswith(SOURCE)


def declared_paths(evidence: Evidence) -> Iterator[str]:
    """Yield the paths of declared data relative to the checkout's root, as in a workspace."""
    for item in evidence.spec.data:
        yield os.path.relpath(data_path(item, evidence.folder), evidence.root)


def misplaced(evidence: Evidence, path: str) -> str:
    """Return the fault of a file that is outside the workspace but in the original checkout; empty
    if it is outside both."""
    inside = os.path.relpath(path, evidence.root)
    tracked = evidence.tracked
    if inside.startswith(".."):
        return ""
    is_known = (
        tracked is None or inside in tracked or inside in evidence.checkout.uncommitted
    )
    return ORIGINAL if is_known else IGNORED
