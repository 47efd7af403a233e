"""What two processes measured of one row, put together: digests of fresh processes compared, and
the price of the flags. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from msgspec.structs import replace

from repro_gate.compare import cost
from repro_gate.ops.catalog import Arm, Price, Row

_FEWEST = 3  # timed executions of an arm, for a price
_RESOLUTION = 1e-3  # milliseconds; below it a time says nothing


def merged(row: Row, again: Row | None) -> Row:
    """Return the catalog's row: `again` is what the second process measured of it, if it did."""
    off, on, price = row.off, row.on, None
    if again is not None:
        same_inputs = row.inputs == again.inputs
        off = _arm(row.off, again.off, same_inputs)
        on = _arm(row.on, again.on, same_inputs)
        if {off.outcome, on.outcome} <= {"repeats", "differs", "uninitialised"}:
            price = _price(price_of(row.on_ms, row.off_ms), price_of(again.on_ms, again.off_ms))
    off, on = replace(off, digests=()), replace(on, digests=())
    return replace(row, off=off, on=on, price=price, inputs="", off_ms=(), on_ms=())


def _arm(here: Arm, there: Arm, same_inputs: bool) -> Arm:
    """Return one arm of a row. What repeats in one process and is something else in a fresh one
    differs: unless its inputs do."""
    if here.outcome not in ("repeats", "differs"):
        return here
    if there.outcome in ("crash", "timeout"):
        message = f"in a second process: {there.message}"[:1_000]
        died = replace(here, outcome=there.outcome, message=message)
        return died if here.outcome == "repeats" else here
    if not same_inputs:
        return here
    if there.outcome in ("raises", "no-kernel"):
        message = f"it ran in one process and not in another: {there.message}"[:1_000]
        return replace(here, outcome="differs", message=message)
    unlike = any(one != two for one, two in zip(here.digests, there.digests, strict=False))
    differs = unlike or "differs" in (here.outcome, there.outcome)
    other = differs and here.outcome == "repeats"
    return Arm(
        outcome="differs" if differs else "repeats",
        runs=here.runs + there.runs,
        differing=here.differing + (there.runs - there.differing if unlike else there.differing),
        max_ulp=max(
            (far for far in (here.max_ulp, there.max_ulp) if far is not None), default=None
        ),
        message="another process gave other bits" if other else here.message,
    )


def _price(first: Price | None, second: Price | None) -> Price | None:
    """Return the price over both processes, in which one operator may find the machine in other
    moods: the interval spans that of each. One process alone says too little: of thousands of rows,
    it times those that looked apart by chance as well."""
    if first is None or second is None:
        return None
    low, high = min(first.low, second.low), max(first.high, second.high)
    return Price(ratio=math.sqrt(first.ratio * second.ratio), low=low, high=high)


def price_of(on: Sequence[float], off: Sequence[float]) -> Price | None:
    """Return the ratio of the geometric means of two arms' times, in milliseconds, executed in
    turn, with the interval of `compare.cost` (Student's, of the difference of two means of
    logarithms). None for fewer than three of each, or times below the clock's."""
    count = min(len(on), len(off))
    if count < _FEWEST or min(*on, *off) < _RESOLUTION:
        return None
    sides = [[(value,) for value in times[:count]] for times in (on, off)]
    low, high = (max(end / 100 + 1, 1e-9) for end in cost.interval(sides[0], sides[1]))
    means = [fmean(math.log(value) for (value,) in side) for side in sides]
    return Price(ratio=math.exp(means[0] - means[1]), low=low, high=high)
