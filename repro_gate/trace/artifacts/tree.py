"""Names and leaves collected under limits: the one builder that every member writes to, and the leaves of plain values.
Names and values come from a hostile file, so their number and length are counted here, once.
"""

from __future__ import annotations

import hashlib
import math
import struct

from repro_gate.trace.artifacts.interface import (
    MAX_DEPTH,
    MAX_INPUTS,
    MAX_NAME,
    MAX_NAME_TOTAL,
    MAX_VALUE,
    ROOT,
    Contents,
    Leaf,
    Unreadable,
    on_time,
)

_MAX_DECIMAL_BITS = 4096  # a longer integer is shown by its length: decimal conversion is quadratic
_MODULUS = 1 << 256


class Tree:
    """Leaves by name in the order of the file. A name that comes twice gets ` (2)` behind it."""

    def __init__(self) -> None:
        self.leaves: dict[str, Leaf] = {}
        self._characters = 0
        self._structure = 0
        self._seen: dict[str, int] = {}

    def add(self, name: str, leaf: Leaf) -> None:
        """Take one leaf. Raises Unreadable above the limits."""
        on_time()
        name = printable(name) or ROOT
        self._seen[name] = count = self._seen.get(name, 0) + 1
        while count > 1 and f"{name} ({count})" in self.leaves:
            count += 1
        if count > 1:
            self._seen[name] = count
            name = f"{name} ({count})"
        self._characters += len(name) + len(leaf.value or "")
        if len(self.leaves) >= MAX_INPUTS:
            raise Unreadable(f"it holds more than {MAX_INPUTS:,} leaves")
        if len(name) > MAX_NAME or self._characters > MAX_NAME_TOTAL:
            raise Unreadable("its names are too long")
        self.leaves[name] = leaf

    def structure(self, name: str, what: str) -> None:
        """Remember that `name` is a container of type `what`. Sums of digests: the order in which containers are met does not count."""
        line = f"{name}\0{what}".encode("utf-8", "surrogatepass")
        self._structure = (self._structure + int.from_bytes(hashlib.sha256(line).digest(), "big")) % _MODULUS

    def contents(self, note: str = "") -> Contents:
        """Everything collected so far."""
        return Contents(self.leaves, f"{self._structure:064x}", note)


def join(name: str, key: object, depth: int = 0) -> str:
    """The name of what lies under `key` in `name`: `optimizer.state.0`. Raises Unreadable where names or nesting pass the limits."""
    if depth > MAX_DEPTH:
        raise Unreadable(f"it is nested deeper than {MAX_DEPTH} levels")
    joined = f"{name}.{key}" if name else str(key)
    if len(joined) > MAX_NAME:
        raise Unreadable(f"a name is longer than {MAX_NAME:,} characters")
    return joined


def printable(text: str) -> str:
    """`text` with lone surrogates spelled out, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def digest_of(kind: str, data: bytes) -> str:
    """The hex sha256 of a plain value, its type included."""
    on_time()
    return hashlib.sha256(kind.encode() + b"\0" + data).hexdigest()


def text(value: str, dtype: str = "str") -> Leaf:
    """A leaf for text."""
    data = value.encode("utf-8", "surrogatepass")
    shown = printable(value[: MAX_VALUE + 1])
    return Leaf("text", dtype, None, digest_of(dtype, data), shown if len(shown) <= MAX_VALUE else shown[: MAX_VALUE - 1] + "…")


def binary(value: bytes | bytearray, dtype: str = "bytes") -> Leaf:
    """A leaf for a byte string: digest and length."""
    return Leaf("bytes", dtype, (len(value),), digest_of(dtype, bytes(value)), value.hex() if len(value) <= 32 else None)


def integer(value: int) -> Leaf:
    """A leaf for a Python integer of any size."""
    if isinstance(value, bool):
        return Leaf("number", "bool", None, digest_of("bool", str(value).encode()), str(value))
    if value.bit_length() > _MAX_DECIMAL_BITS:
        return Leaf("number", "int", None, digest_of("int", hex(value).encode()), f"an integer of {value.bit_length():,} bits")
    return Leaf("number", "int", None, digest_of("int", str(value).encode()), str(value))


def floating(value: float) -> Leaf:
    """A leaf for a float64, to the last bit: -0.0 is not 0.0, and the payload of a NaN counts."""
    bits = struct.pack("<d", value)
    return Leaf("number", "float", None, digest_of("float", bits), shown_float(value, bits))


def shown_float(value: float, bits: bytes) -> str:
    """`repr`, and the bits of a NaN that is not the usual one."""
    if math.isnan(value) and bits != struct.pack("<d", math.nan):
        return f"nan (0x{bits[::-1].hex()})"
    return repr(value)
