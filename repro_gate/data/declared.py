"""Declared data: where it lies, whether it is what the spec says, and whether a run wrote to it.

Called by `workspace` (which links it in), `gate` (before and after each run) and the data checks. Nothing here changes a byte of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import UsageError
from repro_gate.spec.model import DataItem

_CHUNK = 4 * 1024 * 1024
_NAMED_FILES = 10_000  # above this many files a fingerprint is only a digest, and a change names the item instead of its files


@dataclass(frozen=True)
class DataFinding:
    """One declared item held against its checksum. `actual` is None, and `problem` says why, where it could not be read."""

    path: str
    expected: str | None
    actual: str | None
    size: int = 0  # bytes of all files
    files: int = 0
    problem: str = ""

    @property
    def matches(self) -> bool | None:
        """Whether the checksum is the declared one; None where none is declared."""
        return None if self.expected is None else self.actual == self.expected


@dataclass(frozen=True)
class Fingerprint:
    """What `stat` says about one declared item. `files` has (path, size, mtime_ns, inode) of each file while there are few enough."""

    digest: str
    files: tuple[tuple[str, int, int, int], ...] = ()


DataState = Mapping[str, Fingerprint]


def data_path(item: DataItem, spec_dir: Path) -> Path:
    """Where the item lies: absolute, `..` taken out, links left as they are."""
    if "\0" in item.path or not item.path:
        raise UsageError(f"data: {item.path!r} is no path", reason_id="data/path")
    return Path(os.path.normpath(os.path.join(os.path.abspath(spec_dir), item.path)))


def resolve_data(items: Sequence[DataItem], spec_dir: Path) -> tuple[Path, ...]:
    """The real paths of the declared items, links followed: what a run must not write to."""
    return tuple(Path(os.path.realpath(data_path(item, spec_dir))) for item in items)


def verify_data(items: Sequence[DataItem], spec_dir: Path) -> tuple[DataFinding, ...]:
    """The sha256 of each declared item, read in chunks, beside the declared one.

    A file's is the sha256 of its bytes. A folder's is the sha256 over one record for each file below it, ordered by the bytes of its path
    relative to the folder: the file's sha256 in hex, two spaces, the path, a NUL. Links are followed (a loop is a problem), empty folders
    do not count. The same figure from a shell, in the folder:
    `find -L . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0r sha256sum -z -- | sha256sum`.
    """
    return tuple(_verified(item, data_path(item, spec_dir)) for item in items)


def read_data_state(items: Sequence[DataItem], spec_dir: Path) -> DataState:
    """A fingerprint of each declared item by its path in the spec: size, time of change and inode of every file, no contents."""
    return {item.path: _fingerprint(data_path(item, spec_dir)) for item in items}


def changed_data(before: DataState, after: DataState) -> tuple[str, ...]:
    """Declared files that changed, appeared or went between two states, by their paths in the spec; sorted."""
    changed: list[str] = []
    for path in {**before, **after}:
        old, new = before.get(path, Fingerprint("")), after.get(path, Fingerprint(""))
        if old.digest == new.digest:
            continue
        parted = {name for name, *_ in set(old.files) ^ set(new.files)}
        changed += [os.path.join(path, name) if name else path for name in parted] or [path]
    return tuple(sorted(changed, key=os.fsencode))


def _verified(item: DataItem, path: Path) -> DataFinding:
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            digest, size = _file_digest(path)
            return DataFinding(item.path, item.sha256, digest, size, 1)
        total, count, tree = 0, 0, hashlib.sha256()
        for name in _files(path):
            digest, size = _file_digest(path / name)
            tree.update(digest.encode() + b"  " + os.fsencode(name) + b"\0")
            total, count = total + size, count + 1
        return DataFinding(item.path, item.sha256, tree.hexdigest(), total, count)
    except FileNotFoundError as error:
        missing = item.path if error.filename in (None, os.fspath(path)) else error.filename
        return DataFinding(item.path, item.sha256, None, problem=f"{os.fsdecode(missing)} does not exist")
    except OSError as error:
        return DataFinding(item.path, item.sha256, None, problem=f"cannot be read: {error.strerror or error}")


def _file_digest(path: Path) -> tuple[str, int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is neither a file nor a folder")
        digest, size = hashlib.sha256(), 0
        while piece := file.read(_CHUNK):
            digest.update(piece)
            size += len(piece)
    return digest.hexdigest(), size


def _files(root: Path) -> list[str]:
    """Files below `root` by relative path, in the order of their bytes. Raises OSError for what cannot be read, or a loop of links."""
    return sorted(_walk(os.fspath(root), "", ()), key=os.fsencode)


def _walk(folder: str, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise OSError(f"{folder} leads back to a folder above it")
    with os.scandir(folder) as found:
        for entry in found:
            mode = entry.stat().st_mode
            if stat.S_ISDIR(mode):
                yield from _walk(entry.path, f"{prefix}{entry.name}/", (*above, here))
            elif stat.S_ISREG(mode):
                yield prefix + entry.name


def _fingerprint(path: Path) -> Fingerprint:
    digest, files = hashlib.sha256(), list[tuple[str, int, int, int]]()
    try:
        names = _files(path) if path.is_dir() else [""]
        for name in names:
            status = os.stat(path / name)
            files.append((name, status.st_size, status.st_mtime_ns, status.st_ino))
    except OSError as error:
        return Fingerprint(f"unreadable: {error.strerror or error}")
    for entry in files:
        digest.update(repr(entry).encode("utf-8", "surrogatepass"))
    return Fingerprint(digest.hexdigest(), tuple(files) if len(files) <= _NAMED_FILES else ())
