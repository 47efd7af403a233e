"""The digests that a trace holds, block by block. Those of a long training are kept in a file, not
in memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .format import DIGEST_BYTES
from .writer import Row

IN_MEMORY = 1 << 20  # bytes of digests of one run; of more, all are in a file


class Spool:
    """The digests of one run: the first in memory, more in a file that has no name. It is gone with
    its blocks."""

    def __init__(self) -> None:
        self.file = tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="repro-gate-")  # noqa: SIM115  its blocks read it
        weakref.finalize(self, self.file.close)

    def put(self, content: bytes) -> Spooled:
        """Return what stands for these bytes in a block. Raises OSError where there is no room for
        them."""
        try:
            start = self.file.seek(0, os.SEEK_END)
            self.file.write(content)
            self.file.flush()
        except OSError as error:
            raise OSError(
                error.errno,
                f"no room for its digests in {tempfile.gettempdir()}: {error.strerror}",
            ) from None
        return Spooled(self, start, len(content))


class Spooled(NamedTuple):
    """Where some bytes lie in a spool."""

    spool: Spool
    start: int
    size: int

    def read(self) -> bytes:
        """Return the bytes. Raises OSError where they cannot be read."""
        self.spool.file.seek(self.start)
        content = self.spool.file.read(self.size)
        if len(content) < self.size:
            raise OSError("a temporary file was cut off")
        return content


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

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the digest of each row; they are read once."""
        digests = self.digests
        for place, row in enumerate(self.rows):
            yield row[0], digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]

    def digest(self, place: int) -> bytes:
        """Return that of the row at `place`."""
        return self.digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]
