"""Compares measurements: those that two processes made of one row, which become the catalog's row;
and two catalogs, of which it says which rows repeat, differ or raise now and did not before, which
prices moved, and which operators came and went. Pure."""

from __future__ import annotations

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
_COMPUTES = ("repeats", "differs", "uninitialised")  # outcomes that can have a price
_FEWEST = 3  # timed executions of an arm, for a price
_RESOLUTION = 1e-3  # milliseconds; below it a time says nothing
_MOVED = 1.25  # between two prices: smaller changes come from the machine's mood


def merged(row: Row, again: Row | None) -> Row:
    """Return the catalog's row: `again` is what the second process measured of it, if it did."""
    arms = [row.off, row.on]
    price = None
    if again is not None:
        # Of what ended its process nothing is known.
        if again.inputs in (row.inputs, ""):
            arms = [_both(row.off, again.off), _both(row.on, again.on)]
        if all(arm.outcome in _COMPUTES for arm in arms):
            price = _widest(row, again)
    off, on = (replace(arm, digests=()) for arm in arms)
    return replace(
        row,
        off=off,
        on=on,
        price=price,
        inputs="",
        off_ms=(),
        on_ms=(),
    )


def _both(here: Arm, there: Arm) -> Arm:
    """Return one arm of a row that two processes measured. What repeats in one process and is
    something else in a fresh one differs."""
    if here.outcome not in ("repeats", "differs"):
        return here
    repeated = here.outcome == "repeats"
    if there.outcome in ENDED:
        message = f"in a second process: {there.message}"[:1_000]
        ended = replace(here, outcome=there.outcome, message=message)
        return ended if repeated else here
    if there.outcome not in ("repeats", "differs"):
        message = f"it ran in one process and not in another: {there.message}"[:1_000]
        return replace(here, outcome="differs", message=message)
    digests = zip(here.digests, there.digests, strict=False)
    moved = any(one != two for one, two in digests)
    differs = moved or "differs" in (here.outcome, there.outcome)
    later = there.runs - there.differing if moved else there.differing
    distances = filter(None, (here.max_ulp, there.max_ulp))
    other = "another process gave other bits"
    return Arm(
        outcome="differs" if differs else "repeats",
        runs=here.runs + there.runs,
        differing=here.differing + later,
        max_ulp=max(distances, default=None),
        message=other if differs and repeated else here.message,
    )


def _widest(row: Row, again: Row) -> Price | None:
    """Return the price over both processes, in which one operator may find the machine in other
    moods: the interval spans that of each. One process alone says too little: of thousands of rows,
    some look apart by chance."""
    here, there = (price_of(item.on_ms, item.off_ms) for item in (row, again))
    if here is None or there is None:
        return None
    return Price(
        ratio=geometric_mean((here.ratio, there.ratio)),
        low=min(here.low, there.low),
        high=max(here.high, there.high),
    )


def price_of(on: Sequence[float], off: Sequence[float]) -> Price | None:
    """Return the ratio of the geometric means of two arms' times, in milliseconds, executed in
    turn, with the interval of `compare.cost` (Student's, of the difference of two means of
    logarithms). None for fewer than three of each, or times below the clock's."""
    if min(len(on), len(off)) < _FEWEST:
        return None
    if min(*on, *off) < _RESOLUTION:
        return None
    low, high = cost.interval(on, off)
    return Price(
        ratio=geometric_mean(on) / geometric_mean(off),
        low=max(low / 100 + 1, 1e-9),
        high=max(high / 100 + 1, 1e-9),
    )


class Change(NamedTuple):
    """A row that changed in one way; `before` or `after` is None if it is new or gone."""

    kind: str
    before: Row | None
    after: Row | None


def changes(
    before: Catalog,
    after: Catalog,
) -> tuple[list[Change], tuple[int, int]]:
    """Return every change, and how many rows only the first and only the second catalog holds
    without being new or gone.

    They are new or gone if both catalogs are whole and were asked for the same rows: all, or by one
    command those that it chooses. An interrupted or another measurement takes nothing away.
    """
    old = {row.key: row for row in before.rows}
    came = []
    found = []
    for row in after.rows:
        was = old.pop(row.key, None)
        if was is None:
            came.append(Change("new", None, row))
            continue
        kinds = dict.fromkeys(_kinds(was, row))
        found += [Change(kind, was, row) for kind in kinds]
    went = [Change("gone", row, None) for row in old.values()]
    if before.complete and _chosen(before) == _chosen(after):
        return found + came + went, (0, 0)
    return found, (len(went), len(came))


def _chosen(catalog: Catalog) -> tuple[object, ...]:
    is_part = catalog.scope == "some"
    return catalog.complete, catalog.scope, is_part and catalog.command


def _kinds(old: Row, new: Row) -> Iterator[str]:
    for was, now in ((old.off, new.off), (old.on, new.on)):
        if was.outcome != now.outcome:
            yield _kind(was, now)
    if _is_dearer(new.price, old.price):
        yield "dearer"
    elif _is_dearer(old.price, new.price):
        yield "cheaper"


def _is_dearer(one: Price | None, other: Price | None) -> bool:
    if one is None or other is None:
        return False
    return one.low > other.high and one.ratio > _MOVED * other.ratio


def _kind(was: Arm, now: Arm) -> str:
    if {was.outcome, now.outcome} == {"repeats", "differs"}:
        races, rests = was, now
        if now.outcome == "differs":
            races, rests = now, was
        # n executions without a difference have a chance of (1 - p)^n: would it have shown at 95 %?
        share = min(races.differing / max(races.runs - 1, 1), 1.0)
        chance = (1 - share) ** max(rests.runs - 1, 0)
        if chance > 0.05:
            return "too seldom to call it a change"
        return f"newly {now.outcome}"
    if now.outcome in ("differs", "raises"):
        return f"newly {now.outcome}"
    return "no longer raises" if was.outcome == "raises" else "another outcome"
