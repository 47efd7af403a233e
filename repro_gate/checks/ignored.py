"""Data that git ignores: the checkout has it, no workspace does, and where a training names it,
that is the likeliest cause of its crash.

Nothing shows that a training asked whether a file is there, so the end of its log and its code are
read for the paths that they name. Both are untrusted: they are read within bounds, and what comes
of them is only shown.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from repro_gate.checkout.inspection import ignored_files
from repro_gate.checks.code import files_of_this_machine
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import declared_paths, in_workspace, is_source, opened
from repro_gate.files import Unreadable, is_inside, read_text
from repro_gate.runs.launch import Run

_MOST = 3  # paths that are named
_FILES, _BYTES = 50, 256 * 1024  # of the training's code that is read: files, and bytes of each
_WORDS = 20_000  # of the log, the command and these files together
_SETTINGS = (".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini")
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,300})[\"']")
_WORD = re.compile(r"[^\s\"'`()\[\]{},:;=<>|]{1,300}")
_NO_DATA = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|venv|[^/]*\.(?:pyc|egg-info|log))(?:/|$)"
)


def ignored_data(evidence: Evidence) -> dict[str, str]:
    """Path from the checkout's root -> where a crashed run names it (`train.py:12`), of what git
    ignores and the checkout has; what the log names comes first. Empty where a run came to its
    end."""
    crashed = next((run for run in evidence.runs if run.outcome == "crashed"), None)
    if (
        crashed is None
        or evidence.checkout is None
        or evidence.tracked is None
        or any(run.good for run in evidence.runs)
    ):
        return {}
    if files_of_this_machine(evidence):  # `code/pristine-workspace` fails by them
        return {}
    root = evidence.root
    ignored = {
        name.rstrip("/")
        for name in ignored_files(root, ("",))
        if not _NO_DATA.search(name.rstrip("/"))
    }
    copied = _above(
        path
        for path in (*evidence.tracked, *evidence.uncommitted)
        if not posixpath.basename(path).startswith(".")
    )
    lacking = _above(ignored) - copied  # folders of which the workspaces have a .gitkeep at most
    known = {*declared_paths(evidence), ".git"}
    found: dict[str, str] = {}
    for path, place in _named(evidence, crashed):
        upwards = {path, *_above([path])}
        if (
            upwards & (known | found.keys())
            or path in _above(found)
            or is_source(path)
            or not (upwards & ignored or path in lacking)
        ):
            continue
        if (root / path).exists() and is_inside(root / path, root):
            found[path] = place
        if len(found) == _MOST:
            break
    return found


def _named(evidence: Evidence, crashed: Run) -> Iterator[tuple[str, str]]:
    """Each path below the checkout's root that log, command or code name, from the root, and
    where."""
    root, folder, command = (
        evidence.root,
        evidence.folder / evidence.spec.train.working_directory,
        evidence.spec.train.run or "",
    )
    lines = [
        (line, folder, f"the log of {crashed.plan.name}", ".log") for line in crashed.ended.tail
    ] + [(command, folder, "train.run", ".sh")]
    words = [
        os.path.relpath(folder / word, root)
        for word in _WORD.findall(command)
        if word.endswith((".py", *_SETTINGS))
    ]
    files = dict.fromkeys(
        (*words, *(item.path for item in opened(evidence).values() if item.inside))
    )
    ours = {*(evidence.tracked or ()), *evidence.uncommitted}
    for name in [name for name in files if name.endswith((".py", *_SETTINGS)) and name in ours][
        :_FILES
    ]:
        try:
            text = read_text(root / name, root, _BYTES)
        except Unreadable:
            continue
        kind = posixpath.splitext(name)[1]
        lines += [
            (line, base, f"{name}:{number}", kind)
            for number, line in enumerate(text.splitlines(), 1)
            for base in (folder, (root / name).parent)
        ]
    seen: set[tuple[str, Path]] = set()
    for line, base, place, kind in lines:
        for word in _words(line, kind):
            if len(seen) >= _WORDS:
                return
            if (word, base) in seen:
                continue
            seen.add((word, base))
            own = in_workspace(word)
            path = os.path.relpath(os.path.normpath((base if own == word else root) / own), root)
            if path != "." and not path.startswith(".."):
                yield path, place


def _words(line: str, kind: str) -> Iterator[str]:
    """What may be a path in a line: in Python what is quoted, in a log what is quoted or has a
    slash in it, in settings each word."""
    found = _QUOTED.findall(line)
    found += (
        []
        if kind == ".py"
        else [word for word in _WORD.findall(line) if kind != ".log" or "/" in word]
    )
    yield from (word.rstrip(".") for word in found if "\0" not in word)


def _above(paths: Iterable[str]) -> set[str]:
    """The folders above these paths."""
    found: set[str] = set()
    for path in paths:
        while (path := posixpath.dirname(path)) and path not in found:
            found.add(path)
    return found
