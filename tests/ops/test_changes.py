"""What changed between two catalogs, both ways, and what must not count as a change."""

from __future__ import annotations

import pytest

from repro_gate.ops.catalog import Arm, Catalog
from repro_gate.ops.changes import apart, changes, platform_changes
from tests.support.operators import DIFFERS, PLATFORM, RAISES, REPEATS, catalog, changed, price, row

RACES = Arm(outcome="differs", runs=12, distinct=9)
CRASH = Arm(outcome="crash", message="signal 6")


def kinds(before: Catalog, after: Catalog) -> list[tuple[str, str, str]]:
    return [(item.kind, item.flags, item.row.case) for item in changes(before, after)]


@pytest.mark.parametrize(
    ("was", "now", "there", "back"),
    [
        (REPEATS, RACES, "differs", "repeats"),
        (REPEATS, RAISES, "raises", "raises-no-more"),
        (DIFFERS, RAISES, "raises", "differs"),
        (REPEATS, CRASH, "outcome", "outcome"),
        (RAISES, CRASH, "raises-no-more", "raises"),
    ],
)
@pytest.mark.parametrize("flags", ["off", "on"])
def test_an_outcome_that_changed_is_told_both_ways_and_by_arm(
    was: Arm, now: Arm, there: str, back: str, flags: str
) -> None:
    before, after = (catalog(row("a"), row("x", **{flags: arm})) for arm in (was, now))
    assert kinds(before, after) == [(there, flags, "x")] and kinds(after, before) == [
        (back, flags, "x")
    ]
    assert kinds(before, before) == kinds(after, after) == []


def test_a_price_changed_only_where_the_intervals_lie_apart_and_it_is_a_quarter() -> None:
    cheap, near, dear = (
        catalog(row("x", price=price(*given)))
        for given in ((1.0, 0.9, 1.1), (1.15, 1.05, 1.3), (2.0, 1.8, 2.2))
    )
    assert kinds(cheap, dear) == [("dearer", "", "x")] and kinds(dear, cheap) == [
        ("cheaper", "", "x")
    ]
    little = catalog(row("x", price=price(1.15, 1.12, 1.2)))
    assert kinds(cheap, little) == kinds(little, cheap) == [], "apart, and not far"
    assert kinds(cheap, near) == kinds(near, cheap) == kinds(cheap, catalog(row("x"))) == []


def test_rows_come_and_go_only_between_whole_catalogs_of_one_scope() -> None:
    one, two = catalog(row("a"), row("gone")), catalog(row("a"), row("a", dtype="int64"))
    assert kinds(one, two) == [("new", "", "a"), ("gone", "", "gone")]
    assert kinds(one, changed(two, complete=False)) == kinds(one, changed(two, scope="quick")) == []


def test_parts_of_the_catalog_have_new_rows_only_where_one_command_chose_them() -> None:
    index, pool = (
        changed(catalog(row("a"), row(name)), scope="some", command=f"repro-gate ops --only {name}")
        for name in ("index", "pool")
    )
    assert kinds(index, pool) == kinds(pool, index) == [] and apart(index, pool) == (1, 1)
    later = changed(pool, command=index.command)
    assert kinds(index, later) == [("new", "", "pool"), ("gone", "", "index")] and apart(
        index, later
    ) == (0, 0)
    for whole in (
        catalog(row("a")),
        changed(catalog(row("a")), scope="quick"),
        changed(index, complete=False, rows=()),
    ):
        assert kinds(index, whole) == kinds(whole, index) == [] and apart(index, whole) == (
            2 - len(whole.rows),
            0,
        )
    assert apart(catalog(row("a")), catalog(row("b"))) == (0, 0)


def test_more_runs_other_messages_and_kernels_are_no_change() -> None:
    other = Arm(outcome="differs", runs=90, distinct=40, max_ulp=9, message="m")
    assert (
        kinds(
            catalog(row("x", DIFFERS)),
            catalog(row("x", other, kernel="aten.other.default", size="8")),
        )
        == []
    )


def test_a_rare_race_that_the_other_measurement_may_have_missed_is_no_change() -> None:
    rare, many = (
        Arm(outcome="differs", runs=10, distinct=2),
        Arm(outcome="repeats", runs=200, distinct=1),
    )
    assert (
        kinds(catalog(row("x")), catalog(row("x", rare)))
        == kinds(catalog(row("x", rare)), catalog(row("x")))
        == [("seldom", "off", "x")]
    )
    assert kinds(catalog(row("x", many)), catalog(row("x", rare))) == [("differs", "off", "x")], (
        "200 executions would have shown it"
    )


def test_what_matters_most_comes_first() -> None:
    before = catalog(row("a", RAISES), row("b"), row("c", RACES))
    after = catalog(row("a"), row("b", RACES), row("c"), row("d"))
    assert [kind for kind, _, _ in kinds(before, after)] == [
        "differs",
        "repeats",
        "raises-no-more",
        "new",
    ]


def test_the_platforms_differences_are_named() -> None:
    other = changed(catalog(), platform=PLATFORM).platform
    assert platform_changes(PLATFORM, other) == ()
    newer = type(PLATFORM)(
        torch="2.14.0",
        device="cpu",
        device_name="A CPU",
        python="3.11.7",
        threads=4,
        isa="AVX512",
        system="Linux",
    )
    assert platform_changes(PLATFORM, newer) == (
        ("torch", "2.13.0+cpu", "2.14.0"),
        ("threads", "2", "4"),
    )
