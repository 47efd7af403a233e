"""The catalog's rows from what two processes measured of each: digests of fresh processes compared,
and the price of the flags. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from repro_gate.compare import cost
from repro_gate.ops.catalog import Arm, Entry, Price, Row
from repro_gate.runs.operators import Death, Key, Line, Measured

MAX_DISPATCHED = 100
_FEWEST = 3  # timed executions of an arm, for a price
_RESOLUTION = 1e-3  # milliseconds; below it a time says nothing


def rows_of(first: Mapping[Key, Line], again: Mapping[Key, Line]) -> tuple[Row, ...]:
    """One row for each that the first process measured, in that order; `again` holds what the
    second one measured of it, if it did."""
    return tuple(_row(line, again.get(key)) for key, line in first.items())


def _row(line: Line, other: Line | None) -> Row:
    off, on = (_arm(line, other, name) for name in ("off", "on"))
    return Row(
        case=line.case,
        operator=line.operator[:300],
        source=line.source,
        documented=line.documented,
        dtype=line.dtype,
        direction=line.direction,
        kernel=line.kernel,
        form=line.form,
        dispatched=line.dispatched[:MAX_DISPATCHED],
        size=line.size,
        random=line.random,
        off=off,
        on=on,
        price=_price(line, other)
        if {off.outcome, on.outcome} <= {"repeats", "differs", "uninitialised"}
        else None,
    )


def _arm(line: Line, other: Line | None, name: str) -> Arm:
    """One arm of a row. What repeats in one process and is something else in a fresh one differs:
    unless its inputs do."""
    here: Measured = getattr(line, name)
    there: Measured | None = getattr(other, name) if other is not None else None
    found = msgspec.convert(msgspec.to_builtins(here), Arm)
    if there is None or other is None or here.outcome not in ("repeats", "differs"):
        return found
    if there.outcome in ("crash", "timeout"):
        message = (
            f"in a second process: {there.message}" if here.outcome == "repeats" else here.message
        )
        return msgspec.structs.replace(
            found,
            outcome=there.outcome if here.outcome == "repeats" else "differs",
            message=message,
        )
    if there.outcome in ("raises", "no-kernel") and line.inputs == other.inputs:
        message = f"it ran in one process and not in another: {there.message}"[:1_000]
        return msgspec.structs.replace(found, outcome="differs", message=message)
    if not there.digests or line.inputs != other.inputs:
        return found
    unlike = any(one != two for one, two in zip(here.digests, there.digests, strict=False))
    differs = unlike or "differs" in (here.outcome, there.outcome)
    far = [item.max_ulp for item in (here, there) if item.max_ulp is not None]
    return Arm(
        outcome="differs" if differs else "repeats",
        runs=here.runs + there.runs,
        differing=here.differing + (there.runs - there.differing if unlike else there.differing),
        distinct=max(len({*here.results, *there.results}), here.distinct, there.distinct),
        max_ulp=max(far, default=None),
        message="another process gave other bits"
        if differs and here.outcome == "repeats"
        else here.message,
    )


def _price(line: Line, other: Line | None) -> Price | None:
    """Over both processes, in which one operator may find the machine in other moods: the interval
    spans that of each. One process alone says too little: of thousands of rows, it times those that
    looked apart by chance as well."""
    found = [
        price(item.times_on_ms, item.times_off_ms) for item in (line, other) if item is not None
    ]
    told = [item for item in found if item is not None]
    if len(told) < 2:
        return None
    ratio = math.exp(fmean(math.log(item.ratio) for item in told))
    return Price(
        ratio=ratio, low=min(item.low for item in told), high=max(item.high for item in told)
    )


def price(on: Sequence[float], off: Sequence[float]) -> Price | None:
    """The ratio of the geometric means of two arms' times, in milliseconds, executed in turn, with
    the interval of `compare.cost` (Student's, of the difference of two means of logarithms). None
    for fewer than three of each, or times below the clock's."""
    count = min(len(on), len(off))
    if count < _FEWEST or min(*on, *off) < _RESOLUTION or not all(map(math.isfinite, (*on, *off))):
        return None
    sides = [[(value,) for value in times[:count]] for times in (on, off)]
    low, high = cost.interval(sides[0], sides[1])
    ratio = math.exp(
        fmean(math.log(value) for (value,) in sides[0])
        - fmean(math.log(value) for (value,) in sides[1])
    )
    tiny = 1e-9
    return Price(ratio=ratio, low=max(low / 100 + 1, tiny), high=max(high / 100 + 1, tiny))


def dead_row(listed: Line, death: Death, device: str) -> Line:
    """The row in which a process ended."""
    arm = Measured(outcome=death.outcome, message=death.message[:1_000])
    case, dtype, direction = death.row
    return Line(
        case=case,
        operator=listed.operator,
        source=listed.source,
        dtype=dtype,
        direction=direction,
        documented=listed.documented_on.get(device, {}).get(direction, ""),
        random=listed.random,
        off=arm,
        on=arm,
    )


def entries_of(listed: Iterable[Line], device: str) -> tuple[Entry, ...]:
    """torch's own list: each entry that a case measures, and those that none does."""
    found: dict[tuple[str, str], Entry] = {}
    for line in listed:
        for kind in {
            kind for kinds in line.documented_on.values() for kind in kinds.values() if kind
        }:
            here = kind in line.documented_on.get(device, {}).values()
            entry = Entry(
                entry=line.operator, says=kind, case=line.case if line.rows else None, here=here
            )
            found.setdefault((line.case, kind), entry)
    return tuple(found.values())
