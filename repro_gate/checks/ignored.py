"""Data that git ignores: the checkout has it, no workspace does, and where a training names it,
that is the likeliest cause of its crash.

Nothing shows that a training asked whether a file is there, so the end of its log and its code are
read for the paths that they name. Both are untrusted: they are read within bounds, and what comes
of them is only shown.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from repro_gate.checkout.inspection import ignored_files
from repro_gate.checks.code import files_of_this_machine
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import declared_paths, in_workspace, is_source, opened
from repro_gate.files import Unreadable, is_inside, read_text
from repro_gate.runs.launch import Run

_MOST = 3  # paths that are named
_FILES, _BYTES = 50, 256 * 1024  # of the training's code that is read: files, and bytes of each
_WORDS = 20_000  # of the log, the command and these files together
_READ = (".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini")
_WORD = re.compile(r"[\"']([^\"'\n]{1,300})[\"']|([^\s\"'`()\[\]{},:;=<>|]{1,300})")
_NO_DATA = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|venv|[^/]*\.(?:pyc|egg-info|log))(?:/|$)"
)


def ignored_data(evidence: Evidence) -> dict[str, str]:
    """Path from the checkout's root -> where a crashed run names it (`train.py:12`), of what git
    ignores and the checkout has; what the log names comes first. Empty where a run came to its
    end."""
    crashed = next((run for run in evidence.runs if run.outcome == "crashed"), None)
    if crashed is None or evidence.tracked is None or any(run.good for run in evidence.runs):
        return {}
    if files_of_this_machine(evidence):  # `code/pristine-workspace` fails by them
        return {}
    root = evidence.root
    ignored = {name.rstrip("/") for name in ignored_files(root, ("",))}
    ignored = {name for name in ignored if not _NO_DATA.search(name)}
    copied = [
        path
        for path in (*evidence.tracked, *evidence.uncommitted)
        if not posixpath.basename(path).startswith(".")
    ]
    # with folders of which the workspaces have a .gitkeep at most
    lacking = ignored | (_above(ignored) - _above(copied))
    known = {*declared_paths(evidence), ".git"}
    found: dict[str, str] = {}
    for path, place in islice(_named(evidence, crashed), _WORDS):
        upwards = {path, *_above([path])}
        if upwards & (known | found.keys()) or path in _above(found) or is_source(path):
            continue
        if not (upwards & ignored or path in lacking) or "\0" in path:
            continue
        if (root / path).exists() and is_inside(root / path, root):
            found[path] = place
        if len(found) == _MOST:
            break
    return found


def _named(evidence: Evidence, crashed: Run) -> Iterator[tuple[str, str]]:
    """Each path that log, command or code name (what is quoted or has a slash in it), from the
    checkout's root, and where."""
    root, command = evidence.root, evidence.spec.train.run or ""
    folder = evidence.folder / evidence.spec.train.working_directory
    log = f"the log of {crashed.plan.name}"
    lines = [(line, folder, log) for line in crashed.ended.tail] + [(command, folder, "train.run")]
    names = [os.path.relpath(folder / word, root) for _, word in _WORD.findall(command)]
    names += [item.path for item in opened(evidence).values() if item.inside]
    ours = {*(evidence.tracked or ()), *evidence.uncommitted}
    read = [name for name in dict.fromkeys(names) if name.endswith(_READ) and name in ours]
    for name in read[:_FILES]:
        with contextlib.suppress(Unreadable):
            text = read_text(root / name, root, _BYTES)
            for number, line in enumerate(text.splitlines(), 1):
                place = f"{name}:{number}"
                lines += [(line, folder, place), (line, (root / name).parent, place)]
    for line, base, place in lines:
        for quoted, word in _WORD.findall(line):
            given = (quoted or word).rstrip(".")
            own = in_workspace(given)
            path = os.path.relpath(os.path.normpath((base if own == given else root) / own), root)
            if (quoted or "/" in word) and path != "." and not path.startswith(".."):
                yield path, place


def _above(paths: Iterable[str]) -> set[str]:
    """The folders above these paths."""
    found: set[str] = set()
    for path in paths:
        while (path := posixpath.dirname(path)) and path not in found:
            found.add(path)
    return found
