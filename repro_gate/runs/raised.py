"""The exception that ended a training, out of the end of its log: its last line, and the innermost frame that is the user's own.

A log may hold several tracebacks (chained exceptions, ranks, a launcher's own), so the last one that goes through the user's code counts.
Pure; the log is untrusted, so what comes back is short and is escaped by whoever prints it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_START = "Traceback (most recent call last):"
_RANK = re.compile(r"^(?:\[[\w.: -]{1,40}\]:? ?)+")  # `[rank0]: `, which torch puts before each line
_FRAME = re.compile(r'\s+File "(?P<path>[^"]{1,1000})", line (?P<line>\d{1,9})')
_RAISED = re.compile(r"[A-Za-z_][\w.]{0,200}(?:: .*)?$")
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python3|/bin/[^/]+$")
_WORKSPACE = "/run/workspace/"  # what a run's files lie under, whatever the temporary folder is called
_MOST = 300  # characters of the exception's line


def raised(log: Sequence[str]) -> str:
    """`RuntimeError: out of luck (train.py:12)`; empty where the log holds no traceback."""
    found: tuple[bool, str] = (False, "")
    place, inside = "", False
    for line in (_RANK.sub("", line) for line in log):
        frame = _FRAME.match(line)
        if line.strip() == _START:
            place, inside = "", True
        elif frame is not None:
            inside = True
            if not _LIBRARY.search(frame["path"]):
                place = f"{frame['path'].rpartition(_WORKSPACE)[2]}:{frame['line']}"
        elif inside and _RAISED.match(line):
            text = line if len(line) <= _MOST else line[: _MOST - 1] + "…"
            inside = False
            if place or not found[0]:
                found = bool(place), f"{text} ({place})" if place else text
    return found[1]
