"""Reads traces on the gate's side. What a trace holds is untrusted: every field is checked for type, range and size as it comes in.

`TraceFollower` reads what was appended since it last looked (the live view and the whole reading are the same code); `read_folder` reads
every trace of a run. Imports only `trace.format`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import fields
from . import format as fmt
from .fields import Row

__all__ = [
    "Block",
    "Measured",
    "Row",
    "Settings",
    "StepMark",
    "Trace",
    "TraceError",
    "TraceFollower",
    "Undone",
    "read_folder",
    "trace_files",
]

Settings = Mapping[str, bool | int | float | str | None]


class TraceError(Exception):
    """A trace that does not follow the format. The message names file, line and what is wrong."""


@dataclass(frozen=True)
class Block:
    """Digests of one kind at one moment: `digests` holds 16 bytes for each row of the table; `values` the losses as hex floats."""

    step: int
    kind: str
    at: int
    rows: tuple[Row, ...]
    digests: bytes
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepMark:
    """The end of one optimizer step: training time and the probe's own time in milliseconds, peak memory in bytes."""

    step: int
    ms: float
    probe_ms: float
    peak_bytes: int
    flags: int


@dataclass(frozen=True)
class Undone:
    """A line of training code that set a determinism flag to another value than the condition's."""

    flag: str
    value: str
    file: str
    line: int
    step: int


@dataclass(frozen=True)
class Measured:
    """The distance of one tensor to its twin in the reference run; figures that do not exist are None."""

    step: int
    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float | None
    max_ulp: int | None
    l2: float | None
    reference_l2: float | None


@dataclass
class Trace:
    """One process of one run, as far as it was read."""

    path: Path
    pid: int = 0
    key: str = "main"
    argv: tuple[str, ...] = ()
    forked: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    steps: list[StepMark] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    distances: list[Measured] = field(default_factory=list)
    kept: list[tuple[int, str]] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    end: str | None = None

    @property
    def trained(self) -> bool:
        """Whether this process recorded anything to compare."""
        return bool(self.steps or self.blocks)


class TraceFollower:
    """Reads one growing trace file. `poll()` takes in the whole lines appended since the last call."""

    def __init__(self, path: Path, nonce: str | None) -> None:
        self.trace = Trace(path)
        self._nonce = nonce
        self._offset = 0
        self._rest = b""
        self._line = 0
        self._tables: list[tuple[str, tuple[Row, ...]]] = []
        self._at: dict[str, int] = {}  # blocks of each kind so far in the step of the last one
        handlers: list[Callable[[Mapping[str, Any]], None]] = [
            self._hello,
            self._facts,
            self._table,
            self._block,
            self._flags,
            self._undone,
            self._step,
            self._kept,
            self._distance,
            self._network,
            self._note,
            self._end,
        ]
        self._handlers = {handler.__name__[1:]: handler for handler in handlers}

    def poll(self) -> Trace:
        """Take in what was appended. Raises TraceError on the first line that does not follow the format."""
        for chunk in self._appended():
            lines = (self._rest + chunk).split(b"\n")
            self._rest = lines.pop()
            if len(self._rest) > fmt.MAX_LINE_BYTES:
                raise self._wrong(f"a line is longer than {fmt.MAX_LINE_BYTES} bytes")
            for line in lines:
                self._line += 1
                self._take(line)
        return self.trace

    def finish(self) -> Trace:
        """Take in the rest; a last line without its line feed is one that was cut off."""
        self.poll()
        if self._rest:
            raise self._wrong("the last line is cut off")
        return self.trace

    def _appended(self) -> Any:
        try:
            handle = os.open(self.trace.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise self._wrong(f"cannot be opened: {error.strerror}") from None
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            os.close(handle)
            raise self._wrong("is no regular file")
        with os.fdopen(handle, "rb") as file:
            if state.st_size > fmt.MAX_FILE_BYTES:
                raise self._wrong(f"is larger than {fmt.MAX_FILE_BYTES} bytes; raise `capture.every`")
            if state.st_size < self._offset:
                raise self._wrong("was cut back while it was read")
            file.seek(self._offset)
            while chunk := file.read(min(1 << 20, state.st_size - self._offset)):  # no further: it may grow as fast as it is read
                self._offset += len(chunk)
                yield chunk

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            raise self._wrong("is no JSON") from None
        if not isinstance(event, dict):
            raise self._wrong("is no JSON object")
        name = event.get("e")
        if (self._line == 1) != (name == "hello"):
            raise self._wrong("`hello` must be the first line and no other")
        if self.trace.end is not None:
            raise self._wrong("a line follows `end`")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            raise self._wrong("names no known event")
        try:
            handler(event)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise self._wrong(f"`{name}` is malformed: {type(error).__name__} {error}") from None

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.trace.path.name}:{max(self._line, 1)}: {what}")

    def _hello(self, event: Mapping[str, Any]) -> None:
        if event["format"] != fmt.FORMAT:
            raise ValueError(f"format is not {fmt.FORMAT}")
        if self._nonce is not None and event["nonce"] != self._nonce:
            raise ValueError("it belongs to another run (the nonce differs)")
        self.trace.pid = fields.integer(event["pid"], 0, 1 << 31)
        self.trace.key = fields.text(event["key"], 200)
        self.trace.argv = tuple(fields.text(item, fmt.MAX_NAME) for item in fields.items(event["argv"], 1000))
        self.trace.forked = event["forked"] is True

    def _facts(self, event: Mapping[str, Any]) -> None:
        facts = fields.mapping(event["facts"], 200)
        self.trace.facts.update({fields.text(name, 200): fields.text(value, fmt.MAX_NAME) for name, value in facts.items()})
        if "process" in self.trace.facts:
            self.trace.key = self.trace.facts["process"]

    def _table(self, event: Mapping[str, Any]) -> None:
        if event["id"] != len(self._tables) or len(self._tables) >= fmt.MAX_TABLES:
            raise ValueError("tables are numbered from 0 in order")
        rows = tuple(fields.row(row) for row in fields.items(event["rows"], fmt.MAX_ROWS))
        self._tables.append((fields.kind(event["kind"]), rows))

    def _block(self, event: Mapping[str, Any]) -> None:
        kind, rows = self._tables[fields.integer(event["table"], 0, len(self._tables) - 1)]
        if event["kind"] != kind:
            raise ValueError("its table is of another kind")
        try:
            digests = base64.b64decode(event["digests"], validate=True)
        except binascii.Error:
            raise ValueError("digests are no base64") from None
        if len(digests) != fmt.DIGEST_BYTES * len(rows):
            raise ValueError(f"{len(digests)} bytes of digests for {len(rows)} rows")
        values = tuple(fields.hex_float(item) for item in fields.items(event.get("values", []), fmt.MAX_ROWS))
        step, at = fields.integer(event["step"], -1, fmt.MAX_STEP), fields.integer(event["at"], 0, fmt.MAX_STEP)
        if self.trace.blocks and step < self.trace.blocks[-1].step:
            raise ValueError(f"step {step} after step {self.trace.blocks[-1].step}")
        if not self.trace.blocks or step > self.trace.blocks[-1].step:
            self._at = {}
        if at != self._at.get(kind, 0):
            raise ValueError(f"block {at} of its kind where {self._at.get(kind, 0)} was due")
        self._at[kind] = at + 1
        self.trace.blocks.append(Block(step, kind, at, rows, digests, values))

    def _flags(self, event: Mapping[str, Any]) -> None:
        if event["id"] != len(self.trace.settings) or len(self.trace.settings) >= 10_000:
            raise ValueError("readings are numbered from 0 in order")
        settings = fields.mapping(event["settings"], 200)
        self.trace.settings.append({fields.text(name, 200): fields.plain(value) for name, value in settings.items()})

    def _undone(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.undone) < 1000:
            self.trace.undone.append(
                Undone(
                    fields.text(event["flag"], 200),
                    fields.text(event["value"], 200),
                    fields.text(event["file"], fmt.MAX_NAME),
                    fields.integer(event["line"], 0, 1 << 31),
                    fields.integer(event["step"], -1, fmt.MAX_STEP),
                )
            )

    def _step(self, event: Mapping[str, Any]) -> None:
        step = fields.integer(event["step"], 0, fmt.MAX_STEP)
        if step != len(self.trace.steps):
            raise ValueError(f"step {step} where {len(self.trace.steps)} was due")
        flags = fields.integer(event["flags"], 0, len(self.trace.settings) - 1)
        self.trace.steps.append(
            StepMark(
                step,
                fields.number(event["ms"], 0, 1e10),
                fields.number(event["probe_ms"], 0, 1e10),
                fields.integer(event["peak_bytes"], 0, 1 << 60),
                flags,
            )
        )

    def _kept(self, event: Mapping[str, Any]) -> None:
        name = fields.text(event["file"], 200)
        if "/" in name or name.startswith("."):
            raise ValueError("a kept file lies beside its trace")
        self.trace.kept.append((fields.integer(event["step"], -1, fmt.MAX_STEP), name))

    def _distance(self, event: Mapping[str, Any]) -> None:
        step = fields.integer(event["step"], -1, fmt.MAX_STEP)
        for row in fields.items(event["rows"], fmt.MAX_ROWS):
            kind, name, dtype, shape, max_abs, max_ulp, l2, reference = row
            ulps = None if max_ulp is None else fields.integer(max_ulp, 0, 1 << 65)
            self.trace.distances.append(
                Measured(
                    step,
                    fields.kind(kind),
                    *fields.row([name, dtype, shape]),
                    fields.figure(max_abs),
                    ulps,
                    fields.figure(l2),
                    fields.figure(reference),
                )
            )

    def _network(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.network) < 1000:
            self.trace.network.append(fields.text(event["address"], 300))

    def _note(self, event: Mapping[str, Any]) -> None:
        if len(self.trace.notes) < 1000:
            self.trace.notes.append((fields.text(event["id"], 100), fields.text(event["message"], fmt.MAX_NAME)))

    def _end(self, event: Mapping[str, Any]) -> None:
        if event["reason"] not in fmt.END_REASONS:
            raise ValueError("unknown reason")
        if fields.integer(event["steps"], 0, fmt.MAX_STEP) != len(self.trace.steps):
            raise ValueError(f"it counts {event['steps']} steps, the trace holds {len(self.trace.steps)}")
        self.trace.end = event["reason"]


def read_folder(folder: Path, nonce: str | None, followers: Mapping[str, TraceFollower] | None = None) -> list[Trace]:
    """Every trace in `folder`, whole, by their start; `followers` by file name have read some of them already. Raises TraceError."""
    traces = []
    for path in trace_files(folder):
        follower = (followers or {}).get(path.name) or TraceFollower(path, nonce)
        trace = follower.finish()
        if trace.trained and trace.end is None:
            raise TraceError(f"{trace.path.name}: truncated after step {len(trace.steps) - 1}: the process ended without closing its trace")
        traces.append(trace)
    return traces


def trace_files(folder: Path) -> list[Path]:
    """The trace files in `folder` in order of their start. Raises TraceError where there are more than the format allows."""
    try:
        found = [name for name in os.listdir(folder) if name.endswith(fmt.SUFFIX)]
    except OSError as error:
        raise TraceError(f"{folder.name}: cannot be listed: {error.strerror}") from None
    if len(found) > fmt.MAX_FILES:
        raise TraceError(f"{folder.name}: {len(found)} trace files, {fmt.MAX_FILES} at most")
    return [folder / name for name in sorted(found, key=_start_of)]


def _start_of(name: str) -> tuple[int, str]:
    started = name[: -len(fmt.SUFFIX)].rpartition("-")[2]
    return (int(started) if started.isdecimal() and len(started) < 30 else 0, name)
