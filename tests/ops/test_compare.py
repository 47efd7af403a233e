"""What two processes say together about one row, the price of the flags; what changed between two
catalogs, both ways, and what must not count as a change."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from repro_gate.ops.catalog import Arm, Catalog, Outcome
from repro_gate.ops.compare import changes, merged, price_of
from tests.support.operators import DIFFERS, RAISES, REPEATS, catalog, changed, price, row


def arm(outcome: Outcome = "repeats", *digests: str, runs: int = 8) -> Arm:
    differing = runs // 2 if outcome == "differs" else 0
    return Arm(outcome=outcome, runs=runs, differing=differing, digests=digests or ("d",))


@pytest.mark.parametrize(
    ("first", "again", "expected"),
    [
        (arm(), arm(runs=1), ("repeats", 9, 0)),
        (arm(), arm("repeats", "other", runs=1), ("differs", 9, 1)),
        (arm("repeats", "a", "b"), arm("repeats", "a", "c", runs=2), ("differs", 10, 2)),
        (arm("uninitialised"), arm("repeats", "other", runs=1), ("uninitialised", 8, 0)),
        (arm("differs"), arm("repeats", "other", runs=1), ("differs", 9, 5)),
        (arm(), arm("differs", runs=4), ("differs", 12, 2)),
        (arm(), arm("timeout", runs=0), ("timeout", 8, 0)),
        (arm("differs"), arm("crash", runs=0), ("differs", 8, 4)),
        (arm(), arm("raises", runs=0), ("differs", 8, 0)),
    ],
)
def test_a_fresh_process_counts(first: Arm, again: Arm, expected: tuple[str, int, int]) -> None:
    one, two = row("k/x", first), row("k/x", again)
    found = merged(one, two).off
    assert (found.outcome, found.runs, found.differing) == expected and not found.digests
    assert merged(one, None).off == replace(first, digests=())
    # other inputs in the second process say nothing
    assert merged(one, replace(two, inputs="j")).off == replace(first, digests=())


def test_the_price_is_the_ratio_with_the_interval_of_the_gates_own_cost() -> None:
    slow, fast = [2.2, 2.0, 1.9, 2.1], [1.0, 1.1, 0.9, 1.05]
    found, inverse = price_of(slow, fast), price_of(fast, slow)
    assert found is not None and found.low < found.ratio < found.high
    assert inverse is not None and inverse.ratio == pytest.approx(1 / found.ratio)
    assert found.ratio == pytest.approx((math.prod(slow) / math.prod(fast)) ** 0.25)


def test_the_price_spans_both_processes() -> None:
    dear, cheap = (
        row("k/x", on_ms=(on, on * 1.01, on * 0.99), off_ms=(1.0, 1.01, 0.99)) for on in (4.0, 1.0)
    )
    for first, second in ((dear, cheap), (cheap, dear)):
        price = merged(first, second).price
        assert price is not None and price.ratio == pytest.approx(2.0)
        assert price.low < 1 < 4 < price.high
    assert merged(dear, None).price is None, "one process times what looked apart by chance, too"


@pytest.mark.parametrize("on", [[], [1.0, 2.0], [1.0, 0.0, 1.0], [1e-5] * 4])
def test_no_price_without_three_times_that_the_clock_can_tell(on: list[float]) -> None:
    assert price_of(on, [1.0] * 4) is None and price_of([1.0] * 4, on) is None


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
    assert kinds(before, after) == [(there, "x")] and kinds(after, before) == [(back, "x")]
    assert kinds(before, before) == kinds(after, after) == []


def test_a_price_changed_only_if_the_intervals_lie_apart_and_it_is_a_quarter() -> None:
    cheap, wide, little, dear = (
        catalog(row("x", price=price(*given)))
        for given in ((1.0, 0.9, 1.1), (1.5, 1.05, 2.2), (1.15, 1.12, 1.2), (2.0, 1.8, 2.2))
    )
    assert kinds(cheap, dear) == [("dearer", "x")] and kinds(dear, cheap) == [("cheaper", "x")]
    for other in (wide, little, catalog(row("x"))):
        assert kinds(cheap, other) == kinds(other, cheap) == []


def test_rows_come_and_go_only_between_whole_catalogs_that_were_asked_for_the_same() -> None:
    one, two = catalog(row("a"), row("gone")), catalog(row("a"), row("a", dtype="int64"))
    assert kinds(one, two) == [("new", "a"), ("gone", "gone")] and changes(one, two)[1] == (0, 0)
    index, pool = (
        changed(catalog(row("a"), row(name)), scope="some", command=f"repro-gate ops --only {name}")
        for name in ("index", "pool")
    )
    later = changed(pool, command=index.command)
    assert kinds(index, later) == [("new", "pool"), ("gone", "index")]
    for was, now in ((one, changed(two, complete=False)), (index, pool), (index, one)):
        assert kinds(was, now) == [] and changes(was, now)[1] == (1, 1)


def test_more_runs_other_messages_and_a_rare_race_that_may_have_been_missed_are_no_change() -> None:
    other = Arm(outcome="differs", runs=90, differing=40, max_ulp=9, message="m")
    found = row("x", other, kernel="aten.other.default")
    assert kinds(catalog(row("x", DIFFERS)), catalog(found)) == []
    rare = catalog(row("x", Arm(outcome="differs", runs=10, differing=1)))
    seldom = [("too seldom to call it a change", "x")]
    assert kinds(catalog(row("x")), rare) == kinds(rare, catalog(row("x"))) == seldom
    many = catalog(row("x", Arm(outcome="repeats", runs=200)))
    assert kinds(many, rare) == [("newly differs", "x")], "200 would have shown it"
