"""Lists the files below a declared path, and makes the one digest that stands for all of them:
Repro Gate's own, or DVC's. Reads folders and inodes, never contents."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MAX_FILES = 5_000_000
MAX_FOLDERS = 1_000_000  # each counted as often as a path leads to it
# dvc/ignore.py: the patterns that hold in every repository
_DVC_IGNORES = frozenset({b".git", b".hg", b".dvc"})


class Identity(NamedTuple):
    """What must stay the same for two readings to be of the same bytes."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


@dataclass(frozen=True)
class Listing:
    """One file (with an empty name) or all files below a folder, links followed, ordered by the
    bytes of their paths relative to `root`. `linked` are folders that were reached through a
    link."""

    root: Path
    is_folder: bool
    files: Sequence[tuple[bytes, Identity]]
    linked: tuple[bytes, ...] = ()


def identity(status: os.stat_result) -> Identity:
    """Return the identity of a file."""
    return Identity(
        status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
    )


def list_files(root: Path) -> Listing:
    """All there is at `root`. Raises OSError: missing, unreadable, neither file nor folder, a
    folder in itself, more than the limits, which a few links to links would reach."""
    status = os.stat(root)
    if stat.S_ISREG(status.st_mode):
        return Listing(root, is_folder=False, files=[(b"", identity(status))])
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{root} is neither a file nor a folder")
    top = os.fsencode(root) + b"/"
    files, linked, folders = list[tuple[bytes, Identity]](), list[bytes](), 0
    waiting: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b"", frozenset())]
    while waiting:
        prefix, above = waiting.pop()
        status = os.stat(top + prefix)
        here = (status.st_dev, status.st_ino)
        if here in above:
            raise OSError(f"{os.fsdecode(top + prefix)} leads back to a folder above it")
        folders += 1
        with os.scandir(top + prefix) as found:
            for entry in found:
                name, status = prefix + entry.name, entry.stat()
                if stat.S_ISREG(status.st_mode):
                    files.append((name, identity(status)))
                elif stat.S_ISDIR(status.st_mode):
                    waiting.append((name + b"/", above | {here}))
                    linked += [name + b"/"] if entry.is_symlink() else []
        if len(files) > MAX_FILES:
            raise OSError(f"more than {MAX_FILES:,} files lie below {root}")
        if folders + len(waiting) > MAX_FOLDERS:
            raise OSError(f"more than {MAX_FOLDERS:,} folders lie below {root}, links followed")
    return Listing(root, is_folder=True, files=sorted(files), linked=tuple(linked))


def digest_of_stats(files: Sequence[tuple[bytes, Identity]], *besides: object) -> str:
    """A digest of names and identities, of no contents, and of what else is given."""
    digest = hashlib.sha256(repr(besides).encode())
    for file in files:
        digest.update(repr(file).encode())
    return digest.hexdigest()


def tree_sha256(listing: Listing, digests: Sequence[bytes]) -> str:
    """The sha256 that stands for a listing, in hex; `digests` are those of its files.
    `verify_data` says how it is made."""
    if not listing.is_folder:
        return digests[0].hex()
    tree = hashlib.sha256()
    for (name, _), digest in zip(listing.files, digests, strict=True):
        tree.update(digest.hex().encode() + b"  " + name + b"\0")
    return tree.hexdigest()


def dvc_md5(listing: Listing, digests: Sequence[bytes]) -> str:
    """The md5 that DVC states for a listing; `digests` are those of its files. For a folder, that
    of a JSON list of `{"md5", "relpath"}` with `.dir` behind it (dvc_data/hashfile/tree.py,
    `Tree.as_bytes` and `digest`).

    DVC does not walk into linked folders, nor into `.git`, `.hg` and `.dvc`. It orders by code
    point, which is the order of UTF-8 bytes: only names that are no UTF-8 move when the text is
    sorted.
    """
    if not listing.is_folder:
        return digests[0].hex()
    seen = sorted(
        (os.fsdecode(name), digest.hex())
        for (name, _), digest in zip(listing.files, digests, strict=True)
        if _seen_by_dvc(listing, name)
    )
    files = [{"md5": digest, "relpath": name} for name, digest in seen]
    return hashlib.md5(json.dumps(files).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _seen_by_dvc(listing: Listing, name: bytes) -> bool:
    *folders, last = name.split(b"/")
    ignored = last == b".git" or not _DVC_IGNORES.isdisjoint(folders)
    return not ignored and not name.startswith(listing.linked)
