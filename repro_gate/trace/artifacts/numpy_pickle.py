"""numpy's data types by their descriptions, and numpy arrays and scalars inside a pickle, as leaves.
Knows numpy's formats, not numpy.
"""

from __future__ import annotations

import re
from dataclasses import replace

from repro_gate.trace.artifacts.interface import MAX_SIZE, Leaf
from repro_gate.trace.artifacts.pickle_tree import Call, Global, Node
from repro_gate.trace.artifacts.strided import Budget, column_major, gather, row_major, tensor_leaf

_DESCRIPTION = re.compile(r"([<>|=]?)([?bBhHiIlLqQefdgFDGSUVMmcu])(\d{0,9})(\[[\w/]{1,32}\])?", re.ASCII)
_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
_DECODED = frozenset(("float16", "float32", "float64", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))))


def numpy_dtype(description: str) -> tuple[str, int] | None:
    """(name, bytes of one item) of numpy's `<f4`: `float32`, 4. None for object, structured and unknown types.

    A little-endian number has the name that torch gives it; every other type keeps its description, byte order included.
    """
    match = _DESCRIPTION.fullmatch(description)
    if match is None:
        return None
    order, letter, digits, unit = match.groups()
    if letter in "?b" and (letter == "?" or digits == "1"):
        return "bool", 1
    if not digits or (unit and letter not in "mM"):
        return None
    size = int(digits) * (4 if letter == "U" else 1)
    if letter in _NAMES and (order in ("<", "=") or size == 1):
        return f"{_NAMES[letter]}{size * 8}", size
    return (description, size) if letter in "fiucSUVmM" else None


def array_of(function: str, arguments: tuple[Node, ...], call: Call, budget: Budget) -> Leaf | None:
    """The leaf of a call that numpy's pickles make for an array or a scalar, else None."""
    if function == "numpy.core.multiarray.scalar" and len(arguments) == 2:
        leaf = _array(arguments[0], (), False, arguments[1], budget)
        return None if leaf is None else replace(leaf, kind="number" if leaf.dtype in _DECODED else leaf.kind)
    if function == "numpy.core.numeric._frombuffer" and len(arguments) == 4 and arguments[3] in ("C", "F"):
        return _array(arguments[1], arguments[2], arguments[3] == "F", arguments[0], budget)
    if function == "numpy.core.multiarray._reconstruct" and len(call.state) == 1:
        state = call.state[0]
        if isinstance(state, tuple) and len(state) == 5:
            return _array(state[2], state[1], state[3] is True, state[4], budget)
    return None


def _array(dtype: Node, shape: Node, fortran: bool, raw: Node, budget: Budget) -> Leaf | None:
    known, data = numpy_dtype(_description(dtype)), bytes_of(raw)
    if known is None or data is None or not isinstance(shape, tuple) or len(shape) > 64:
        return None
    if not all(type(size) is int and 0 <= size < MAX_SIZE for size in shape):
        return None
    name, size = known
    layout = row_major(shape, size)
    if layout.nbytes != len(data):
        return None
    budget.spend(layout)
    if not fortran:
        return tensor_leaf(name, shape, [data])
    layout = column_major(shape, size)
    budget.spend(layout)
    return tensor_leaf(name, shape, gather(memoryview(data), layout))


def _description(dtype: Node) -> str:
    """`<f4` of `numpy.dtype("f4", False, True)` with the state `(3, "<", …)`; empty for everything else."""
    if not (isinstance(dtype, Call) and _named(dtype, "numpy.dtype")):
        return ""
    base = dtype.arguments[0] if isinstance(dtype.arguments, tuple) and dtype.arguments else None
    state = dtype.state[0] if len(dtype.state) == 1 else None
    if not isinstance(base, str) or not isinstance(state, tuple) or len(state) < 8 or state[2] is not None or state[3] is not None:
        return ""
    unit = ""
    if len(state) > 8 and base[:1] in "mM":  # (…, metadata, (unit, numerator, denominator, events))
        details = state[8][1] if isinstance(state[8], tuple) and len(state[8]) == 2 else None
        if not isinstance(details, tuple) or len(details) != 4 or details[1:] != (1, 1, 1):
            return ""
        raw = bytes_of(details[0])
        unit = str(details[0]) if raw is None else raw.decode("ascii", "replace")
    order = state[1] if state[1] in ("<", ">", "|", "=") else ""
    return f"{order}{base}" + (f"[{unit}]" if unit else "")


def bytes_of(node: Node) -> bytes | None:
    """A byte string, also as protocol 2 writes it: `_codecs.encode(text, "latin1")`."""
    if isinstance(node, (bytes, bytearray)):
        return bytes(node)
    if isinstance(node, Call) and _named(node, "_codecs.encode") and isinstance(node.arguments, tuple) and len(node.arguments) == 2:
        text, codec = node.arguments
        if isinstance(text, str) and codec == "latin1":
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError:
                return None
    if isinstance(node, Call) and _named(node, "__builtin__.bytes", "builtins.bytes") and node.arguments == ():
        return b""
    return None


def _named(call: Call, *names: str) -> bool:
    return isinstance(call.function, Global) and str(call.function) in names
