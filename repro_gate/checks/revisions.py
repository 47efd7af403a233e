"""Finds datasets and models that the checkout's Python files fetch without naming a commit.

Nothing is imported or run: the files are parsed, within limits on their size and number. Tests and documentation are left out, for no
training reads them. A file without a call by one of the names that `remote_calls` knows is not parsed, and of the others no more than
MAX_PARSED_BYTES in all, so that a large checkout takes a second.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checks.remote_calls import LOOSE, PINNED, UNRESOLVED, RemoteCall, may_fetch, remote_calls

MAX_FILES = 20_000
MAX_FILE_BYTES = 1 << 20
MAX_PARSED_BYTES = 3 << 20  # of all files that are parsed: a second at most
_ASIDE = frozenset({"test", "tests", "testing", "test_utils", "doc", "docs"})
_TEST = re.compile(r"(?:test_.*|.*_test|conftest)\.py")


@dataclass(frozen=True)
class Found:
    """One call with the file that it stands in, relative to the checkout's root."""

    path: str
    call: RemoteCall

    def __str__(self) -> str:
        return f"{self.path}:{self.call.line}: {self.call.text}" + (f": {self.call.problem}" if self.call.problem else "")


@dataclass(frozen=True)
class Revisions:
    """What was found in `files` Python files; `unread` says of which the gate could not tell, and why (`path: why`)."""

    files: int
    loose: tuple[Found, ...] = ()
    pinned: tuple[Found, ...] = ()
    unresolved: tuple[Found, ...] = ()
    unread: tuple[str, ...] = ()


def find_revisions(root: Path, tracked: Iterable[str], local: Iterable[str] = (), first: Collection[str] = ()) -> Revisions:
    """Look through the tracked Python files below `root`, those of `first` before the others, in case there is too much to parse.

    `local` are further paths that the code may name: declared data.
    """
    everything = sorted(tracked, key=lambda path: (path not in first, os.fsencode(path)))
    paths = [path for path in everything if _is_training_code(path)]
    known = _with_parents([*everything, *local])
    calls: list[Found] = []
    unread = [f"{len(paths) - MAX_FILES} files beyond the first {MAX_FILES}"] if len(paths) > MAX_FILES else []
    parsed, beyond = 0, list[str]()
    for path in paths[:MAX_FILES]:
        source = _read(root / path)
        if isinstance(source, str):
            unread.append(f"{path}: {source}")
        elif may_fetch(source):
            if parsed + len(source) > MAX_PARSED_BYTES:
                beyond.append(path)
                continue
            parsed += len(source)
            found = _calls(source, root, path, known)
            if isinstance(found, str):
                unread.append(f"{path}: {found}")
            else:
                calls += (Found(path, call) for call in found)
    if beyond:
        unread.insert(0, f"{len(beyond)} files with such calls beyond the first {MAX_PARSED_BYTES >> 20} MiB of code ({beyond[0]}, …)")
    groups = {state: tuple(item for item in calls if item.call.state == state) for state in (LOOSE, PINNED, UNRESOLVED)}
    return Revisions(len(paths), groups[LOOSE], groups[PINNED], groups[UNRESOLVED], tuple(unread))


def _is_training_code(path: str) -> bool:
    *folders, name = path.split("/")
    return name.endswith(".py") and not _TEST.fullmatch(name) and not any(folder.lower() in _ASIDE for folder in folders)


def _with_parents(paths: Iterable[str]) -> frozenset[str]:
    """The paths and every folder above them."""
    known: set[str] = set()
    for path in paths:
        place = os.path.normpath(path)
        while place and place not in known:
            known.add(place)
            place = place.rpartition("/")[0]
    return frozenset(known)


def _calls(source: bytes, root: Path, path: str, known: frozenset[str]) -> tuple[RemoteCall, ...] | str:
    """The file's calls, or why they cannot be told."""
    folder = path.rpartition("/")[0]

    def is_local(name: str) -> bool:
        return any(os.path.normpath(os.path.join(place, name)) in known or os.path.lexists(root / place / name) for place in ("", folder))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the stranger's escapes and comparisons
            tree = ast.parse(source)
        found = remote_calls(tree, is_local)
    except SyntaxError as error:
        return f"no Python of this version: {error.msg}, line {error.lineno}"[:200]
    except (ValueError, RecursionError, MemoryError) as error:
        return f"cannot be parsed: {type(error).__name__}"
    return "its names refer to each other too often" if found is None else found


def _read(path: Path) -> bytes | str:
    """The bytes of a regular file, or why they are not read. Links are not followed: what they lead to is tracked itself, or elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        return b"" if os.path.islink(path) else f"cannot be read: {getattr(error, 'strerror', None) or error}"
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "is no regular file"
        if status.st_size > MAX_FILE_BYTES:
            return f"is larger than {MAX_FILE_BYTES >> 20} MiB"
        try:
            return file.read(MAX_FILE_BYTES)
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
