"""Appends events to a trace file. Lives in the training process: standard library only, no number
of the training is touched.

Every event is one `os.write`, so that a line is whole or absent whatever happens to the process
next. An event whose fields are on their way from a device waits for them, and those behind it wait
with it, so that lines keep their order.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Callable, Protocol

from . import format as fmt

Row = tuple[str, str, tuple[int, ...]]


_APPENDING = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
MOST_WAITING = 2_000  # events; one more waits for the device


class Later(Protocol):
    """Fields of an event that may still be on their way from a device."""

    def ready(self) -> bool:
        """Return whether `fields` would not have to wait."""

    def fields(self) -> dict[str, Any]:
        """Return the fields, as JSON. Raises RuntimeError if the device failed."""

    def without_device(self) -> dict[str, Any]:
        """Return the fields as far as they are known without the device; none: the event cannot be
        written."""
        return {}


class TraceFailed(Exception):
    """The trace can no longer be written (a full disk, a file-size limit). Training that goes on
    unseen proves nothing, so it must end."""


class TraceWriter:
    """One open trace file. Rows and readings of the flags are written once, and numbered."""

    def __init__(
        self,
        folder: str,
        hello: dict[str, Any],
        capturing: Callable[[], bool] = lambda: False,
    ) -> None:
        self.folder = folder
        self._capturing = capturing  # whether no device may be asked now
        self._lost = False  # fields did not arrive, which was noted
        # names in alphabetical order are in that of their start
        self.stem = f"{time.time_ns()}-{os.getpid()}"
        self.path = os.path.join(folder, self.stem + fmt.SUFFIX)
        self._numbers: dict[str, dict[Any, int]] = {"table": {}, "flags": {}}
        # kind -> the rows of its last block, and their number
        self._last: dict[str, tuple[Any, int]] = {}
        self._waiting: deque[tuple[Later | None, dict[str, Any]]] = deque()
        try:
            self._file = os.open(self.path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o600)
            self._identity = self._opened()
        except OSError as error:
            self._fail(error)
        self.event("hello", format=fmt.FORMAT, **hello)

    def event(self, name: str, later: Later | None = None, **fields: Any) -> None:
        """Append one event, with the fields of `later` as soon as they are there. Raises
        TraceFailed where the bytes could not be written whole."""
        self._waiting.append((later, {"e": name, **fields}))
        self.write(wait=False)

    def write(self, wait: bool) -> None:
        """Append what waits for a device, as far as it has arrived; all of it with `wait`. Of what
        a device that failed was to say, append what is known without it, and note the loss."""
        while self._waiting:
            later, fields = self._waiting[0]
            more: dict[str, Any] = {}
            if later is not None:
                capturing = self._capturing()
                if capturing and not wait:
                    return
                must_wait = wait or len(self._waiting) > MOST_WAITING
                try:
                    if capturing:
                        raise RuntimeError("a CUDA graph is being captured")
                    if not must_wait and not later.ready():
                        return
                    more = later.fields()
                except RuntimeError as error:
                    self._note_loss(fields, error)
                    more = later.without_device()
            self._waiting.popleft()
            if more or later is None:
                self._append({**fields, **more})

    def _note_loss(self, fields: dict[str, Any], error: RuntimeError) -> None:
        if not self._lost:
            text = "from step {step} on, a {e} or more did not arrive from the device: "
            row = "lost", (text.format(**fields) + str(error))[: fmt.MAX_NAME]
            self._append({"e": "notes", "rows": [row]})
        self._lost = True

    def _append(self, event: dict[str, Any]) -> None:
        if isinstance(event.get("digests"), bytes):
            event["digests"] = base64.b64encode(event["digests"]).decode("ascii")
        text = json.dumps(
            event, separators=(",", ":"), allow_nan=False, ensure_ascii=False
        )
        # half of a surrogate pair, which no report could hold, becomes a question mark
        line = text.encode("utf-8", "replace") + b"\n"
        try:
            if self._opened() != self._identity:  # closed, as every daemon does
                self._file = os.open(self.path, _APPENDING | os.O_NOFOLLOW)
                if self._opened() != self._identity:
                    raise OSError("the trace is no longer where it was")
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self._fail(error)

    def _opened(self) -> tuple[int, ...]:
        """Return the device and number of the descriptor's file; nothing if it is closed."""
        try:
            state = os.fstat(self._file)
        except OSError:
            return ()
        return state.st_dev, state.st_ino

    def block(
        self,
        step: int,
        kind: str,
        rows: Sequence[Row],
        digests: bytes | Later,
        values: list[str] | None = None,
    ) -> None:
        """Append the digests (16 bytes for each row, in the rows' order) of one kind at one moment
        of `step`. Passing the same rows again costs one identity check."""
        before, number = self._last.get(kind, (None, 0))
        if before is not rows:
            number = self._number("table", (kind, tuple(rows)), kind=kind, rows=rows)
            self._last[kind] = rows, number
        fields: dict[str, Any] = {"step": step, "table": number}
        if values is not None:
            fields["values"] = values
        if isinstance(digests, bytes):
            self.event("block", digests=digests, **fields)
        else:
            self.event("block", digests, **fields)

    def flags(self, settings: dict[str, Any]) -> int:
        """Return the number of this reading of the flags; write it out if it is new."""
        return self._number("flags", repr(settings), settings=settings)

    def _number(self, name: str, key: Any, **fields: Any) -> int:
        """Return the number of an event that later ones refer to; write it out on first use."""
        numbers = self._numbers[name]
        if key not in numbers:
            numbers[key] = len(numbers)
            self.event(name, **fields)
        return numbers[key]

    def abandon(self) -> None:
        """Close the file without another word (a forked child lets go of its parent's trace)."""
        if self._opened() == self._identity:
            os.close(self._file)

    def _fail(self, error: OSError) -> None:
        """Leave the reason in the file that was allocated for it, then raise."""
        reason = f"{self.path}: {error.strerror or error}"
        try:
            text = json.dumps({"error": reason, "pid": os.getpid()}).encode("ascii")
            slot = os.open(os.path.join(self.folder, fmt.FAILURE_FILE), os.O_WRONLY)
            os.write(slot, text[: fmt.FAILURE_BYTES].ljust(fmt.FAILURE_BYTES))
            os.close(slot)
        except OSError:
            pass  # the trace is truncated, which the reader sees for itself
        sys.stderr.write(f"repro-gate: the trace cannot be written: {reason}\n")
        raise TraceFailed(reason)
