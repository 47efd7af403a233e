"""What the runs opened, as `code/opened-files`, `data/undeclared-reads` and `data/revisions` look at it: which of it is the program and
its settings and which is data, and whether the probe lists all of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checks.interface import Evidence
from repro_gate.data.declared import data_path
from repro_gate.runs.launch import Run
from repro_gate.trace.reader import Imported, Opened

# Outside the checkout these are source or settings, which `code/opened-files` judges; any other file is data, for `data/undeclared-reads`.
SOURCE = frozenset({".py", ".pyi", ".so", ".pyd", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh"})
NOT_ALL = "opened-not-all"  # the probe's note where a process opened more files than it lists
_WORKSPACE = re.compile(r"^/(?:.*?/)?repro-gate-[^/]+/(?:[^/]+/){0,2}?workspace/")  # in the temporary folder of one gating


@dataclass(frozen=True)
class Elsewhere:
    """Modules of the checkout that did not come from a workspace: from an installed copy, from files of the original checkout that git
    ignores, and from its other files."""

    copies: tuple[Imported, ...]
    ignored: tuple[Imported, ...]
    others: tuple[Imported, ...]

    @staticmethod
    def told(items: Sequence[Imported]) -> list[str]:
        """A line for each, in the order of their names."""
        why = {True: "a copy that was installed", False: "in the original checkout"}
        return [f"{item.module}: {item.path}, {why[bool(item.distribution)]}" for item in sorted(items, key=lambda item: item.module)]


def imported_from_elsewhere(evidence: Evidence, runs: Sequence[Run]) -> Elsewhere:
    """What these runs imported from elsewhere than their workspaces."""
    found = dict.fromkeys(item for run in runs for trace in run.traces for item in trace.imports)
    copies = tuple(item for item in found if item.distribution)
    own = [item for item in found if not item.distribution]
    seen = {os.path.join(evidence.root, path) for path in (*(evidence.tracked or ()), *evidence.uncommitted)}
    ignored = tuple(item for item in own if evidence.tracked is not None and item.path not in seen)
    return Elsewhere(copies, ignored, tuple(item for item in own if item not in ignored))


def unsound(evidence: Evidence, runs: Sequence[Run]) -> str:
    """Why the results of these runs are not those of the code in their workspaces; empty where nothing says so."""
    found = imported_from_elsewhere(evidence, runs)
    wrong = (*found.copies, *found.others)
    return f"training imported {wrong[0].module} from {wrong[0].path}, not from its own workspace" if wrong else ""


def opened(evidence: Evidence) -> dict[str, Opened]:
    """Each file that a run opened, by its path; one that a line of the workspace opened says which."""
    found: dict[str, Opened] = {}
    for run in evidence.runs:
        for trace in run.traces:
            for item in trace.opened:
                if item.path not in found or not found[item.path].by:
                    found[item.path] = item
    return found


def unlisted(evidence: Evidence) -> tuple[str, ...]:
    """What the probe says where it does not list every file that a process opened."""
    return tuple(sorted({text for run in evidence.runs for trace in run.traces for name, text in trace.notes if name == NOT_ALL}))


def is_source(path: str) -> bool:
    """Whether a file outside the checkout is what a program is made of, not what it learns from."""
    return posixpath.splitext(path)[1].lower() in SOURCE


def declared_paths(evidence: Evidence) -> Iterator[str]:
    """Declared data by its paths in the workspace, which are those relative to the checkout's root."""
    if evidence.checkout is not None:
        for item in evidence.spec.data:
            yield os.path.relpath(data_path(item, Path(os.path.realpath(evidence.spec.path.parent))), evidence.checkout.root)


def in_workspace(path: str) -> str:
    """The path without the temporary folder of the run's workspace in front; any other path as it is."""
    return _WORKSPACE.sub("", path)


def with_line(item: Opened) -> str:
    """`path (opened by file:line)`, as far as the line is known."""
    return f"{item.path} (opened by {item.by})" if item.by else item.path
