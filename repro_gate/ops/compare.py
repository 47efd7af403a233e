"""What is not the same in two catalogs: rows that repeat, differ or raise now and did not before,
prices, operators that came and went. Pure: two files are enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from repro_gate.ops.catalog import Arm, Catalog, Row

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
MOVED = 1.25  # between two prices: smaller changes come from the machine's mood


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
    found = [
        Change(kind, old[key], row)
        for key, row in new.items()
        if key in old
        for kind in dict.fromkeys(_kinds(old[key], row))
    ]
    came, went = (
        [new[key] for key in new if key not in old],
        [old[key] for key in old if key not in new],
    )
    same = before.command == after.command
    if "some" not in (before.scope, after.scope):
        same = before.scope == after.scope
    if not (same and before.complete and after.complete):
        return found, (len(went), len(came))
    found += [Change("new", None, row) for row in came]
    found += [Change("gone", row, None) for row in went]
    return found, (0, 0)


def _kinds(old: Row, new: Row) -> Iterator[str]:
    for was, now in ((old.off, new.off), (old.on, new.on)):
        if was.outcome != now.outcome:
            yield _kind(was, now)
    before, after = old.price, new.price
    if before is not None and after is not None:
        if after.low > before.high and after.ratio > MOVED * before.ratio:
            yield "dearer"
        elif after.high < before.low and before.ratio > MOVED * after.ratio:
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
