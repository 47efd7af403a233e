"""Reads the traces of a run on the gate's side. What a trace holds is untrusted: files, lines and
fields have limits.

How a file is opened is the caller's to say: who may have put a link there decides what care that
takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic

from repro_gate.files import open_regular

from . import format as fmt
from .accept import add
from .model import (
    DECODER,
    BlockLine,
    Budget,
    Hello,
    Resumed,
    TooLarge,
    Trace,
    TraceError,
)

Opener = Callable[[Path], int]


class TraceCutOff(TraceError):
    """The process was ended while it wrote its trace: what is there is whole up to there."""


class TraceFollower:
    """Reads one growing trace file. `poll()` takes in the whole lines appended since the last call.
    `opener` opens regular files alone; `budget` is the run's."""

    def __init__(
        self,
        path: Path,
        nonce: str | None,
        opener: Opener = open_regular,
        budget: Budget | None = None,
    ) -> None:
        self.trace = Trace(path=path, budget=budget or Budget())
        self._nonce = nonce
        self._opener = opener
        self._offset = self._line = 0
        self._rest = b""

    def poll(self) -> Trace:
        """Take in what was appended. Raises TraceError on the first line that does not follow the
        format, or is more than the run may write."""
        try:
            for chunk in self._appended():
                began = monotonic()
                lines = (self._rest + chunk).split(b"\n")
                self._rest = lines.pop()
                if len(self._rest) > fmt.MAX_LINE_BYTES:
                    raise self._wrong(
                        f"a line is longer than {fmt.MAX_LINE_BYTES} bytes"
                    )
                for line in lines:
                    self._line += 1
                    self._take(line)
                self.trace.budget.take(monotonic() - began, fmt.SECONDS)
        except TooLarge as error:
            writer = ascii(" ".join(self.trace.argv))[1:-1][:100]
            raise self._wrong(
                f"too large: with what `{writer}` wrote, the traces of this run take {error}"
            ) from None
        except OSError as error:
            raise self._wrong(f"cannot be read: {error.strerror or error}") from None
        return self.trace

    def finish(self) -> Trace:
        """Take in the rest; a last line without its line feed is one that was cut off."""
        self.poll()
        if self._rest:
            raise TraceCutOff(str(self._wrong("the last line is cut off")))
        return self.trace

    def _appended(self) -> Iterator[bytes]:
        try:
            handle = self._opener(self.trace.path)
        except OSError as error:
            raise self._wrong(f"cannot be opened: {error.strerror or error}") from None
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            if size < self._offset:
                raise self._wrong("was cut back while it was read")
            # before any of it is read
            self.trace.budget.take(size - self._offset, fmt.BYTES)
            file.seek(self._offset)
            # no further: it may grow as fast as it is read
            while chunk := file.read(min(1 << 20, size - self._offset)):
                self._offset += len(chunk)
                yield chunk

    def _take(self, line: bytes) -> None:
        self.trace.budget.take(fmt.VALUE_BYTES * line.count(b","), fmt.MEMORY)
        try:
            event = DECODER.decode(line)
        except (ValueError, RecursionError) as error:  # it may quote the line
            reason = ascii(str(error))[1:-1][:200]
            raise self._wrong(f"is no event of the format: {reason}") from None
        if not isinstance(event, BlockLine):  # its digests are not kept in memory
            # four bytes a character
            self.trace.budget.take(
                len(line) * (1 if line.isascii() and b"\\" not in line else 4),
                fmt.MEMORY,
            )
        try:
            if (self._line == 1) != isinstance(event, Hello):
                raise ValueError("`hello` must be the first line and no other")
            if (self.trace.end is not None) != isinstance(event, Resumed):
                raise ValueError("after `end`, and nowhere else, comes `resumed`")
            if isinstance(event, Hello) and self._nonce not in (None, event.nonce):
                raise ValueError("it belongs to another run (the nonce differs)")
            add(self.trace, event)
        except (ValueError, IndexError, OverflowError) as error:
            name = event.__struct_config__.tag
            raise self._wrong(f"`{name}` is out of place: {error}") from None

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.trace.path.name}:{max(self._line, 1)}: {what}")


def read_folder(
    folder: Path,
    nonce: str | None,
    followers: Mapping[str, TraceFollower] | None = None,
    opener: Opener = open_regular,
) -> list[Trace]:
    """Return every trace in `folder`, whole, by their start; `followers` by file name have read
    some of them already. Raises TraceError."""
    traces = []
    known = followers or {}
    budget = next((follower.trace.budget for follower in known.values()), Budget())
    for path in trace_files(folder):
        follower = known.get(path.name) or TraceFollower(path, nonce, opener, budget)
        trace = follower.finish()
        if trace.trained and trace.end is None and not trace.stopped:
            raise TraceCutOff(
                f"{path.name}: truncated after step {len(trace.steps) - 1}: the process "
                "ended without closing its trace"
            )
        traces.append(trace)
    return traces


def trace_files(folder: Path) -> list[Path]:
    """Return the trace files in `folder` in order of their start. Raises TraceError where there are
    more than the format allows."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(fmt.SUFFIX)]
    except OSError as error:
        raise TraceError(f"{folder.name}: cannot be listed: {error.strerror}") from None
    if len(names) > fmt.MAX_FILES:
        raise TraceError(
            f"{folder.name}: {len(names)} trace files, {fmt.MAX_FILES} at most"
        )
    return [folder / name for name in sorted(names)]
