"""What `from repro_gate import record, step` does inside the gate, for training that never calls a
torch optimizer.

Reached through `repro_gate/__init__.py`; outside the gate this module is never loaded.
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from typing import Any, List, Optional, Tuple

from ..trace.format import DIGEST_BYTES, KINDS
from ..trace.writer import Row
from . import session
from .digest import Digests, begin, describe
from .names import leaves
from .process import prepares_data

_SHA256 = hashlib.sha256
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")  # in the text of an object that has none of its own


def record(name: str, value: Any, kind: Optional[str] = None) -> None:
    """Record a value of the step in progress: a number, text, bytes, array, tensor, or a nesting of
    these. `kind` is one of the trace's kinds; left out, a single number is a `loss` and everything
    else a `parameter`."""
    if kind is not None and kind not in KINDS:
        raise ValueError("repro_gate.record: kind %r is none of %s" % (kind, ", ".join(KINDS)))
    current = session.current()
    if not current.live:
        current.insist()
        if prepares_data():
            current.note(
                "record-in-worker",
                "repro_gate.record in a DataLoader's worker does nothing: record in the process "
                "that trains",
            )
        return
    if callable(getattr(value, "state_dict", None)):
        value = value.state_dict()
    items = list(leaves(value, name))
    if not items:
        raise TypeError(
            "repro_gate.record: nothing in a %s can be compared; give a number, text, bytes, an "
            "array, a tensor or a nesting of these" % type(value).__name__
        )
    current.explicit = True
    current.training_begins()
    with current.own_time():
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
        with current.own_time():
            current.rng()
    current.end_step()


def digest_leaves(items: List[Tuple[str, Any]]) -> Tuple[Tuple[Row, ...], Digests]:
    """Rows and digests of leaves: torch tensors by `digest.begin`, arrays by their bytes,
    everything else by type and exact text."""
    torch = sys.modules.get("torch")
    tensors = [
        index
        for index, (_, value) in enumerate(items)
        if torch is not None and isinstance(value, torch.Tensor)
    ]
    among = set(tensors)
    found = [
        (describe(*item), b"") if index in among else _plain(*item)
        for index, item in enumerate(items)
    ]
    digests = begin(torch, [items[index][1] for index in tensors]) if tensors else Digests([], ())
    return tuple(row for row, _ in found), digests.among(tensors, [digest for _, digest in found])


def hex_values(items: List[Tuple[str, Any]]) -> Optional[List[str]]:
    """The values of numbers as hex floats, for the report to show; None where one of them is not a
    number."""
    try:
        return (
            [float(value).hex() for _, value in items]
            if all(isinstance(value, (int, float)) for _, value in items)
            else None
        )
    except OverflowError:  # an integer beyond any float
        return None


def _plain(name: str, value: Any) -> Tuple[Row, bytes]:
    # a column of pandas
    if hasattr(value, "dtype") and not hasattr(value, "tobytes") and hasattr(value, "__array__"):
        value = value.__array__()
    # numpy, and what follows its interface (jax)
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        row: Row = (name, str(value.dtype)[:100], tuple(int(size) for size in value.shape))
        content = _objects(value.ravel().tolist()) if value.dtype == object else value.tobytes()
    else:
        row = (name, type(value).__name__[:100], ())
        content = struct.pack("<d", value) if isinstance(value, float) else value
        content = content if isinstance(content, bytes) else repr(value).encode("utf-8", "replace")
    return row, _SHA256(repr(row[1:]).encode() + content).digest()[:DIGEST_BYTES]


def _objects(items: List[Any]) -> bytes:
    """What an array of objects holds: arrays and containers by their leaves, everything else by
    type and text without its address."""
    state = _SHA256()
    for item in items:
        if hasattr(item, "dtype") or isinstance(item, (dict, list, tuple)):
            rows, digests = digest_leaves(list(leaves(item)))
            content = repr(rows).encode("utf-8", "replace") + digests.result()
        else:
            content = _ADDRESS.sub("", repr(item)).encode("utf-8", "replace")
        state.update(
            ("%s %d " % (type(item).__name__, len(content))).encode("utf-8", "replace") + content
        )
    return state.digest()
