"""One artifact read leaf by leaf: the member is chosen by the file's suffix, and every way to fail ends in the opaque member.
 Opens regular files only: a link, a pipe or a device is refused without being
opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, cast

from repro_gate.trace.artifacts import csv_leaves, json_leaves, npz, opaque, safetensors, torch_zip
from repro_gate.trace.artifacts.interface import MAX_SECONDS, Artifact, Reader, Unreadable, deadline

_MEMBERS: dict[str, tuple[str, Reader]] = {
    ".pt": ("torch", torch_zip.read),
    ".pth": ("torch", torch_zip.read),
    ".ckpt": ("torch", torch_zip.read),
    ".bin": ("torch", torch_zip.read),
    ".safetensors": ("safetensors", safetensors.read),
    ".npz": ("npz", npz.read),
    ".npy": ("npy", npz.read_npy),
    ".json": ("json", json_leaves.read),
    ".jsonl": ("jsonl", json_leaves.read_lines),
    ".ndjson": ("jsonl", json_leaves.read_lines),
    ".csv": ("csv", csv_leaves.read),
    ".tsv": ("tsv", csv_leaves.read_tsv),
}


def read_leaves(path: Path, seconds: float = MAX_SECONDS) -> Artifact:
    """Read `path` by the member for its suffix, in at most `seconds` besides one pass over its bytes.

    Never raises for what a file holds: a malformed file, or one above the limits of `interface`, comes back as `opaque` with a `note`.
    What is no regular file, or cannot be opened, comes back as `refused` with a `note` and no leaves.
    """
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):  # seen before it is opened: opening a pipe or a device does something to it
            return Artifact("refused", note=f"it is {_kind(mode)}, not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as raw:  # unbuffered: members read in chunks, and `zipfile` shares the descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return Artifact("refused", note="it changed while it was opened")
            return _read(cast(BinaryIO, raw), path.suffix.lower(), status.st_size, seconds)
    except (OSError, ValueError, MemoryError) as error:
        return Artifact("refused", note=f"it could not be read: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}")


def _read(file: BinaryIO, suffix: str, size: int, seconds: float) -> Artifact:
    digest = opaque.file_digest(file)
    name, member = _MEMBERS.get(suffix, ("opaque", None))
    note = ""
    if member is not None:
        try:
            with deadline(seconds):
                found = member(file)
            return Artifact(name, digest, size, found.leaves, found.structure, found.note)
        except Unreadable as error:
            note = f"compared as a whole: {error}"
        except Exception as error:  # noqa: BLE001  whatever a hostile file makes a parser raise: its bytes can be compared all the same
            note = f"compared as a whole: it could not be read as {name} ({type(error).__name__})"
    whole = opaque.contents(digest, size)
    return Artifact("opaque", digest, size, whole.leaves, whole.structure, note)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
