"""The call that a frame has in progress, as its source says it: what a function without a frame of its own was called with.

Asked by `entropy` about NumPy's generators, which are compiled. Exact from Python 3.11 on, which knows the columns of each instruction;
before that, the line's text decides, and only where it names one of the wanted functions.
"""

from __future__ import annotations

import itertools
import linecache
import re
from types import FrameType
from typing import Any, Iterable, Tuple

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without importing `ast`
_NOTHING = re.compile(r"\s*(?:\w+\s*=\s*)?(?:None\s*)?\)")


def call_in_progress(frame: FrameType, wanted: Iterable[str]) -> Tuple[str, bool]:
    """(name, empty): which of the `wanted` functions the frame is calling, and whether it gives it nothing, or None; ("", False) for
    another function."""
    try:
        exact = getattr(frame.f_code, "co_positions", None)
        name, empty = _exact(frame, exact()) if exact is not None else _by_line(frame, wanted)
    except (SyntaxError, ValueError, AttributeError, IndexError):
        return "", False
    return (name, empty) if name in wanted else ("", False)


def _exact(frame: FrameType, positions: Iterable[Any]) -> Tuple[str, bool]:
    first, last, start, end = next(itertools.islice(positions, frame.f_lasti // 2, None))
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    call: Any = compile("(" + b"".join(lines).decode() + ")", "<call>", "eval", _ONLY_AST)
    given = [*call.body.args, *(keyword.value for keyword in call.body.keywords)]
    name = str(getattr(call.body.func, "attr", None) or getattr(call.body.func, "id", ""))
    return name, all(getattr(item, "value", item) is None for item in given)


def _by_line(frame: FrameType, wanted: Iterable[str]) -> Tuple[str, bool]:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    calls = [found for found in re.finditer(r"(\w+)\s*\(", line) if found.group(1) in wanted]
    if len(calls) != 1:
        return "", False
    return calls[0].group(1), _NOTHING.match(line, calls[0].end()) is not None
