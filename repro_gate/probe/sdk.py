"""What `from repro_gate import record, step` does inside the gate, for training that never calls a
torch optimizer.

Reached through `repro_gate/__init__.py`; outside the gate this module is never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import sys
from typing import Any

from ..trace.format import DIGEST_BYTES, KINDS
from ..trace.writer import Row
from . import session
from .digest import Digests, begin, describe, unread
from .names import is_array, leaves, text_of
from .patch import held
from .process import prepares_data


def record(name: str, value: Any, kind: str | None = None) -> None:
    """Record a value of the step in progress: a number, text, bytes, array, tensor, or a nesting of
    these. `kind` is one of the trace's kinds; left out, a single number is a `loss` and everything
    else a `parameter`."""
    if kind is not None and kind not in KINDS:
        raise ValueError(
            f"repro_gate.record: kind {kind!r} is none of {', '.join(KINDS)}"
        )
    current = session.current()
    if not current.live:
        current.insist()
        if prepares_data():
            text = "repro_gate.record in a DataLoader's worker does nothing"
            text += ": record in the process that trains"
            current.note("record-in-worker", text)
        return
    if callable(getattr(value, "state_dict", None)):
        value = value.state_dict()
    items = list(leaves(value, name))
    if not items:
        raise TypeError(
            f"repro_gate.record: nothing in a {type(value).__name__} can be compared; give a "
            "number, text, bytes, an array, a tensor or a nesting of these"
        )
    current.explicit = True
    current.training_begins()
    with current.in_hook():
        single = len(items) == 1 and isinstance(items[0][1], (int, float))
        kind = kind or ("loss" if single else "parameter")
        values = hex_values(items) if kind == "loss" and single else None
        rows, digests = digest_leaves(items)
        current.recorded()
        current.block(kind, rows, digests, values)


def step() -> None:
    """Close the step in progress: from here on `record` speaks of the next one."""
    current = session.current()
    current.explicit = True
    if current.live and current.wants():
        current.training_begins()
        with current.in_hook():
            current.rng()
    current.end_step()


def digest_leaves(items: list[tuple[str, Any]]) -> tuple[tuple[Row, ...], Digests]:
    """Return rows and digests of leaves: torch tensors by `digest.begin`, arrays by their bytes,
    everything else by type and exact text."""
    torch = held("torch")
    kind = torch.Tensor if torch else ()
    tensors = {}
    rows = []
    others = []
    for index, (name, value) in enumerate(items):
        try:
            if issubclass(type(value), kind):
                row, digest = describe(name, value), bytes(DIGEST_BYTES)
                tensors[index] = value
            else:
                row, digest = _of_value(name, value)
        except Exception:  # a method of its class raises
            of = type(value)
            unread("values", f"{of.__module__}.{of.__qualname__}")
            row, digest = _of_value(name, of.__name__)
        rows.append(row)
        others.append(digest)
    digests = Digests(len(items))
    if len(tensors) < len(items):
        digests.add(range(len(items)), b"".join(others))
    if tensors:
        digests.add([*tensors], begin([*tensors.values()]))
    return tuple(rows), digests


def hex_values(items: list[tuple[str, Any]]) -> list[str] | None:
    """Return the values of numbers as hex floats, for the report to show; None where one of them is
    not a number."""
    with contextlib.suppress(OverflowError):  # an integer beyond any float
        if all(issubclass(type(value), (int, float)) for _, value in items):
            return [_float(value).hex() for _, value in items]
    return None


def _float(number: Any) -> float:
    """Return a number as a float, by no method of a class of the training's own."""
    base = float if issubclass(type(number), float) else int
    return base.__float__(number)


def _of_value(name: str, value: Any) -> tuple[Row, bytes]:
    shape: tuple[int, ...] = ()
    if is_array(value):
        numpy = held("numpy")
        # a column of pandas
        if not hasattr(value, "tobytes"):
            value = value.__array__()
        if numpy and issubclass(type(value), numpy.ndarray):
            value = numpy.ndarray.view(value, numpy.ndarray)
        # numpy, and what follows its interface (jax)
        dtype = value.dtype
        shape = tuple(map(int, value.shape))
        content = value.tobytes()
        if getattr(dtype, "hasobject", False):
            # by its leaves: no text that may have an address
            rows, digests = digest_leaves(list(leaves(value.ravel().tolist())))
            content = repr(rows).encode("utf-8", "replace") + digests.result()
    else:
        dtype = type(value).__name__
        content = value
        if issubclass(type(value), float):
            content = struct.pack("<d", value)
        elif not issubclass(type(value), bytes):
            content = text_of(value).encode("utf-8", "replace")
    row: Row = (name, str(dtype)[:100], shape)
    return row, hashlib.sha256(repr(row[1:]).encode() + content).digest()[:DIGEST_BYTES]
