"""The digests that a trace holds, block by block. Those of a long training are kept in a file, not
in memory."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from dataclasses import dataclass
from typing import NamedTuple

from .format import DIGEST_BYTES
from .writer import Row

IN_MEMORY = 1 << 20  # bytes of digests of one run; more go to its spool


class Nameless:
    """A temporary file that has no name and is gone with this object."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="repro-gate-") as file:
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)


class Spooled(NamedTuple):
    """Where some bytes lie in a file."""

    file: Nameless
    start: int
    size: int

    def read(self) -> bytes:
        """Return the bytes. Raises OSError where they cannot be read."""
        content = os.pread(self.file.descriptor, self.size, self.start)
        if len(content) < self.size:
            raise OSError("a temporary file was cut off")
        return content


class Spool:
    """Holds the digests of one run: the first in memory, later ones in a file that nothing else can
    open. It is gone with its blocks."""

    def __init__(self) -> None:
        self.size = 0  # bytes put in
        self._file: Nameless | None = None
        self._end = 0

    def put(self, content: bytes) -> bytes | Spooled:
        """Return what stands for these bytes in a block. Raises OSError where there is no room for
        them."""
        self.size += len(content)
        if self.size <= IN_MEMORY:
            return content
        try:
            self._file = self._file or Nameless()
            if os.pwrite(self._file.descriptor, content, self._end) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise OSError(
                error.errno,
                f"no room for its digests in {tempfile.gettempdir()}: {error.strerror}",
            ) from None
        self._end += len(content)
        return Spooled(self._file, self._end - len(content), len(content))


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Digests of one kind at one moment: 16 bytes for each row. `values`: losses and the numbers of
    an optimizer, as hex floats."""

    step: int
    kind: str
    at: int
    rows: tuple[Row, ...]
    content: bytes | Spooled
    values: tuple[str, ...] = ()

    @property
    def digests(self) -> bytes:
        """Return the digests, read where they lie."""
        return self.content if isinstance(self.content, bytes) else self.content.read()

    def digest(self, place: int) -> bytes:
        """Return that of the row at `place`."""
        return self.digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]
