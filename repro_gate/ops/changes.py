"""What is not the same in two catalogs: rows that repeat, differ or raise now and did not before,
prices, operators that came and went. Pure, and stored with nothing: two files are enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from repro_gate.ops.catalog import Arm, Catalog, Platform, Row

Kind = Literal[
    "differs",
    "repeats",
    "raises",
    "raises-no-more",
    "dearer",
    "cheaper",
    "outcome",
    "seldom",
    "new",
    "gone",
]
KINDS: tuple[Kind, ...] = (
    "differs",
    "raises",
    "dearer",
    "repeats",
    "raises-no-more",
    "cheaper",
    "outcome",
    "seldom",
    "new",
    "gone",
)
MOVED = 1.25  # between two prices: smaller changes come from the machine's mood
_Flags = Literal["off", "on", ""]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that changed. `flags` says in which arm; empty for prices and rows. `before` or
    `after` is None where a row is new or gone."""

    kind: Kind
    flags: _Flags
    before: Row | None
    after: Row | None

    @property
    def row(self) -> Row:
        """The row as it is now, or as it was last."""
        found = self.after or self.before
        assert found is not None
        return found


def changes(before: Catalog, after: Catalog) -> tuple[Change, ...]:
    """Every change, by kind, those that matter most first. A row that only one side holds is new or
    gone where both catalogs were to measure the same, so that an interrupted, shorter or other
    measurement takes nothing away."""
    old, new = (
        {(row.case, row.dtype, row.direction): row for row in catalog.rows}
        for catalog in (before, after)
    )
    found = [change for key, row in new.items() if key in old for change in _changed(old[key], row)]
    if _of_the_same(before, after):
        found += [
            Change(kind="new", flags="", before=None, after=row)
            for key, row in new.items()
            if key not in old
        ]
        found += [
            Change(kind="gone", flags="", before=row, after=None)
            for key, row in old.items()
            if key not in new
        ]
    return tuple(sorted(found, key=lambda change: KINDS.index(change.kind)))


def apart(before: Catalog, after: Catalog) -> tuple[int, int]:
    """How many rows only the first and only the second catalog holds and that are neither new nor
    gone, since other rows were asked for."""
    old, new = (
        {(row.case, row.dtype, row.direction) for row in catalog.rows}
        for catalog in (before, after)
    )
    return (0, 0) if _of_the_same(before, after) else (len(old - new), len(new - old))


def _of_the_same(before: Catalog, after: Catalog) -> bool:
    """Whether both are whole and were asked for the same rows: all, all of the quick ones, or by
    one command those that it chooses."""
    chosen = "some" in (before.scope, after.scope)
    return (
        before.complete
        and after.complete
        and (before.command == after.command if chosen else before.scope == after.scope)
    )


def platform_changes(before: Platform, after: Platform) -> tuple[tuple[str, str, str], ...]:
    """(name, before, after) of each property of the platform that changed."""
    names = Platform.__struct_fields__
    pairs = ((name, str(getattr(before, name)), str(getattr(after, name))) for name in names)
    return tuple(pair for pair in pairs if pair[1] != pair[2])


def _changed(old: Row, new: Row) -> Iterator[Change]:
    arms: tuple[tuple[_Flags, Arm, Arm], ...] = (("off", old.off, new.off), ("on", old.on, new.on))
    for flags, was, now in arms:
        if was.outcome != now.outcome:
            yield Change(kind=_kind(was, now), flags=flags, before=old, after=new)
    if old.price is not None and new.price is not None:
        if new.price.low > old.price.high and new.price.ratio > MOVED * old.price.ratio:
            yield Change(kind="dearer", flags="", before=old, after=new)
        elif new.price.high < old.price.low and old.price.ratio > MOVED * new.price.ratio:
            yield Change(kind="cheaper", flags="", before=old, after=new)


def _kind(was: Arm, now: Arm) -> Kind:
    if {was.outcome, now.outcome} == {"repeats", "differs"}:
        races, rests = (now, was) if now.outcome == "differs" else (was, now)
        if not _would_show(races, rests.runs):
            return "seldom"
        return "differs" if races is now else "repeats"
    if now.outcome in ("differs", "raises"):
        return "differs" if now.outcome == "differs" else "raises"
    return "raises-no-more" if was.outcome == "raises" else "outcome"


def _would_show(races: Arm, runs: int) -> bool:
    """Whether an operator that races as this one would have differed in so many executions, at 95
    %: n executions without a difference have a chance of (1 - p)^n."""
    share = max(races.differing, races.distinct - 1) / max(races.runs - 1, 1)
    return (1 - min(max(share, 0.0), 1.0)) ** max(runs - 1, 0) <= 0.05
