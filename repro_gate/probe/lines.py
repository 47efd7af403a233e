"""Follows the workspace's own Python code line by line, and notes a digest of the values that each
line touched or returned.

Two runs compared by these notes show the first line after which they held different values. Only
plain values, arrays and tensors count, never an object's address: no code of the training is called
to read them. Slow: for one pair of a diagnosis.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import dis
import functools
import hashlib
import linecache
import pathlib
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Callable

from . import session, source_line
from .digest import digest_all

MOST = 15_000  # lines that are noted, in one process
_DEPTH = 4  # of values in values
_ITEMS = 200  # of one collection
_BYTES = 4 * 1024 * 1024  # of one array or tensor: of a larger one, its shape
_SETS = (set, frozenset)
_SIMPLE = (
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    bool,
    type(None),
    range,
    dt.datetime,
    dt.date,
    dt.timedelta,
    pathlib.PurePosixPath,
    pathlib.PosixPath,
)


class Lines:
    """Notes lines up to the end of `step`; an observer of the session."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._noted = 0
        self._open: list[dict[str, Any]] = []  # not written yet

    def start(self) -> None:
        """Follow the main thread from here on."""
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
        names = _names_by_line(frame.f_code)
        at = 0  # the line in progress

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal at
            if event in ("line", "return"):
                if at:
                    returned = arg if event == "return" else None
                    self._note(frame, file, at, names.get(at, set()), returned)
                at = frame.f_lineno if event == "line" else 0
            return line

        return line

    def _note(
        self, frame: FrameType, file: str, line: int, names: set[str], returned: Any
    ) -> None:
        main = threading.main_thread()
        if self._noted >= MOST or threading.current_thread() is not main:
            return
        self._noted += 1
        digest = hashlib.blake2b(digest_size=8)
        order = ""
        try:
            own = frame.f_locals
            shared = frame.f_globals
            values = {name: own.get(name, shared.get(name)) for name in sorted(names)}
            order = _order(values)
            for part in _parts([returned, values], _DEPTH + 1, []):
                digest.update(part)
        except Exception:  # a value that cannot be read says nothing
            digest.update(b"unread")
        text = linecache.getline(frame.f_code.co_filename, line)
        self._open.append(
            {
                "step": session.current().step,
                "file": file,
                "line": line,
                "call": text.partition("  # ")[0].strip()[:200],
                "digest": digest.hexdigest(),
                "source": order,
            }
        )


def _order(values: dict[str, Any]) -> str:
    """Return a digest of the order in which the sets among some variables give their plain items;
    empty where none holds two."""
    orders = []
    for value in values.values():
        if type(value) in _SETS:
            items = [item for item in list(value)[:_ITEMS] if type(item) in _SIMPLE]
            orders += [[repr(item)[:200] for item in items]] if items[1:] else []
    text = repr(orders).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest() if orders else ""


@functools.lru_cache(maxsize=None)
def _names_by_line(code: CodeType) -> dict[int, set[str]]:
    """Return the variables that each line of a code object reads or sets."""
    lines: dict[int, set[str]] = {}
    starts = dict(dis.findlinestarts(code))
    line = 0
    for item in dis.get_instructions(code):
        line = starts.get(item.offset, line) or line
        if any(word in item.opname for word in ("FAST", "_NAME", "DEREF", "GLOBAL")):
            names = item.argval if isinstance(item.argval, tuple) else (item.argval,)
            strings = {name for name in names if isinstance(name, str)}
            lines.setdefault(line, set()).update(strings)
    return lines


def _parts(value: Any, depth: int, above: list[int]) -> Iterator[bytes]:
    """Return the bytes that say what a value is, whatever its address and the order of a set."""
    kind = type(value)
    package = kind.__module__.split(".")[0]
    yield kind.__name__.encode("utf-8", "surrogatepass")
    if kind in _SIMPLE:
        yield repr(value)[:_BYTES].encode("utf-8", "surrogatepass")
    elif package == "numpy" and hasattr(kind, "tobytes"):
        yield repr((str(value.dtype), value.shape)).encode()
        if not value.dtype.hasobject and value.nbytes <= _BYTES:
            yield value.tobytes()
    elif package == "torch" and kind.__name__ == "Generator":
        yield from _parts(value.get_state(), depth, above)
    elif package == "torch" and hasattr(kind, "untyped_storage"):
        yield repr((str(value.dtype), tuple(value.shape))).encode()
        if value.numel() * value.element_size() <= _BYTES:
            with session.current().own_time():
                yield digest_all([value])
    elif depth and id(value) not in above:
        yield from _inner(value, kind, depth - 1, [*above, id(value)])


def _inner(value: Any, kind: type, depth: int, above: list[int]) -> Iterator[bytes]:
    if kind in (list, tuple):
        yield str(len(value)).encode()
        for item in list(value[:_ITEMS]):
            yield from _parts(item, depth, above)
    elif kind in _SETS:
        items = list(value)[:_ITEMS]
        yield from sorted(b"".join(_parts(item, depth, above)) for item in items)
    elif isinstance(value, dict):
        for key, item in list(dict.items(value))[:_ITEMS]:
            yield from _parts(key, depth, above)
            yield from _parts(item, depth, above)
    elif kind.__module__ not in ("builtins", "types") and not isinstance(value, type):
        with contextlib.suppress(AttributeError):
            fields = object.__getattribute__(value, "__dict__")
            yield from _inner(fields, dict, depth, above)
