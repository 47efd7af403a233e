"""The text of PTX as Triton emits it, taken apart for `tests.support.ptx`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.support.ptx.memory import Illegal

UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
TYPES: dict[str, Any] = {"pred": np.bool_}
for _size in UNSIGNED:
    TYPES[f"b{8 * _size}"] = TYPES[f"u{8 * _size}"] = UNSIGNED[_size]
    TYPES[f"s{8 * _size}"] = SIGNED[_size]

# what orders or caches an access, and changes no value here
HINTS = set(re.findall(r"\S+", "cta gpu sys relaxed acquire release acq_rel sc volatile weak nc"))
HINTS |= set(re.findall(r"\S+", "ca cg cs cv lu wb wt L2::cache_hint L2::64B L2::128B L2::256B"))
HINTS |= {f"L1::{way}" for way in ("evict_first", "evict_last", "evict_normal", "no_allocate")}
NUMBER = r"-?(0[xX][0-9a-fA-F]+|\d+)U?"
HINTED = {"ld", "st", "atom", "red", "fence"}


class Address(NamedTuple):
    """`[base + offset]`; the base is a register or a symbol."""

    base: str
    offset: int


class Instruction(NamedTuple):
    """One instruction. `name` is the opcode without types, hints and `.v2` or `.v4` (`width`);
    `guard` is the predicate's register, and `wanted` what it must be."""

    line: int
    opcode: str
    name: str
    types: tuple[str, ...]
    hints: frozenset[str]
    width: int
    guard: str | None
    wanted: bool
    operands: tuple[Any, ...]


@dataclass
class Entry:
    """One kernel. `symbols` are the places of its shared variables, `end` that of the dynamic
    ones."""

    params: list[tuple[str, str]] = field(default_factory=list)
    block: int | None = None  # threads that it asks for
    registers: dict[str, Any] = field(default_factory=dict)  # their types
    symbols: dict[str, int] = field(default_factory=dict)
    end: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)


@functools.lru_cache(maxsize=32)
def parsed(text: str, name: str) -> Entry:
    """Return the kernel of that name. Raise Illegal."""
    text = re.sub(r"//[^\n]*|(?m:^[ \t]*\.(loc|file|pragma)\b[^\n]*)", "", text)
    head = re.search(r"\.entry\s+" + re.escape(name) + r"\s*\(([^)]*)\)([^{]*)\{", text)
    if head is None:
        raise Illegal(f"there is no entry {name}")
    entry = Entry()
    for param in filter(str.strip, head[1].split(",")):
        words = param.split()
        entry.params.append((words[-1], words[1].lstrip(".")))
    if asked := re.search(r"\.reqntid\s+([\d, ]+)", head[2]):
        entry.block = int(np.prod([int(size) for size in asked[1].split(",")]))
    body = _body(text[head.end() :])
    outside = text[: text.index(".entry")]
    for kind in (r"\[(\d+)\]", r"\[()\]"):  # the dynamic ones lie behind the others
        pattern = r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)" + kind
        for align, symbol, size in re.findall(pattern, outside + body):
            entry.symbols[symbol] = -(-entry.end // int(align)) * int(align)
            entry.end = entry.symbols[symbol] + int(size or 0)
    first = text[: head.end()].count("\n") + 1
    for line, statement in _statements(body):
        _take(entry, first + line, statement)
    return entry


def _body(text: str) -> str:
    depth = 1
    for brace in re.finditer("[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    raise Illegal("the kernel's body does not end")


def _statements(body: str) -> Iterator[tuple[int, str]]:
    """Yield (line, statement or label); the braces of scopes are left out."""
    place = 0
    pattern = re.compile(r"\s*(?:[{}]\s*)*([\w$]+:(?!:)|[^;{}]\S[^;]*;|$)")
    while place < len(body):
        found = pattern.match(body, place)
        if found is None:
            raise Illegal(f"not understood: {body[place : place + 60]!r}")
        if found[1]:
            yield body[: found.start(1)].count("\n"), found[1].rstrip(";").strip()
        place = found.end() + (not found[1])


def _take(entry: Entry, line: int, statement: str) -> None:
    """Add one declaration, label or instruction to the kernel."""
    if statement.endswith(":"):
        entry.labels[statement[:-1]] = len(entry.code)
        return
    if statement.startswith(".reg"):
        _, kind, names = statement.split(None, 2)
        for name in names.replace(" ", "").split(","):
            stem, _, count = name.rstrip(">").partition("<")
            several = [f"{stem}{number}" for number in range(int(count or 0))] or [name]
            entry.registers.update(dict.fromkeys(several, TYPES[kind.lstrip(".")]))
        return
    if statement.startswith(".shared"):
        return
    found = re.match(r"(?:@(!?)([%\w$]+)\s+)?([\w.:]+)\s*(.*)", statement, re.DOTALL)
    if found is None:
        raise Illegal(f"line {line}: not understood: {statement}")
    refused, guard, opcode, rest = found.groups()
    parts = opcode.replace("shared::cta", "shared").split(".")
    types = tuple(part for part in parts if part in TYPES)
    hints = frozenset(HINTS.intersection(parts)) if parts[0] in HINTED else frozenset()
    wide = [part for part in parts if re.fullmatch(r"v\d", part)]
    name = ".".join(part for part in parts if part not in {*types, *hints, *wide})
    operands = [_operand(part) for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)]
    width = int(wide[0][1:]) if wide else 1
    made = (line, opcode, name, types, hints, width, guard, not refused, tuple(operands))
    entry.code.append(Instruction(*made))


def _operand(text: str) -> Any:
    """Return an int, a name, a tuple of names or an Address."""
    inner = text[1:-1].replace(" ", "")
    if text.startswith("{"):
        return tuple(inner.split(","))
    if text.startswith("["):
        base, _, offset = inner.partition("+")
        return Address(base, int(offset or "0", 0))
    return int(text.rstrip("U"), 0) if re.fullmatch(NUMBER, text) else text
