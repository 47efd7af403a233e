"""One digest over the code: the files of a snapshot by path, kind and contents, and nothing else of them.

Neither the place of the checkout nor its user, times, permissions beyond the owner's right to execute, or the order of its folders counts.
Empty folders do not either: git does not carry them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from repro_gate.errors import Inconclusive

_DOMAIN = b"repro-gate/code/v1\0"
_CHUNK = 1 << 20


def code_digest(root: Path, names: Iterable[str], leave_out: Collection[str]) -> str:
    """`sha256:…` over the files `names` (relative to `root`), but those in `leave_out` or below a folder in it.

    The hash is over `repro-gate/code/v1`, a NUL, and one record for each file, ordered by the bytes of its path: its kind (`file`,
    `executable` or `link`), a space, the SHA-256 of its contents (of a link: of its target) in hex, two spaces, the path, a NUL. Raises
    Inconclusive for a file that cannot be read.
    """
    tree = hashlib.sha256(_DOMAIN)
    out = {os.fsencode(name) for name in leave_out}
    for name in sorted({os.fsencode(name) for name in names}):
        if out and any(part in out for part in _upwards(name)):
            continue
        try:
            record = _record(os.path.join(os.fsencode(root), name))
        except OSError as error:
            raise Inconclusive(
                f"{os.fsdecode(name)} cannot be read from the snapshot of the checkout: {error.strerror or error}",
                reason_id="config-hash/code",
                remedy="let nothing else write to the temporary folder (TMPDIR) while the gate runs",
            ) from error
        tree.update(record + b"  " + name + b"\0")
    return f"sha256:{tree.hexdigest()}"


def code_files(root: Path) -> Iterator[str]:
    """Every file and link below `root`, relative to it, in no particular order; links are not followed. Raises Inconclusive."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as found:
                for entry in found:
                    name = os.path.join(folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)
                    else:
                        yield name
        except OSError as error:
            raise Inconclusive(
                f"{root / folder} cannot be listed: {error.strerror or error}",
                reason_id="config-hash/code",
                remedy="let nothing else write to the temporary folder (TMPDIR) while the gate runs",
            ) from error


def file_digest(path: Path | bytes) -> str:
    """The SHA-256 of a regular file in hex, links followed. Raises OSError, also for what is no regular file (which is not waited for)."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("no regular file")
        digest = hashlib.sha256()
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _record(path: bytes) -> bytes:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return b"link " + hashlib.sha256(os.readlink(path)).hexdigest().encode()
    kind = b"executable " if mode & stat.S_IXUSR else b"file "
    return kind + file_digest(path).encode()


def _upwards(name: bytes) -> Iterator[bytes]:
    """The path itself and every folder above it."""
    while name:
        yield name
        name = os.path.dirname(name)
