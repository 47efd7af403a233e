"""What `repro-gate ops` has measured so far, kept in a file as it comes: a second start of the same
command goes on from there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

import msgspec

from repro_gate.errors import Inconclusive
from repro_gate.files import try_lock
from repro_gate.runs.operators import LINE, Key, Line

MAX_BYTES = 256 << 20


class Kept:
    """Rows by key, of the first process and of the second. Use it as a context manager. `path` is
    None where nothing can be kept.

    A file that is damaged is begun anew; where it cannot be written, nothing is kept, and `problem`
    says why. Raises Inconclusive where another process is measuring into it.
    """

    def __init__(self, path: Path | None, *, fresh: bool) -> None:
        self.first: dict[Key, Line] = {}
        self.again: dict[Key, Line] = {}
        self._path, self._file, self.problem = path, -1, ""
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(
                path,
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0),
                0o600,
            )
        except OSError as error:
            self._path, self.problem = None, f"{path} cannot be written: {error.strerror}"
            return
        if not try_lock(self._file):
            raise Inconclusive(
                "the same operators are being measured by another process",
                remedy="wait for its end",
                reason_id="ops/busy",
            )
        whole = 0 if fresh else self._read()
        os.truncate(self._file, whole)

    def _read(self) -> int:
        """Take in what is there. The bytes of it that are whole: the last line may have been cut
        short."""
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            content = file.read(MAX_BYTES)
        lines = content.split(b"\n")[:-1]
        try:
            for text in lines:
                phase, _, row = text.partition(b" ")
                line = LINE.decode(row)
                if line.off is None or line.on is None:
                    raise ValueError("no row")
                self.of(int(phase))[line.key] = line
        except (ValueError, RecursionError, msgspec.MsgspecError):
            self.first.clear()
            self.again.clear()
            return 0
        return sum(len(text) + 1 for text in lines)

    def of(self, phase: int) -> dict[Key, Line]:
        """The rows of the first process, or of the second."""
        return self.first if phase == 1 else self.again

    def add(self, phase: int, line: Line) -> None:
        """One more row."""
        self.of(phase)[line.key] = line
        if self._file >= 0:
            try:
                os.write(self._file, b"%d %s\n" % (phase, msgspec.json.encode(line)))
            except OSError:  # a full disk: the rest is measured all the same
                os.close(self._file)
                self._file = -1

    def remove(self) -> None:
        """The measurement is complete: nothing is left to go on with."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
