"""Compares measurements: those that two processes made of one row, which become the catalog's row;
and two catalogs, of which it says which rows repeat, differ or raise now and did not before, which
prices moved, and which operators came and went. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import NamedTuple

from msgspec.structs import replace

from repro_gate.compare import cost
from repro_gate.ops.catalog import ENDED, Arm, Catalog, Price, Row

KINDS = (  # those that matter most first
    "newly differs",
    "newly raises",
    "dearer",
    "newly repeats",
    "no longer raises",
    "cheaper",
    "another outcome",
    "too seldom to call it a change",
    "new",
    "gone",
)
_FEWEST = 3  # timed executions of an arm, for a price
_RESOLUTION = 1e-3  # milliseconds; below it a time says nothing
_MOVED = 1.25  # between two prices: smaller changes come from the machine's mood


def merged(row: Row, again: Row | None) -> Row:
    """Return the catalog's row: `again` is what the second process measured of it, if it did."""
    off = row.off
    on = row.on
    price = None
    if again is not None:
        # of what ended its process nothing is known
        if again.inputs in (row.inputs, ""):
            off = _both(row.off, again.off)
            on = _both(row.on, again.on)
        if {off.outcome, on.outcome} <= {"repeats", "differs", "uninitialised"}:
            price = _widest(
                price_of(row.on_ms, row.off_ms), price_of(again.on_ms, again.off_ms)
            )
    off = replace(off, digests=())
    on = replace(on, digests=())
    return replace(row, off=off, on=on, price=price, inputs="", off_ms=(), on_ms=())


def _both(here: Arm, there: Arm) -> Arm:
    """Return one arm of a row that two processes measured. What repeats in one process and is
    something else in a fresh one differs."""
    repeated = here.outcome == "repeats"
    if not repeated and here.outcome != "differs":
        return here
    if there.outcome in ENDED:
        message = f"in a second process: {there.message}"[:1_000]
        ended = replace(here, outcome=there.outcome, message=message)
        return ended if repeated else here
    if there.outcome in ("raises", "no-kernel"):
        message = f"it ran in one process and not in another: {there.message}"[:1_000]
        return replace(here, outcome="differs", message=message)
    pairs = zip(here.digests, there.digests, strict=False)
    moved = any(one != two for one, two in pairs)
    differs = moved or "differs" in (here.outcome, there.outcome)
    distances = [far for far in (here.max_ulp, there.max_ulp) if far is not None]
    later = there.runs - there.differing if moved else there.differing
    return Arm(
        outcome="differs" if differs else "repeats",
        runs=here.runs + there.runs,
        differing=here.differing + later,
        max_ulp=max(distances, default=None),
        message="another process gave other bits"
        if differs and repeated
        else here.message,
    )


def _widest(first: Price | None, second: Price | None) -> Price | None:
    """Return the price over both processes, in which one operator may find the machine in other
    moods: the interval spans that of each. One process alone says too little: of thousands of rows,
    it times those that looked apart by chance as well."""
    if first is None or second is None:
        return None
    low = min(first.low, second.low)
    high = max(first.high, second.high)
    return Price(ratio=math.sqrt(first.ratio * second.ratio), low=low, high=high)


def price_of(on: Sequence[float], off: Sequence[float]) -> Price | None:
    """Return the ratio of the geometric means of two arms' times, in milliseconds, executed in
    turn, with the interval of `compare.cost` (Student's, of the difference of two means of
    logarithms). None for fewer than three of each, or times below the clock's."""
    if min(len(on), len(off)) < _FEWEST or min(*on, *off) < _RESOLUTION:
        return None
    low, high = (max(end / 100 + 1, 1e-9) for end in cost.interval(on, off))
    ratio = geometric_mean(on) / geometric_mean(off)
    return Price(ratio=ratio, low=low, high=high)


class Change(NamedTuple):
    """A row that changed in one way; `before` or `after` is None if it is new or gone."""

    kind: str
    before: Row | None
    after: Row | None


def changes(before: Catalog, after: Catalog) -> tuple[list[Change], tuple[int, int]]:
    """Return every change, and how many rows only the first and only the second catalog holds
    without being new or gone.

    They are new or gone if both catalogs are whole and were asked for the same rows: all, all of
    the quick ones, or by one command those that it chooses. An interrupted, shorter or other
    measurement takes nothing away.
    """
    old, new = ({row.key: row for row in catalog.rows} for catalog in (before, after))
    came = [Change("new", None, row) for key, row in new.items() if key not in old]
    went = [Change("gone", row, None) for key, row in old.items() if key not in new]
    found = []
    for key in filter(old.get, new):
        kinds = dict.fromkeys(_kinds(old[key], new[key]))
        found += [Change(kind, old[key], new[key]) for kind in kinds]
    asked = [
        (catalog.complete, catalog.scope, catalog.scope == "some" and catalog.command)
        for catalog in (before, after)
    ]
    if asked[0] != asked[1] or not before.complete:
        return found, (len(went), len(came))
    return found + came + went, (0, 0)


def _kinds(old: Row, new: Row) -> Iterator[str]:
    for was, now in ((old.off, new.off), (old.on, new.on)):
        if was.outcome != now.outcome:
            yield _kind(was, now)
    before = old.price
    after = new.price
    if before is not None and after is not None:
        if after.low > before.high and after.ratio > _MOVED * before.ratio:
            yield "dearer"
        elif after.high < before.low and before.ratio > _MOVED * after.ratio:
            yield "cheaper"


def _kind(was: Arm, now: Arm) -> str:
    if {was.outcome, now.outcome} == {"repeats", "differs"}:
        races, rests = (now, was) if now.outcome == "differs" else (was, now)
        # n executions without a difference have a chance of (1 - p)^n: would it have shown at 95 %?
        share = min(races.differing / max(races.runs - 1, 1), 1.0)
        if (1 - share) ** max(rests.runs - 1, 0) > 0.05:
            return "too seldom to call it a change"
        return f"newly {now.outcome}"
    if now.outcome in ("differs", "raises"):
        return f"newly {now.outcome}"
    return "no longer raises" if was.outcome == "raises" else "another outcome"
