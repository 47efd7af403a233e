"""What the runs opened, as `code/opened-files`, `data/undeclared-reads` and `data/revisions` look
at it: which of it is the program and its settings and which is data, and whether the probe lists
all of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checks.interface import Evidence, EvidenceLine
from repro_gate.data.declared import data_path
from repro_gate.runs.launch import Run
from repro_gate.runs.variation import FIRST, SECOND
from repro_gate.trace.fields import Imported, Opened

# Outside the checkout these are source or settings, which `code/opened-files` judges; any other
# file is data, for `data/undeclared-reads`.
SOURCE = frozenset({".py", ".pyi", ".so", ".pyd", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh"})
MOST_LINES = 20  # files that are named one by one
ABSOLUTE = "opened in the original checkout, by an absolute path, instead of in the workspace"
IGNORED = "in the original checkout, and git ignores it: no workspace has it"
NOT_ALL = "opened-not-all"  # the probe's note where a process opened more files than it lists
_WORKSPACE = re.compile(  # in the temporary folder of one gate run
    rf"^/(?:.*?/)?repro-gate-[^/]+/(?:[^/]+/){{0,2}}?(?:{FIRST.workspace}|{SECOND.workspace})/"
)


@dataclass(frozen=True)
class Elsewhere:
    """Modules of the checkout that did not come from a workspace, by their names: from an installed
    copy, from files of the original checkout that git ignores, and from its other files."""

    copies: list[Imported]
    ignored: list[Imported]
    others: list[Imported]


def told(items: Sequence[Imported]) -> list[str]:
    """A line for each module."""
    copy, original = "a copy that was installed, or another clone", "in the original checkout"
    return [
        f"{item.module}: {item.path}, {copy if item.distribution else original}" for item in items
    ]


def imported_from_elsewhere(evidence: Evidence, runs: Sequence[Run]) -> Elsewhere:
    """What these runs imported from elsewhere than their workspaces."""
    found = {item for run in runs for trace in run.traces for item in trace.imports}
    seen = {
        os.path.join(evidence.root, path)
        for path in (*(evidence.tracked or ()), *evidence.uncommitted)
    }
    elsewhere = Elsewhere([], [], [])
    for item in sorted(found, key=lambda item: item.module):
        is_ignored = evidence.tracked is not None and item.path not in seen
        kind = elsewhere.ignored if is_ignored else elsewhere.others
        (elsewhere.copies if item.distribution else kind).append(item)
    return elsewhere


def unsound(evidence: Evidence, runs: Sequence[Run]) -> str:
    """Why the results of these runs are not those of the code in their workspaces; empty where
    nothing says so."""
    found = imported_from_elsewhere(evidence, runs)
    wrong = (*found.copies, *found.others)
    if wrong:
        return (
            f"training imported {wrong[0].module} from {wrong[0].path}, not from its own workspace"
        )
    left = next(iter(left_over(runs)), None)
    return (
        f"training read {left.path}, which an earlier run of this gate run made or changed"
        if left
        else ""
    )


def left_over(runs: Sequence[Run]) -> dict[Opened, list[str]]:
    """The files that a run read and an earlier one had made or changed, with the names of the runs
    that read each."""
    found: dict[Opened, list[str]] = {}
    for run in runs:
        for item in dict.fromkeys(
            item for trace in run.traces for item in trace.opened if item.left
        ):
            found.setdefault(item, []).append(run.plan.name)
    return found


def opened(evidence: Evidence) -> dict[str, Opened]:
    """Each file that a run opened and no earlier run had made, by its path; one that a line of the
    workspace opened says which."""
    found: dict[str, Opened] = {}
    for run in evidence.runs:
        for trace in run.traces:
            for item in trace.opened:
                if not item.left and (item.path not in found or not found[item.path].by):
                    found[item.path] = item
    return found


def unlisted(evidence: Evidence) -> tuple[str, ...]:
    """What the probe says where it does not list every file that a process opened."""
    return tuple(
        sorted(
            {
                text
                for run in evidence.runs
                for trace in run.traces
                for name, text in trace.notes
                if name == NOT_ALL
            }
        )
    )


def is_source(path: str) -> bool:
    """Whether a file outside the checkout is what a program is made of, not what it learns from."""
    return posixpath.splitext(path)[1].lower() in SOURCE


def declared_paths(evidence: Evidence) -> Iterator[str]:
    """Declared data by its paths in the workspace, which are those relative to the checkout's
    root."""
    if evidence.checkout is not None:
        for item in evidence.spec.data:
            yield os.path.relpath(
                data_path(item, Path(os.path.realpath(evidence.spec.path.parent))),
                evidence.checkout.root,
            )


def in_workspace(path: str) -> str:
    """The path without the temporary folder of the run's workspace in front; any other path as it
    is."""
    return _WORKSPACE.sub("", path)


def misplaced(evidence: Evidence, item: Opened) -> str:
    """What is wrong with where a file outside the workspace lies; empty where it lies outside the
    original checkout as well."""
    inside = os.path.relpath(item.path, evidence.root)
    if item.inside or inside.startswith(".."):
        return ""
    known = evidence.tracked is None or inside in evidence.tracked or inside in evidence.uncommitted
    return ABSOLUTE if known else IGNORED


def folded(files: Sequence[tuple[Opened, str]]) -> list[EvidenceLine]:
    """A line for each file, with what is wrong with it; for many files a line for each of a few
    folders, with the number of files."""
    groups = {(item.path, why): [item] for item, why in sorted(files, key=lambda one: one[0].path)}
    level = max((item.path.count("/") for item, _ in files), default=0)
    while len(groups) > MOST_LINES and level >= 0:
        groups = {}
        for item, why in sorted(files, key=lambda one: one[0].path):
            folder = "/".join(posixpath.dirname(item.path).split("/")[: level + 1])
            groups.setdefault((f"{folder or '.'}/", why), []).append(item)
        level -= 1
    lines = []
    for (place, why), items in groups.items():
        by = {item.by for item in items}
        name = items[0].path if len(items) == 1 else f"{place}: {len(items)} files"
        at = by.pop() if len(by) == 1 else None
        text = f"opens {name}" if at is not None else name
        lines.append(EvidenceLine(f"{text}: {why}" if why else text, at))
    return lines
