"""Finds the reason why another way of training differs, if the traces show it. Pure."""

from __future__ import annotations

import math
from statistics import fmean

from repro_gate.compare.distances import Processes
from repro_gate.compare.model import Apart
from repro_gate.compare.restored import batches, blocks_at
from repro_gate.trace.model import Trace

_SAME = 0.01  # Two scales of a gradient that differ by less count as equal.
_OTHER_DRAWS = (
    "torch's random numbers were drawn differently in the first step: dropout, or another "
    "order of draws"
)


def reason_of(ours: Processes, theirs: Processes, first: Apart | None) -> str:
    """Return the reason for a difference; empty if the traces do not show it. `first` is the first
    excessive difference."""
    own = next(iter(ours.values()))
    other = next(iter(theirs.values()))
    micro = len(blocks_at(other, 0, "loss")) or 1
    if first is not None and first.step < 0:
        return (
            "the model begins with other numbers: it is initialized in another way, or something "
            "draws before it is built"
        )
    by_rank = [batches(trace, 0) for trace in theirs.values()]
    is_one = all(item == by_rank[0] for item in by_rank)
    if len(by_rank) > 1 and by_rank[0] and is_one:
        return "every rank was given the same batches"
    shapes = {tuple(row[2] for row in it.rows) for it in blocks_at(other, 0, "batch")}
    if micro > 1 and len(shapes) > 1:
        return (
            f"the {micro} microbatches of a step have different shapes: the mean of their means is "
            "not the mean over all"
        )
    if first is not None and first.kind == "gradient":
        factor = _factor(theirs)
        if factor is not None:
            return _scale(factor, micro, len(theirs))
    if _drawn(own) != _drawn(other):
        return _OTHER_DRAWS
    if micro == 1 == len(theirs) and batches(own, 0) != by_rank[0]:
        return "its first batch differs"
    if first is None and len(other.steps) < len(own.steps):
        return "a window at the end was dropped"
    return ""


def _drawn(trace: Trace) -> bytes | None:
    """Return the state of torch's generator after the first step."""
    states = [dict(block.items()).get("torch") for block in blocks_at(trace, 0, "rng")]
    return states[-1] if states else None


def _factor(theirs: Processes) -> float | None:
    """Return the factor by which all first gradients of the other way differ; None if there is no
    common factor, or if their directions differ."""
    shares = []
    for trace in theirs.values():
        for item in trace.distances:
            is_first = item.kind == "gradient" and item.step == 0
            if is_first and item.l2 is not None and item.reference_l2:
                shares.append(item.l2 / item.reference_l2)
    is_finite = math.isfinite(sum(shares))
    if not (shares and is_finite) or max(shares) - min(shares) > _SAME * max(shares):
        return None
    share = fmean(shares)
    if share < 1 - _SAME:
        part = 1 / (1 - share)
        if round(part) > 1 and abs(part - round(part)) < _SAME * part:
            return 1 / round(part)
    return 1 + share if abs(share - round(share)) < _SAME * share else None


def _scale(factor: float, micro: int, ranks: int) -> str:
    """Return the likely cause of a factor of the gradient."""
    is_smaller = factor < 1
    count = round(1 / factor if is_smaller else factor)
    size = f"1/{count} of" if is_smaller else f"{count} times"
    words = f"every gradient is {size} the reference's"
    parts = {micro: "microbatches", ranks: "ranks"}.get(count)
    if parts is None:
        return words
    if is_smaller:
        return f"{words}: it is divided by the {count} {parts} twice"
    return f"{words}: it is summed over the {count} {parts}, not averaged"
