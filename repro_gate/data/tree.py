"""Lists the files below a declared path, and makes the one digest that stands for all of them:
Repro Gate's own, or DVC's.

Reads folders and inodes, never contents. A listing is one bytes object a file, so that 100,000
files take ten megabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.files import read_start

MAX_FILES = 5_000_000  # half a gigabyte of listing
MAX_FOLDERS = 1_000_000  # each counted as often as a path leads to it
# of one folder, by paths with `NESTED` links or more on them: with links to links, paths double at
# each level
MAX_VISITS = 1_000
NESTED = 3

_IDENTITY = struct.Struct("<5Q")
_WORD = (1 << 64) - 1
_IGNORE_BYTES = 64 * 1024
# dvc/ignore.py: the patterns that hold in every repository
_DVC_IGNORES = (
    b".git",
    b".hg",
    b".dvc",
)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One file (a single entry with an empty name) or all files below a folder, links followed,
    ordered by the bytes of their paths.

    An entry is the path relative to the root, NUL, and the file's identity. `newest` is the latest
    time of change of any of them, in nanoseconds; `linked` are folders that were reached through a
    link.
    """

    root: Path
    is_folder: bool
    entries: Sequence[bytes]
    size: int
    newest: int
    linked: tuple[bytes, ...] = ()


def identity(status: os.stat_result) -> bytes:
    """What must stay the same for two readings to be of the same bytes: size, times of change of
    contents and inode, inode, device."""
    fields = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    return _IDENTITY.pack(*(field & _WORD for field in fields))


def identity_fields(found: bytes) -> tuple[int, int, int, int, int]:
    """An identity's size in bytes, times of change of contents and inode in nanoseconds (mod
    2**64), inode and device."""
    size, contents, inode_change, inode, device = _IDENTITY.unpack(found)
    return size, contents, inode_change, inode, device


def size_in(found: bytes) -> int:
    """The size in bytes that an identity holds."""
    return int.from_bytes(found[:8], "little")


def entry_name(entry: bytes) -> bytes:
    """The path of an entry, relative to its listing's root."""
    return entry[: -_IDENTITY.size - 1]


def entry_identity(entry: bytes) -> bytes:
    """The identity in an entry."""
    return entry[-_IDENTITY.size :]


def list_files(root: Path) -> Listing:
    """All there is at `root`. Raises OSError: missing, unreadable, neither file nor folder, a
    folder in itself, more than the limits."""
    status = os.stat(root)
    if stat.S_ISREG(status.st_mode):
        newest = max(status.st_mtime_ns, status.st_ctime_ns)
        return Listing(
            root=root,
            is_folder=False,
            entries=(b"\0" + identity(status),),
            size=status.st_size,
            newest=newest,
        )
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{root} is neither a file nor a folder")
    top = os.fsencode(root) + b"/"
    entries, linked, newest, folders = list[bytes](), list[bytes](), 0, 0
    visits: Counter[tuple[int, int]] = Counter()
    waiting: list[tuple[bytes, frozenset[tuple[int, int]], int]] = [(b"", frozenset(), 0)]
    while waiting:
        prefix, above, links = waiting.pop()
        # by descriptor, `stat` is a third faster
        descriptor = os.open(top + prefix, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            here = (status.st_dev, status.st_ino)
            if here in above:
                raise OSError(f"{os.fsdecode(top + prefix)} leads back to a folder above it")
            folders, visits[here] = folders + 1, visits[here] + (links >= NESTED)
            _check_limits(root, len(entries), folders + len(waiting), visits[here])
            with os.scandir(descriptor) as found:
                for entry in found:
                    name = prefix + os.fsencode(entry.name)
                    try:
                        status = entry.stat()
                    except OSError as error:
                        raise OSError(error.errno, error.strerror, top + name) from None
                    if stat.S_ISREG(status.st_mode):
                        entries.append(name + b"\0" + identity(status))
                        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                    elif stat.S_ISDIR(status.st_mode):
                        is_link = entry.is_symlink()
                        waiting.append((name + b"/", above | {here}, links + is_link))
                        linked += [name + b"/"] if is_link else []
        finally:
            os.close(descriptor)
    _check_limits(root, len(entries), folders, 0)
    # a NUL sorts before any byte of a longer path, so this is the order of the paths
    entries.sort()
    size = sum(map(size_in, map(entry_identity, entries)))
    return Listing(
        root=root, is_folder=True, entries=entries, size=size, newest=newest, linked=tuple(linked)
    )


def _check_limits(root: Path, files: int, folders: int, visits: int) -> None:
    """Ends a listing that a few links would make endless."""
    if files > MAX_FILES:
        raise OSError(f"more than {MAX_FILES:,} files lie below {root}")
    if folders > MAX_FOLDERS:
        raise OSError(f"more than {MAX_FOLDERS:,} folders lie below {root}, links followed")
    if visits > MAX_VISITS:
        raise OSError(
            f"links to links lead to the same folder below {root} in more than {MAX_VISITS:,} ways"
        )


def listing_identity(listing: Listing) -> bytes:
    """One identity for all files of a listing: their names, sizes, times, inodes and devices."""
    if not listing.is_folder:
        return entry_identity(listing.entries[0])
    digest = hashlib.sha256()
    for entry in listing.entries:
        digest.update(len(entry).to_bytes(4, "little") + entry)
    return digest.digest()


def tree_sha256(listing: Listing, digests: bytes | bytearray) -> str:
    """The sha256 that stands for a listing, in hex; `digests` are those of its files, 32 bytes
    each. `verify_data` says how it is made."""
    if not listing.is_folder:
        return digests.hex()
    tree = hashlib.sha256()
    for number, entry in enumerate(listing.entries):
        tree.update(
            digests[32 * number : 32 * number + 32].hex().encode()
            + b"  "
            + entry_name(entry)
            + b"\0"
        )
    return tree.hexdigest()


def dvc_md5(listing: Listing, digests: bytes | bytearray) -> str:
    """The md5 that DVC states for a listing; `digests` are those of its files, 16 bytes each. For a
    folder, that of a JSON list of `{"md5", "relpath"}` with `.dir` behind it
    (dvc_data/hashfile/tree.py, `Tree.as_bytes` and `digest`).

    DVC does not walk into linked folders, nor into `.git`, `.hg` and `.dvc`. It orders by code
    point, which is the order of UTF-8 bytes: only names that are no UTF-8 move when the text is
    sorted.
    """
    if not listing.is_folder:
        return digests.hex()
    seen = sorted(
        (os.fsdecode(entry_name(entry)), number)
        for number, entry in enumerate(listing.entries)
        if _seen_by_dvc(listing, entry)
    )
    digest, between = hashlib.md5(b"[", usedforsecurity=False), b""
    for name, number in seen:
        file = {"md5": digests[16 * number : 16 * number + 16].hex(), "relpath": name}
        digest.update(between + json.dumps(file, sort_keys=True).encode())
        between = b", "
    digest.update(b"]")
    return digest.hexdigest() + ".dir"


def _seen_by_dvc(listing: Listing, entry: bytes) -> bool:
    name = entry_name(entry)
    parts = name.split(b"/")
    ignored = parts[-1] == b".git" or any(part in _DVC_IGNORES for part in parts[:-1])
    return not ignored and not name.startswith(listing.linked)


def dvc_patterns(folder: Path) -> Path | None:
    """The `.dvcignore` above a folder, up to the repository's root, that has any pattern; with one,
    DVC may see fewer files."""
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
