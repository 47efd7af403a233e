"""What is not the same in two catalogs: rows that repeat, differ or raise now and did not before,
prices, operators that came and went. Pure: two files are enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from repro_gate.ops.catalog import Arm, Catalog, Key, Row

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


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that changed. `flags` says in which arm; empty for prices and rows. `before` or
    `after` is None if a row is new or gone."""

    kind: str
    flags: Literal["off", "on", ""] = ""
    before: Row | None = None
    after: Row | None = None


def changes(before: Catalog, after: Catalog) -> tuple[tuple[Change, ...], tuple[int, int]]:
    """Return every change, and how many rows only the first and only the second catalog holds
    without being new or gone.

    They are new or gone if both catalogs are whole and were asked for the same rows: all, all of
    the quick ones, or by one command those that it chooses. An interrupted, shorter or other
    measurement takes nothing away.
    """
    old, new = ({row.key: row for row in catalog.rows} for catalog in (before, after))
    found = [change for key, row in new.items() if key in old for change in _changed(old[key], row)]
    came, went = _without(new, old), _without(old, new)
    same = before.command == after.command
    if "some" not in (before.scope, after.scope):
        same = before.scope == after.scope
    if not (same and before.complete and after.complete):
        return tuple(found), (len(went), len(came))
    found += [Change(kind="new", after=row) for row in came]
    found += [Change(kind="gone", before=row) for row in went]
    return tuple(found), (0, 0)


def _without(rows: dict[Key, Row], others: dict[Key, Row]) -> list[Row]:
    return [row for key, row in rows.items() if key not in others]


def _changed(old: Row, new: Row) -> Iterator[Change]:
    if old.off.outcome != new.off.outcome:
        yield Change(kind=_kind(old.off, new.off), flags="off", before=old, after=new)
    if old.on.outcome != new.on.outcome:
        yield Change(kind=_kind(old.on, new.on), flags="on", before=old, after=new)
    was, now = old.price, new.price
    if was is not None and now is not None:
        if now.low > was.high and now.ratio > MOVED * was.ratio:
            yield Change(kind="dearer", before=old, after=new)
        elif now.high < was.low and was.ratio > MOVED * now.ratio:
            yield Change(kind="cheaper", before=old, after=new)


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
