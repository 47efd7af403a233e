"""The files below a declared path, and the one digest that stands for all of them: Repro Gate's own, or DVC's.
 Reads folders and inodes, never contents. A listing is kept as one bytes object a file, so
that 100,000 files take ten megabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.data.reader import IDENTITY_BYTES, identity, parts_of, size_in
from repro_gate.files import read_start

MAX_FILES = 5_000_000  # half a gigabyte of listing
MAX_FOLDERS = 1_000_000  # each counted as often as a path leads to it
MAX_LISTINGS = 1_000  # of one folder, by paths with `NESTED` links or more on them: with links to links, paths double at each level
NESTED = 3

_IGNORE_BYTES = 64 * 1024
_DVC_IGNORES = (b".git", b".hg", b".dvc")  # dvc/ignore.py: the patterns that hold in every repository


@dataclass(frozen=True)
class Listing:
    """One file (a single entry with an empty name) or all files below a folder, links followed, ordered by the bytes of their paths.

    An entry is the path relative to the root, NUL, and the file's identity (`reader.identity`). `newest` is the latest time of change
    of any of them, in nanoseconds; `linked` are folders that were reached through a link.
    """

    root: Path
    is_folder: bool
    entries: Sequence[bytes]
    size: int
    newest: int
    linked: tuple[bytes, ...] = ()


def entry_name(entry: bytes) -> bytes:
    """The path of an entry, relative to its listing's root."""
    return entry[: -IDENTITY_BYTES - 1]


def entry_identity(entry: bytes) -> bytes:
    """The identity in an entry."""
    return entry[-IDENTITY_BYTES:]


def changes_in(entry: bytes) -> tuple[str, int, int, int]:
    """What shows a write to a file: its path relative to the root, size, time of change of contents (nanoseconds) and inode."""
    size, changed, _, inode, _ = parts_of(entry_identity(entry))
    return os.fsdecode(entry_name(entry)), size, changed, inode


def list_files(root: Path) -> Listing:
    """All there is at `root`. Raises OSError: missing, unreadable, neither file nor folder, a folder in itself, more than the limits."""
    status = os.stat(root)
    if stat.S_ISREG(status.st_mode):
        return Listing(root, False, (b"\0" + identity(status),), status.st_size, max(status.st_mtime_ns, status.st_ctime_ns))
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{root} is neither a file nor a folder")
    entries, linked, newest = list[bytes](), list[bytes](), 0
    limits = _Limits(root)
    waiting: list[tuple[bytes, frozenset[tuple[int, int]], int]] = [(b"", frozenset(), 0)]
    while waiting:
        prefix, above, links = waiting.pop()
        folder = _Folder(os.fsencode(root) + b"/" + prefix)
        try:
            here = folder.loop_free(above)
            limits.count(here, links, len(entries), len(waiting))
            below = above | {here}
            for entry, name, status in folder.entries():
                if stat.S_ISREG(status.st_mode):
                    entries.append(prefix + name + b"\0" + identity(status))
                    newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                elif stat.S_ISDIR(status.st_mode):
                    is_link = entry.is_symlink()
                    waiting.append((prefix + name + b"/", below, links + is_link))
                    linked += [prefix + name + b"/"] if is_link else []
        finally:
            folder.close()
    limits.count_files(len(entries))
    entries.sort()  # a NUL sorts before any byte of a longer path, so this is the order of the paths
    return Listing(root, True, entries, sum(size_in(entry_identity(entry)) for entry in entries), newest, tuple(linked))


class _Limits:
    """What ends a listing that a few links would make endless."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = 0
        self._listings: Counter[tuple[int, int]] = Counter()

    def count(self, folder: tuple[int, int], links: int, files: int, waiting: int) -> None:
        """Once for each folder that is listed, over a path with so many `links` on it. Raises OSError where it is too much."""
        self._folders += 1
        if self._folders + waiting > MAX_FOLDERS:
            raise OSError(f"more than {MAX_FOLDERS:,} folders lie below {self._root}, links followed")
        if links >= NESTED:
            self._listings[folder] += 1
            if self._listings[folder] > MAX_LISTINGS:
                raise OSError(f"links to links lead to the same folder below {self._root} in more than {MAX_LISTINGS:,} ways")
        self.count_files(files)

    def count_files(self, files: int) -> None:
        """Raises OSError where there are too many."""
        if files > MAX_FILES:
            raise OSError(f"more than {MAX_FILES:,} files lie below {self._root}")


class _Folder:
    """An open folder: what is in it is asked for by its short name, which is a third faster than by the whole path."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def loop_free(self, above: frozenset[tuple[int, int]]) -> tuple[int, int]:
        """Its device and inode. Raises OSError where it is one of the folders above it."""
        status = os.fstat(self._descriptor)
        here = (status.st_dev, status.st_ino)
        if here in above:
            raise OSError(f"{os.fsdecode(self._path)} leads back to a folder above it")
        return here

    def entries(self) -> Iterator[tuple[os.DirEntry[str], bytes, os.stat_result]]:
        """What is in it, with names in bytes, links followed. Raises OSError with the whole path."""
        with os.scandir(self._descriptor) as found:
            for entry in found:
                name = os.fsencode(entry.name)
                try:
                    status = entry.stat()
                except OSError as error:
                    raise OSError(error.errno, error.strerror, self._path + name) from None
                yield entry, name, status

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)


def listing_identity(listing: Listing) -> bytes:
    """One identity for all files of a listing: their names, sizes, times, inodes and devices."""
    if not listing.is_folder:
        return entry_identity(listing.entries[0])
    digest = hashlib.sha256()
    for entry in listing.entries:
        digest.update(len(entry).to_bytes(4, "little") + entry)
    return digest.digest()


def tree_sha256(listing: Listing, digests: bytes | bytearray) -> bytes:
    """The sha256 that stands for a listing; `digests` are those of its files, 32 bytes each. `verify_data` says how it is made."""
    if not listing.is_folder:
        return bytes(digests)
    tree = hashlib.sha256()
    for number, entry in enumerate(listing.entries):
        tree.update(digests[32 * number : 32 * number + 32].hex().encode() + b"  " + entry_name(entry) + b"\0")
    return tree.digest()


def dvc_md5(listing: Listing, digests: bytes | bytearray) -> str:
    """The md5 that DVC states for a listing; `digests` are those of its files, 16 bytes each.

    A folder's is that of the JSON list of `{"md5", "relpath"}`, ordered by relpath, with `.dir` behind it (dvc_data/hashfile/tree.py,
    `Tree.as_bytes` and `digest`). DVC does not walk into linked folders, nor into `.git`, `.hg` and `.dvc`.
    """
    if not listing.is_folder:
        return digests.hex()
    named = ((os.fsdecode(entry_name(entry)), number) for number, entry in enumerate(listing.entries) if _seen_by_dvc(listing, entry))
    files = ((name, digests[16 * number : 16 * number + 16].hex()) for name, number in _by_text(named, listing))
    return dvc_listing_md5(files)


def dvc_listing_md5(files: Iterable[tuple[str, str]]) -> str:
    """The md5 of DVC's listing of files (relpath, md5), which come ordered by relpath, with `.dir` behind it."""
    digest, between = hashlib.md5(b"[", usedforsecurity=False), b""
    for name, md5 in files:
        digest.update(between + json.dumps({"md5": md5, "relpath": name}, sort_keys=True).encode())
        between = b", "
    digest.update(b"]")
    return digest.hexdigest() + ".dir"


def _by_text(named: Iterable[tuple[str, int]], listing: Listing) -> Iterable[tuple[str, int]]:
    """Python orders text by code point, which is the order of UTF-8 bytes; only names that are no UTF-8 need to be sorted again."""
    try:
        for entry in listing.entries:
            entry_name(entry).decode("utf-8")
    except UnicodeDecodeError:
        return sorted(named)
    return named


def _seen_by_dvc(listing: Listing, entry: bytes) -> bool:
    name = entry_name(entry)
    parts = name.split(b"/")
    ignored = parts[-1] == b".git" or any(part in _DVC_IGNORES for part in parts[:-1])
    return not ignored and not name.startswith(listing.linked)


def dvc_patterns(folder: Path) -> Path | None:
    """The `.dvcignore` above a folder, up to the repository's root, that has any pattern; with one, DVC may see fewer files."""
    for above in folder.parents:
        try:
            lines = read_start(above / ".dvcignore", _IGNORE_BYTES).splitlines()
        except OSError:
            lines = []
        if any(line.strip() and not line.startswith(b"#") for line in lines):
            return above / ".dvcignore"
        if (above / ".git").exists():
            break
    return None
