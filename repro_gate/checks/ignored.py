"""What only this checkout has: git ignores it, no workspace and no clone has it, and where a
training names it, that is the likeliest cause of its crash.

A log that says which file was not there proves it. Nothing shows that a training asked whether a
folder is there, so the end of its log and its code are read for the paths that they name as well.
All of this is untrusted: it is read within bounds, and what comes of it is only shown.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from repro_gate.checkout.inspection import ignored_files
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import (
    declared_paths,
    from_root,
    is_below,
    is_source,
    opened,
)
from repro_gate.files import Unreadable, is_inside, read_text
from repro_gate.runs.launch import RunResult

_MOST = 3  # paths that are named
# of the training's code that is read: files, and bytes of each
_FILES, _BYTES = (
    50,
    256 * 1024,
)
_WORDS = 20_000  # of the log, the command and these files together
_READ = (".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini")
_WORD = re.compile(r"[\"']([^\"'\n]{1,300})[\"']|([^\s\"'`()\[\]{},:;=<>|]{1,300})")
_NO_DATA = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|venv|[^/]*\.(?:pyc|egg-info|log))(?:/|$)"
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


def files_of_this_machine(evidence: Evidence) -> dict[str, str]:
    """Return path from the checkout's root -> the crashed run that did not find it, of files that
    git neither tracks nor would copy, and no data declares. Empty without git: then everything was
    copied.

    A log is free text, so only whole lines of a traceback, of the interpreter or of the dynamic
    loader count."""
    if evidence.tracked is None:
        return {}
    root = evidence.root
    folder = evidence.working_directory
    known = [
        *evidence.tracked,
        *declared_paths(evidence),
        *evidence.uncommitted,
        ".git",
    ]
    absent: dict[str, str] = {}
    for run in evidence.runs:
        for line in run.ended.tail if run.outcome == "crashed" else ():
            match = _ABSENT.fullmatch(line.strip())
            path = (
                _below_root(next(filter(None, match.groups())), folder, root)
                if match
                else ""
            )
            is_copied = not path or is_below(path, known)
            if (
                not is_copied
                and is_inside(root / path, root)
                and (root / path).is_file()
            ):
                absent.setdefault(path, run.request.name)
    return absent


def ignored_data(evidence: Evidence) -> dict[str, str]:
    """Return path from the spec's folder -> where a crashed run names it (`train.py:12`), of what
    git ignores and the checkout has; what the log names comes first. Empty if a run came to its
    end, or `code/pristine-workspace` names what was not there."""
    crashed = next((run for run in evidence.runs if run.outcome == "crashed"), None)
    if (
        crashed is None
        or evidence.tracked is None
        or any(run.good for run in evidence.runs)
    ):
        return {}
    if files_of_this_machine(evidence):
        return {}
    root = evidence.root
    names = (name.rstrip("/") for name in ignored_files(root, ("",)))
    ignored = {name for name in names if not _NO_DATA.search(name)}
    copied = (*evidence.tracked, *evidence.uncommitted)
    # with folders of which the workspaces have a .gitkeep at most
    full = _above(
        path for path in copied if not posixpath.basename(path).startswith(".")
    )
    lacking = ignored | (_above(ignored) - full)
    known = {*declared_paths(evidence), ".git"}
    places: dict[str, str] = {}
    for path, place in islice(_paths(evidence, crashed), _WORDS):
        upwards = {path, *_above([path])}
        is_known = upwards & (known | places.keys()) or path in _above(places)
        if is_known or is_source(path) or not (path in lacking or upwards & ignored):
            continue
        if (root / path).exists() and is_inside(root / path, root):
            places[path] = place
    return {
        os.path.relpath(root / path, evidence.folder): place
        for path, place in islice(places.items(), _MOST)
    }


def _paths(evidence: Evidence, crashed: RunResult) -> Iterator[tuple[str, str]]:
    """Yield each path that log, command or code name (what is quoted or has a slash in it), from
    the checkout's root, and where."""
    root = evidence.root
    folder = evidence.working_directory
    command = evidence.spec.train.run or ""
    lines = [
        (line, folder, f"the log of {crashed.request.name}")
        for line in crashed.ended.tail
    ]
    lines.append((command, folder, "train.run"))
    words = [from_root(word, folder, root) for _, word in _WORD.findall(command)]
    ours = {*(evidence.tracked or ()), *evidence.uncommitted}
    code = [name for name in dict.fromkeys((*words, *opened(evidence))) if name in ours]
    for name in [name for name in code if name.endswith(_READ)][:_FILES]:
        with contextlib.suppress(Unreadable):
            text = read_text(root / name, root, _BYTES)
            for number, line in enumerate(text.splitlines(), 1):
                place = f"{name}:{number}"
                lines += [(line, folder, place), (line, (root / name).parent, place)]
    for line, base, place in lines:
        for quoted, word in _WORD.findall(line):
            path = _below_root((quoted or word).rstrip("."), base, root)
            if path and (quoted or "/" in word):
                yield path, place


def _below_root(name: str, folder: Path, root: Path) -> str:
    """Return a path that a run named as one relative to the checkout's root; empty if it is not
    below that."""
    path = from_root(name, folder, root)
    return "" if "\0" in path or path == "." or path.startswith("..") else path


def _above(paths: Iterable[str]) -> set[str]:
    """Return the folders above these paths, below the root."""
    return {str(folder) for path in paths for folder in PurePosixPath(path).parents} - {
        "."
    }
