"""What the runs opened, as `code/opened-files`, `data/undeclared-reads` and `data/revisions` look at it: which of it is the program and
its settings and which is data, and whether the probe lists all of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from repro_gate.checks.interface import Evidence
from repro_gate.data.declared import data_path
from repro_gate.trace.reader import Opened

# Outside the checkout these are source or settings, which `code/opened-files` judges; any other file is data, for `data/undeclared-reads`.
SOURCE = frozenset({".py", ".pyi", ".so", ".pyd", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh"})
NOT_ALL = "opened-not-all"  # the probe's note where a process opened more files than it lists
_WORKSPACE = re.compile(r"^/(?:.*?/)?repro-gate-[^/]+/(?:[^/]+/){0,2}?workspace/")  # in the temporary folder of one gating


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
