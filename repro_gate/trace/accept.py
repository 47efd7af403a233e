"""Takes one event after another into the trace of its process, and refuses what does not follow
from the lines before it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

import msgspec

from . import format as fmt
from . import model as on
from .blocks import Block
from .model import Event, Trace

MAX_FIRST = 1000  # settings undone, connections and notes of one process: the first are kept
MAX_NONFINITE = 1000
LISTS: dict[type[Event], tuple[str, int]] = {  # the field of a trace that holds them, and how many
    on.Drawn: ("drawn", fmt.MAX_DRAWN),
    on.Spawned: ("spawned", fmt.MAX_SPAWNED),
    on.Used: ("uses", fmt.MAX_USES),
    on.OperatorLine: ("operators", fmt.MAX_OPERATORS),
    on.Refused: ("refused", fmt.MAX_REFUSED),
}


def add(trace: Trace, event: Event) -> None:
    """Put one event into the trace of its process. Raises ValueError or IndexError where it does
    not fit what came before."""
    match event:
        case on.Hello():
            trace.pid, trace.key = event.pid, event.key
            trace.argv, trace.forked = event.argv, event.forked
        case on.Facts():
            trace.facts.update(event.facts)
            trace.key = trace.facts.get("process", trace.key)
        case on.Table():
            _in_order("tables", event.id, len(trace.tables), fmt.MAX_TABLES)
            trace.tables.append((event.kind, event.rows))
        case on.BlockLine():
            _add_block(trace, event)
        case on.Flags():
            _in_order("readings", event.id, len(trace.settings), 10_000)
            for value in event.settings.values():
                _in_range(value, -(1 << 63), (1 << 64) - 1)
            trace.settings.append(event.settings)
        case on.StepMark():
            if event.step != len(trace.steps):
                raise ValueError(f"step {event.step} where {len(trace.steps)} was due")
            trace.settings[event.flags]
            trace.steps.append(event)
        case on.Distance():
            for row in event.rows:
                _in_range(row.max_ulp, 0, 1 << 65)
            trace.distances += [msgspec.structs.replace(row, step=event.step) for row in event.rows]
        case on.Stopped() | on.End() | on.Resumed():
            if event.steps != len(trace.steps):
                raise ValueError(
                    f"it counts {event.steps} steps, the trace holds {len(trace.steps)}"
                )
            trace.stopped = trace.stopped or isinstance(event, on.Stopped)
            trace.end = event.reason if isinstance(event, on.End) else None
        case on.Undone():
            _keep_first(trace.undone, event)
        case on.Network():
            _keep_first(trace.network, event.address)
        case on.Note() if event.id == fmt.LOOP:
            trace.loop = event.message
        case on.Note():
            _keep_first(trace.notes, (event.id, event.message))
        case on.OpenedFiles():
            for file in event.files:
                if file.inside and (
                    file.path in ("", ".", "..") or file.path.startswith(("/", "../"))
                ):
                    raise ValueError("no path below a folder")
                _normal(file.path, file.inside)
            _add(trace.opened, event.files, fmt.MAX_OPENED)
        case on.Imports():
            for module in event.modules:
                _normal(module.path)
            _add(trace.imports, event.modules, 2 * fmt.MAX_IMPORTS)
        case on.LoaderSeen():
            _in_order("loaders", event.number, len(trace.loaders), fmt.MAX_LOADERS)
            _in_range(event.base_seed, -(1 << 63), (1 << 64) - 1)
            trace.loaders.append(event)
        case on.Distributions():
            if trace.distributions is not None:
                raise ValueError("they are written once")
            trace.distributions = event.versions
        case on.Variables():
            trace.variables = event.values
        case on.Dispatched():
            trace.dispatched = list(event.rows)
        case on.Nonfinite():
            _add(trace.nonfinite, event.rows, MAX_NONFINITE)
        case on.Unmoved():
            trace.unmoved = list(event.rows)
        case _:
            name, limit = LISTS[type(event)]
            _add(getattr(trace, name), [event], limit)


def _add_block(trace: Trace, event: on.BlockLine) -> None:
    kind, rows = trace.tables[event.table]
    if event.kind != kind:
        raise ValueError("its table is of another kind")
    before, block = trace.before.get(event.table, (b"", None))
    digests = (
        event.digests if event.changed is None else _patched(before, event.digests, event.changed)
    )
    if len(digests) != fmt.DIGEST_BYTES * len(rows):
        raise ValueError(f"{len(digests)} bytes of digests for {len(rows)} rows")
    if block is not None and before == digests:
        content = block.content  # what does not change costs nothing
    else:
        trace.budget.take(len(digests), fmt.ALL_DIGESTS)
        trace.budget.take(len(digests) - len(event.digests), fmt.UNFOLDED)
        content = trace.budget.spool.put(digests)
    for value in event.values:
        float.fromhex(value)
    last = trace.blocks[-1].step if trace.blocks else -1
    if event.step < last:
        raise ValueError(f"step {event.step} after step {last}")
    if event.step > last:
        trace.at = {}
    if event.at != trace.at.get(kind, 0):
        raise ValueError(f"block {event.at} of its kind where {trace.at.get(kind, 0)} was due")
    trace.at[kind] = event.at + 1
    trace.blocks.append(
        Block(
            step=event.step, kind=kind, at=event.at, rows=rows, content=content, values=event.values
        )
    )
    trace.before[event.table] = digests, trace.blocks[-1]


def _patched(before: bytes, digests: bytes, changed: bytes) -> bytes:
    """The digests of a table's last block with those that changed put in."""
    count, size = len(before) // fmt.DIGEST_BYTES, fmt.DIGEST_BYTES
    if len(changed) != -(-count // 8):
        raise ValueError(f"{len(changed)} bytes say which of {count} rows changed")
    rows = [
        8 * place + bit
        for place, bits in enumerate(changed)
        if bits
        for bit in range(8)
        if bits >> bit & 1
    ]
    if len(digests) != size * len(rows) or int.from_bytes(changed, "little") >> count:
        raise ValueError(f"{len(digests)} bytes of digests for {len(rows)} rows that changed")
    found = bytearray(before)
    for number, row in enumerate(rows):
        found[row * size : (row + 1) * size] = digests[number * size : (number + 1) * size]
    return bytes(found)


def _keep_first(kept: list[Any], item: Any) -> None:
    if len(kept) < MAX_FIRST:
        kept.append(item)


def _add(kept: list[Any], more: Sequence[Any], limit: int) -> None:
    if len(kept) + len(more) > limit:
        raise ValueError(f"more than {limit} of them")
    kept += more


def _in_order(what: str, number: int, due: int, limit: int) -> None:
    if number != due or due >= limit:
        raise ValueError(f"{what} are numbered from 0 in order, {limit} at most")


def _in_range(value: object, low: int, high: int) -> None:
    """Bounds that msgspec does not take: they are no 64-bit integers."""
    if isinstance(value, int) and not low <= value <= high:
        raise ValueError(f"no whole number in {low}..{high}")


def _normal(path: str, relative: bool = False) -> None:
    if posixpath.normpath(path) != path or (not relative and not path.startswith("/")):
        raise ValueError("no absolute path in its shortest form")
