"""What changed between two catalogs, both ways, and what must not count as a change."""

from __future__ import annotations

import pytest

from repro_gate.ops.catalog import Arm, Catalog
from repro_gate.ops.compare import changes
from tests.support.operators import DIFFERS, RAISES, REPEATS, catalog, changed, price, row

RACES = Arm(outcome="differs", runs=12, differing=8)
CRASH = Arm(outcome="crash", message="signal 6")


def kinds(before: Catalog, after: Catalog) -> list[tuple[str, str]]:
    found = changes(before, after)[0]
    return [(it.kind, row.case) for it in found if (row := it.after or it.before) is not None]


@pytest.mark.parametrize(
    ("was", "now", "there", "back"),
    [
        (REPEATS, RACES, "newly differs", "newly repeats"),
        (REPEATS, RAISES, "newly raises", "no longer raises"),
        (DIFFERS, RAISES, "newly raises", "newly differs"),
        (REPEATS, CRASH, "another outcome", "another outcome"),
        (RAISES, CRASH, "no longer raises", "newly raises"),
    ],
)
@pytest.mark.parametrize("flags", ["off", "on"])
def test_a_change_is_told_both_ways(was: Arm, now: Arm, there: str, back: str, flags: str) -> None:
    before, after = (catalog(row("a"), row("x", **{flags: arm})) for arm in (was, now))
    assert kinds(before, after) == [(there, "x")]
    assert kinds(after, before) == [(back, "x")]
    assert kinds(before, before) == kinds(after, after) == []


def test_a_price_changed_only_if_the_intervals_lie_apart_and_it_is_a_quarter() -> None:
    cheap, wide, little, dear = (
        catalog(row("x", price=price(*given)))
        for given in ((1.0, 0.9, 1.1), (1.5, 1.05, 2.2), (1.15, 1.12, 1.2), (2.0, 1.8, 2.2))
    )
    assert kinds(cheap, dear) == [("dearer", "x")]
    assert kinds(dear, cheap) == [("cheaper", "x")]
    for other in (wide, little, catalog(row("x"))):
        assert kinds(cheap, other) == kinds(other, cheap) == []


def test_rows_come_and_go_only_between_whole_catalogs_that_were_asked_for_the_same() -> None:
    one, two = catalog(row("a"), row("gone")), catalog(row("a"), row("a", dtype="int64"))
    assert kinds(one, two) == [("new", "a"), ("gone", "gone")]
    assert changes(one, two)[1] == (0, 0)
    for other in (changed(two, complete=False), changed(two, scope="quick")):
        assert kinds(one, other) == [] and changes(one, other)[1] == (1, 1)
    index, pool = (
        changed(catalog(row("a"), row(name)), scope="some", command=f"repro-gate ops --only {name}")
        for name in ("index", "pool")
    )
    assert kinds(index, pool) == [] and changes(index, pool)[1] == (1, 1)
    later = changed(pool, command=index.command)
    assert kinds(index, later) == [("new", "pool"), ("gone", "index")]
    assert kinds(index, one) == [] and changes(index, one)[1] == (1, 1)


def test_more_runs_other_messages_and_a_rare_race_that_may_have_been_missed_are_no_change() -> None:
    other = Arm(outcome="differs", runs=90, differing=40, max_ulp=9, message="m")
    found = row("x", other, kernel="aten.other.default")
    assert kinds(catalog(row("x", DIFFERS)), catalog(found)) == []
    rare = catalog(row("x", Arm(outcome="differs", runs=10, differing=1)))
    seldom = [("too seldom to call it a change", "x")]
    assert kinds(catalog(row("x")), rare) == kinds(rare, catalog(row("x"))) == seldom
    many = catalog(row("x", Arm(outcome="repeats", runs=200)))
    assert kinds(many, rare) == [("newly differs", "x")], "200 would have shown it"
