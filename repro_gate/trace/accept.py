"""Takes one event after another into the trace of its process, and refuses what does not follow
from the lines before it."""

from __future__ import annotations

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
        case on.BlockLine():
            _add_block(trace, event)
        case on.Flags():
            trace.settings.append(event.settings)
        case on.StepMark():
            _check_steps(trace, event.step)
            trace.settings[event.flags]
            trace.steps.append(event)
        case on.Stopped() | on.End() | on.Resumed() | on.Preempted():
            _check_steps(trace, event.steps)
            trace.stopped = trace.stopped or isinstance(event, on.Stopped)
            trace.end = event.reason if isinstance(event, on.End) else None
            if isinstance(event, on.Preempted):
                trace.preempted = event.checkpoint
        case on.Distributions():
            trace.distributions = event.versions
        case on.Variables():
            trace.variables = event.values
        case on.Loop():
            trace.loop = event.place
    if isinstance(event, on.Seen):
        name = str(event.__struct_config__.tag)
        items = getattr(trace, name)
        items.extend(getattr(event, "rows", (event,)))
        if len(items) > fmt.LIMITS[name]:
            raise ValueError(f"more than {fmt.LIMITS[name]} of them")


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
    trace.at[kind] = trace.at.get(kind, -1) + 1
    block = Block(
        step=event.step,
        kind=kind,
        at=trace.at[kind],
        rows=rows,
        content=trace.budget.spool.put(event.digests),
        values=event.values,
    )
    trace.blocks.append(block)


def _check_steps(trace: Trace, count: int) -> None:
    """Raise ValueError unless the trace holds as many steps as an event counts before it."""
    if count != len(trace.steps):
        raise ValueError(
            f"after {count} steps, where the trace holds {len(trace.steps)}"
        )
