"""The member for every other file, and what the others fall back to: one digest over the whole file."""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

from repro_gate.trace.artifacts.interface import CHUNK, WHOLE_FILE, Contents, Leaf


def read(file: BinaryIO) -> Contents:
    """One leaf, `(file)`."""
    return contents(file_digest(file), os.fstat(file.fileno()).st_size)


def contents(digest: str, size: int) -> Contents:
    """What `read` gives for a file whose digest is known."""
    return Contents({WHOLE_FILE: Leaf("bytes", None, (size,), digest)})


def file_digest(file: BinaryIO) -> str:
    """The hex sha256 of the file from its beginning, read in chunks."""
    found = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()
