"""Checks on single fields of a trace, which is untrusted: each returns the value in its type or raises ValueError."""

from __future__ import annotations

import base64
import binascii
import math
import posixpath
from typing import Any

from . import format as fmt

Row = tuple[str, str, tuple[int, ...]]
MAX_SIZE = (1 << 53) - 1  # of a dimension: what any reader of JSON can hold


def integer(value: Any, low: int, high: int) -> int:
    """A whole number in low … high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"no whole number in {low}..{high}")
    return value


def number(value: Any, low: float, high: float) -> float:
    """A number in low … high; NaN is in no range."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ValueError(f"no number in {low}..{high}")
    return float(value)


def figure(value: Any) -> float | None:
    """A distance: a finite number from 0 on, or None."""
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError("no distance")
    return float(value)


def text(value: Any, limit: int) -> str:
    """Text of at most `limit` characters; what cannot be encoded (a lone surrogate) is escaped, so that reports can hold it."""
    if not isinstance(value, str) or len(value) > limit:
        raise ValueError(f"no text of at most {limit} characters")
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def relative_path(value: Any) -> str:
    """A path below a folder: relative, in its shortest form, and not leaving it."""
    path = text(value, fmt.MAX_NAME)
    if not path or path.startswith(("/", "../")) or path in (".", "..") or posixpath.normpath(path) != path:
        raise ValueError("no path below a folder")
    return path


def absolute_path(value: Any) -> str:
    """An absolute path in its shortest form."""
    path = text(value, fmt.MAX_NAME)
    if not path.startswith("/") or posixpath.normpath(path) != path:
        raise ValueError("no absolute path")
    return path


def digests(value: Any) -> bytes:
    """Bytes that are written as base64."""
    if not isinstance(value, str):
        raise ValueError("digests are no text")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("digests are no base64") from None


def items(value: Any, limit: int) -> list[Any]:
    """A list of at most `limit` items."""
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"no list of at most {limit} items")
    return value


def mapping(value: Any, limit: int) -> dict[str, Any]:
    """An object of at most `limit` entries."""
    if not isinstance(value, dict) or len(value) > limit:
        raise ValueError(f"no object of at most {limit} fields")
    return value


def plain(value: Any) -> bool | int | float | str | None:
    """The value of a flag: nothing, a bool, a bounded number or text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return integer(value, -(1 << 63), (1 << 64) - 1)
    return value if isinstance(value, float) and math.isfinite(value) else text(value, fmt.MAX_NAME)


def kind(value: Any) -> str:
    """One of the trace's kinds."""
    if value not in fmt.KINDS:
        raise ValueError("unknown kind")
    return str(value)


def row(row: Any) -> Row:
    """A row of a table: name, dtype, shape."""
    name, dtype, shape = row
    return text(name, fmt.MAX_NAME), text(dtype, 100), tuple(integer(size, 0, MAX_SIZE) for size in items(shape, 64))


def hex_float(value: Any) -> str:
    """A float as hex text, checked to be one."""
    float.fromhex(text(value, 40))
    return str(value)
