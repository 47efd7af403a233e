"""Reads the traces of a run on the gate's side: takes one event after another into the trace of its
process, and refuses what does not follow from the lines before it. What a trace holds is untrusted:
files, lines and fields have limits.

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
from . import model as on
from .blocks import Block
from .model import DECODER, Budget, TooLarge, Trace, TraceError

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
        if not isinstance(event, on.BlockLine):  # its digests are not kept in memory
            # four bytes a character
            self.trace.budget.take(
                len(line) * (1 if line.isascii() and b"\\" not in line else 4),
                fmt.MEMORY,
            )
        try:
            if (self._line == 1) != isinstance(event, on.Hello):
                raise ValueError("`hello` must be the first line and no other")
            if (self.trace.end is not None) != isinstance(event, on.Resumed):
                raise ValueError("after `end`, and nowhere else, comes `resumed`")
            if isinstance(event, on.Hello) and self._nonce not in (None, event.nonce):
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


def add(trace: Trace, event: on.Event) -> None:
    """Put one event into the trace of its process. Raises ValueError or IndexError where it does
    not fit what came before."""
    match event:
        case on.Hello():
            trace.pid = event.pid
            trace.argv = event.argv
            trace.forked = event.forked
        case on.Facts():
            trace.facts.update(event.facts)
            trace.key = trace.facts.get("process", trace.key)
        case on.Table():
            trace.tables.append((event.kind, event.rows))
        case on.BlockLine():
            _add_block(trace, event)
        case on.Flags():
            trace.settings.append(event.settings)
        case on.StepMark():
            _check_steps(trace, event.step)
            trace.settings[event.flags]
            trace.steps.append(event)
        case on.Stopped() | on.End() | on.Resumed() | on.Preempted():
            _check_steps(trace, event.steps)
            trace.stopped = trace.stopped or isinstance(event, on.Stopped)
            trace.end = event.reason if isinstance(event, on.End) else None
            if isinstance(event, on.Preempted):
                trace.preempted = event.checkpoint
        case on.Distributions():
            trace.distributions = event.versions
        case on.Variables():
            trace.variables = event.values
        case on.Loop():
            trace.loop = event.place
    if isinstance(event, on.Seen):
        name = str(event.__struct_config__.tag)
        items = getattr(trace, name)
        items.extend(getattr(event, "rows", (event,)))
        if len(items) > fmt.LIMITS[name]:
            raise ValueError(f"more than {fmt.LIMITS[name]} of them")


def _add_block(trace: Trace, event: on.BlockLine) -> None:
    kind, rows = trace.tables[event.table]
    if len(event.digests) != fmt.DIGEST_BYTES * len(rows):
        raise ValueError(f"{len(event.digests)} bytes of digests for {len(rows)} rows")
    trace.budget.take(len(event.digests), fmt.ALL_DIGESTS)
    for value in event.values:
        float.fromhex(value)
    last = trace.blocks[-1].step if trace.blocks else -1
    if event.step < last:
        raise ValueError(f"step {event.step} after step {last}")
    if event.step > last:
        trace.at = {}
    trace.at[kind] = trace.at.get(kind, -1) + 1
    block = Block(
        step=event.step,
        kind=kind,
        at=trace.at[kind],
        rows=rows,
        content=trace.budget.spool.put(event.digests),
        values=event.values,
    )
    trace.blocks.append(block)


def _check_steps(trace: Trace, count: int) -> None:
    """Raise ValueError unless the trace holds as many steps as an event counts before it."""
    if count != len(trace.steps):
        raise ValueError(
            f"after {count} steps, where the trace holds {len(trace.steps)}"
        )
