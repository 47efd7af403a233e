"""What of a checkout is tracked and there: its files, its submodules, what Git LFS has not
fetched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout.git import git
from repro_gate.checkout.inspection import (
    LFS_POINTER,
    LFS_POINTER_BYTES,
    SUBMODULE,
    Tracked,
    asking,
    head_of,
    index_of,
    is_checkout,
)

_FILE_MODES = frozenset({"100644", "100755"})


@dataclass(frozen=True)
class Submodule:
    """One submodule, nested ones included. `recorded` is the commit that the superproject names,
    `actual` the one that is checked out (None: its files are not there)."""

    path: str
    recorded: str
    actual: str | None


def tracked_files(root: Path) -> frozenset[str]:
    """Paths relative to `root` of all files in the index, those of submodules included, whether
    they are there or not.

    Raises UsageError if git fails.
    """
    with asking(root):
        return frozenset(
            prefix + item.path
            for _, prefix, entries in _repositories(root)
            for item in entries
            if item.mode != SUBMODULE
        )


def submodules(root: Path) -> tuple[Submodule, ...]:
    """The submodules of the checkout at `root` and theirs, in order of their paths. Raises
    UsageError if git fails."""
    found: list[Submodule] = []
    with asking(root):
        for folder, prefix, entries in _repositories(root):
            for item in (item for item in entries if item.mode == SUBMODULE):
                there = is_checkout(folder / item.path)
                actual = head_of(folder / item.path) if there else None
                found.append(Submodule(prefix + item.path, item.blob, actual))
    return tuple(sorted(found, key=lambda item: os.fsencode(item.path)))


def lfs_pointers(root: Path) -> tuple[str, ...]:
    """Tracked files, those of submodules included, in whose place their LFS pointer stands, and
    that git's attributes give to LFS; only files as small as one are read.

    Raises UsageError if git fails.
    """
    found: list[str] = []
    with asking(root):
        for folder, prefix, entries in _repositories(root):
            paths = [
                item.path
                for item in entries
                if item.mode in _FILE_MODES and _is_pointer(folder / item.path)
            ]
            managed = _managed_by_lfs(folder, paths) if paths else ()
            found += [prefix + path for path in managed]
    return tuple(sorted(found, key=os.fsencode))


def _repositories(root: Path, prefix: str = "") -> Iterator[tuple[Path, str, list[Tracked]]]:
    """The repository at `root` and each submodule that is there: its folder, the prefix of its
    paths, and its index."""
    entries = index_of(root)
    yield root, prefix, entries
    for item in entries:
        if item.mode == SUBMODULE and is_checkout(root / item.path):
            yield from _repositories(root / item.path, f"{prefix}{item.path}/")


def _is_pointer(path: Path) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LFS_POINTER_BYTES:
            return False
        with open(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            return LFS_POINTER.fullmatch(file.read(LFS_POINTER_BYTES + 1)) is not None
    except OSError:
        return False


def _managed_by_lfs(root: Path, paths: Sequence[str]) -> Iterator[str]:
    """Of these paths those whose attribute `filter` is `lfs`: fields of `path NUL filter NUL value
    NUL`."""
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    fields = git(root, "check-attr", "-z", "--stdin", "filter", given=given).split(b"\0")
    for path, value in zip(fields[0::3], fields[2::3], strict=False):
        if value == b"lfs":
            yield os.fsdecode(path)
