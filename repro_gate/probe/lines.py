"""Follows the workspace's own Python code line by line, and notes a digest of the values that each
line touched or returned.

Two runs compared by these notes show the first line after which they held different values. What
`names.leaves` finds in them counts, never an object's address: no code of the training is called to
read them. Slow: for one pair of a diagnosis.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import itertools
import linecache
import sys
from types import CodeType, FrameType
from typing import Any

from . import names, sdk, session, source_line

MOST = 15_000  # lines that are noted, in one process
_WAITING = 64  # lines that are written late: who prepares data takes no step, and may be killed
_LEAVES = 1_000  # of one variable
_BYTES = 4 * 1024 * 1024  # of one array or tensor: of a larger one, its shape


class Lines:
    """Notes lines up to the end of `step`; an observer of the session."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._noted = 0
        self._open: list[dict[str, Any]] = []  # not written yet

    def start(self) -> None:
        """Follow the main thread, which calls this, from here on."""
        sys.settrace(self._called)

    def flush(self, current: session.Session, last: bool) -> None:
        """Write the lines since the last time."""
        lines = self._open
        self._open = []
        for line in lines:
            current.event("uses", factor="line", count=1, direct=True, **line)

    def forked(self) -> None:
        """Begin anew in a forked child: the lines so far are its parent's."""
        self._open = []
        self._noted = 0

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._noted >= MOST:
            sys.settrace(None)
            return None
        name = frame.f_code.co_name
        # a lambda (a sort's key sees any order), or a comprehension: its line is noted with what it
        # reads
        inner = name.startswith("<") and name != "<module>"
        file = source_line.inside(frame.f_code.co_filename)
        if not file or inner or session.current().step > self.step:
            return None
        at = 0  # the line in progress

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal at
            if event in ("line", "return"):
                if at:
                    self._note(frame, file, at, arg if event == "return" else None)
                at = frame.f_lineno if event == "line" else 0
            return line

        return line

    def _note(self, frame: FrameType, file: str, line: int, returned: Any) -> None:
        if self._noted >= MOST:
            return
        self._noted += 1
        code = frame.f_code
        shared = frame.f_globals
        own = frame.f_locals
        values = {"return": returned}
        for name in sorted(_names_by_line(code).get(line, ())):
            values[name] = own.get(name, shared.get(name))
        current = session.current()
        digest = "unread"
        with current.in_hook():
            # a value that cannot be read says nothing
            with contextlib.suppress(Exception):
                digest = _digest(values)
            text = linecache.getline(code.co_filename, line)
            self._open.append(
                {
                    "step": current.step,
                    "file": file,
                    "line": line,
                    "call": source_line.code_of(text),
                    "digest": digest,
                    "source": "",
                }
            )
            if len(self._open) >= _WAITING:
                self.flush(current, False)


def _digest(values: dict[str, Any]) -> str:
    """Return a digest of what some variables hold, whatever the addresses and the order of sets."""
    items = []
    for name, value in values.items():
        for path, leaf in itertools.islice(
            names.leaves(value, name, code=True), _LEAVES
        ):
            if getattr(leaf, "nbytes", 0) > _BYTES:
                leaf = str(leaf.shape)
            items.append((path, leaf))
    rows, digests = sdk.digest_leaves(items)
    content = repr(rows).encode("utf-8", "replace") + digests.result()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


@functools.lru_cache(maxsize=None)
def _names_by_line(code: CodeType) -> dict[int, set[str]]:
    """Return the variables that each line of a code object reads or sets."""
    lines: dict[int, set[str]] = {}
    starts = dict(dis.findlinestarts(code))
    line = 0
    for item in dis.get_instructions(code):
        line = starts.get(item.offset, line) or line
        if any(word in item.opname for word in ("FAST", "_NAME", "DEREF", "GLOBAL")):
            variables = item.argval if isinstance(item.argval, tuple) else [item.argval]
            strings = {name for name in variables if isinstance(name, str)}
            lines.setdefault(line, set()).update(strings)
    return lines
