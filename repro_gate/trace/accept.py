"""Takes one event after another into the trace of its process, and refuses what does not follow
from the lines before it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

import msgspec

from . import format as fmt
from . import model as on
from .blocks import Block
from .model import Event, Trace


def add(trace: Trace, event: Event) -> None:
    """Put one event into the trace of its process. Raises ValueError or IndexError where it does
    not fit what came before."""
    match event:
        case on.Hello():
            trace.pid = event.pid
            trace.argv = event.argv
            trace.forked = event.forked
        case on.Facts():
            trace.facts.update(event.facts)
            trace.key = trace.facts.get("process", trace.key)
        case on.Table():
            trace.tables.append((event.kind, event.rows))
            _check_count(trace.tables, fmt.MAX_TABLES)
        case on.BlockLine():
            _add_block(trace, event)
        case on.Flags():
            for value in event.settings.values():
                _in_range(value, -(1 << 63), (1 << 64) - 1)
            trace.settings.append(event.settings)
            _check_count(trace.settings, 10_000)
        case on.StepMark():
            if event.step != len(trace.steps):
                raise ValueError(f"step {event.step} where {len(trace.steps)} was due")
            trace.settings[event.flags]
            trace.steps.append(event)
        case on.Distance():
            for row in event.rows:
                _in_range(row.max_ulp, 0, 1 << 65)
                measured = msgspec.structs.replace(row, step=event.step)
                trace.distances.append(measured)
        case on.Stopped() | on.End() | on.Resumed() | on.Preempted():
            if event.steps != len(trace.steps):
                count = len(trace.steps)
                raise ValueError(
                    f"it counts {event.steps} steps, the trace holds {count}"
                )
            trace.stopped = trace.stopped or isinstance(event, on.Stopped)
            trace.end = event.reason if isinstance(event, on.End) else None
            if isinstance(event, on.Preempted):
                trace.preempted = event.checkpoint
        case on.Distributions():
            if trace.distributions is not None:
                raise ValueError("they are written once")
            trace.distributions = event.versions
        case on.Variables():
            trace.variables = event.values
        case on.Loop():
            trace.loop = event.place
        case on.OpenedFiles():
            for file in event.rows:
                _check_path(file.path, file.inside)
        case on.Imports():
            for module in event.rows:
                _check_path(module.path)
        case on.LoaderSeen():
            _in_range(event.base_seed, -(1 << 63), (1 << 64) - 1)
    if isinstance(event, on.Seen):
        name = str(event.__struct_config__.tag)
        items = getattr(trace, name)
        items.extend(getattr(event, "rows", (event,)))
        _check_count(items, fmt.LIMITS[name])


def _add_block(trace: Trace, event: on.BlockLine) -> None:
    kind, rows = trace.tables[event.table]
    if len(event.digests) != fmt.DIGEST_BYTES * len(rows):
        raise ValueError(f"{len(event.digests)} bytes of digests for {len(rows)} rows")
    trace.budget.take(len(event.digests), fmt.ALL_DIGESTS)
    for value in event.values:
        float.fromhex(value)
    last = trace.blocks[-1].step if trace.blocks else -1
    if event.step < last:
        raise ValueError(f"step {event.step} after step {last}")
    if event.step > last:
        trace.at = {}
    at = trace.at[kind] = trace.at.get(kind, -1) + 1
    content = trace.budget.spool.put(event.digests)
    trace.blocks.append(
        Block(
            step=event.step,
            kind=kind,
            at=at,
            rows=rows,
            content=content,
            values=event.values,
        )
    )


def _check_count(items: Sequence[object], limit: int) -> None:
    if len(items) > limit:
        raise ValueError(f"more than {limit} of them")


def _in_range(value: object, low: int, high: int) -> None:
    """Raise ValueError beyond bounds that msgspec does not take: they are no 64-bit integers."""
    if isinstance(value, int) and not low <= value <= high:
        raise ValueError(f"no whole number in {low}..{high}")


def _check_path(path: str, inside: bool = False) -> None:
    """Raise ValueError for a path that is not in its shortest form: absolute, or below a folder if
    it is `inside` of it."""
    absolute = path.startswith("/")
    leaves = path in ("", ".", "..") or path.startswith("../")
    if posixpath.normpath(path) != path or absolute == inside or leaves:
        raise ValueError(
            "no absolute path in its shortest form, nor one below a folder"
        )
