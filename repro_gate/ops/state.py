"""What `repro-gate ops` has measured so far, kept in a file as it comes: a second start of the same
command goes on from there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from repro_gate.escape import for_terminal
from repro_gate.ops.catalog import Key, Row

_LINE = msgspec.json.Decoder(tuple[Literal[0, 1], Row])


class Kept:
    """Rows by key, of the first process and of the second. `path` is None if nothing can be kept;
    if it cannot be written, nothing is, and `tell` is told why. A line of it that cannot be read is
    measured again."""

    def __init__(self, path: Path | None, tell: Callable[[str], None], *, fresh: bool) -> None:
        self.phases: tuple[dict[Key, Row], dict[Key, Row]] = {}, {}
        self._path = path
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() and not fresh else b""
            path.write_bytes(content + b"\n")  # the last line may have been cut short
        except OSError as error:
            self._path = None
            tell(for_terminal(f"{path} cannot be written: {error.strerror}", 300))
            return
        for line in content.split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError, msgspec.MsgspecError):
                phase, row = _LINE.decode(line)
                self.phases[phase][row.key] = row
        if self.phases[0]:
            known = f"{len(self.phases[0]):,} rows are known from an interrupted start"
            tell(f"{known} (--fresh measures them anew)")

    def add(self, phase: int, row: Row) -> None:
        """Keep one more row."""
        self.phases[phase][row.key] = row
        if self._path is not None:
            # a full disk: the rest is measured all the same
            with contextlib.suppress(OSError), self._path.open("ab") as file:
                file.write(msgspec.json.encode((phase, row)) + b"\n")

    def remove(self) -> None:
        """Remove the file: the measurement is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
