"""Two members: .json, and .jsonl (one JSON value on each line), with numbers to the last bit.
 An integer and a float are different (`1` and `1.0`), `-0.0` is not `0.0`, floats are equal when their 64 bits are, `NaN`
and `Infinity` are taken by name, and a key that comes twice gives two leaves. Layout, the order of keys and escapes do not count.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

from repro_gate.trace.artifacts.interface import Contents, Leaf, Unreadable, on_time
from repro_gate.trace.artifacts.tree import Tree, digest_of, floating, integer, join, text

MAX_BYTES = 64 * 1024 * 1024
MAX_MARKS = 2_000_000  # brackets, braces and commas, also those in strings: a bound on what `json` builds before leaves are counted
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MARKS = re.compile(rb"[\[{,]")


@dataclass(frozen=True)
class _Number:
    """A number as the file spells it. Decimal conversion waits until it is known to be short."""

    spelling: str
    integral: bool


class _Pairs(list[tuple[str, Any]]):
    """An object's members, duplicates included."""


def read(file: BinaryIO) -> Contents:
    """The leaves of one JSON document: `history.2.loss`."""
    tree = Tree()
    _walk(tree, "", _parsed(_text(file)), 0)
    return tree.contents()


def read_lines(file: BinaryIO) -> Contents:
    """The leaves of JSON lines: `line 3.loss`. Empty lines count, and hold nothing."""
    tree = Tree()
    for number, line in enumerate(_text(file).split("\n"), 1):
        if line.strip():
            on_time()
            _walk(tree, f"line {number}", _parsed(line), 1)
    return tree.contents()


def _text(file: BinaryIO) -> str:
    file.seek(0)
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES // 2**20} MiB")
    for marks, _ in enumerate(_MARKS.finditer(data)):
        if marks > MAX_MARKS:
            raise Unreadable(f"it holds more than {MAX_MARKS:,} values")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable("it is no UTF-8") from error


def _parsed(document: str) -> Any:
    try:
        return json.loads(
            document,
            object_pairs_hook=_Pairs,
            parse_constant=_CONSTANTS.__getitem__,
            parse_int=lambda spelling: _Number(spelling, True),
            parse_float=lambda spelling: _Number(spelling, False),
        )
    except ValueError as error:
        raise Unreadable("it is no valid JSON") from error
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error


def _walk(tree: Tree, name: str, value: Any, depth: int) -> None:
    if isinstance(value, _Pairs):
        tree.structure(name, "object")
        for key, member in value:
            _walk(tree, join(name, key, depth), member, depth + 1)
    elif isinstance(value, list):
        tree.structure(name, f"array {len(value)}")
        for place, item in enumerate(value):
            _walk(tree, join(name, place, depth), item, depth + 1)
    if not isinstance(value, list):
        tree.add(name, _leaf(value))
    elif not value:
        tree.add(name, text("{}" if isinstance(value, _Pairs) else "[]", "object" if isinstance(value, _Pairs) else "array"))


def _leaf(value: Any) -> Leaf:
    if isinstance(value, _Number):
        return _number(value)
    if isinstance(value, float):
        return floating(value)
    if isinstance(value, bool):
        return integer(value)
    return text(value) if isinstance(value, str) else text("null", "None")


def _number(number: _Number) -> Leaf:
    """JSON has one spelling for each integer, so the spelling is the value; `-0` stays apart from `0`, and 1e999 from Infinity."""
    if not number.integral and math.isfinite(value := float(number.spelling)):
        return floating(value)
    spelling, dtype = number.spelling, "int" if number.integral else "float"
    shown = spelling if len(spelling) <= 64 else f"{spelling[:32]}… ({len(spelling):,} digits)"
    return Leaf("number", dtype, None, digest_of(dtype, spelling.encode()), shown)
