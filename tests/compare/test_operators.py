"""`compare.operators`: the difference of two arms' times, the share of each operator in the cost,
and what changed between two measurements."""

from __future__ import annotations

from typing import Any

import pytest

from repro_gate.compare.operators import (
    Longer,
    OperatorArm,
    OperatorCall,
    Operators,
    changes,
    filling,
    longer,
    shares,
)
from repro_gate.trace.fields import Location

REPEATS = OperatorArm(outcome="repeats", runs=20)
RAISES = OperatorArm(outcome="raises")


def differs(share: int, runs: int = 20) -> OperatorArm:
    return OperatorArm(outcome="differs", runs=runs, differing=share)


def slower(ms: float, low: float, high: float) -> Longer:
    return Longer(ms, (low, high), 1 + ms, (1 + low, 1 + high))


def call(operator: str = "aten.mm.default", **more: Any) -> OperatorCall:
    return OperatorCall(**{"operator": operator, "form": "", "off": REPEATS, "on": REPEATS, **more})


def of(*calls: OperatorCall, step_ms: float | None = 10.0) -> Operators:
    return Operators(calls=calls, step_ms=step_ms, cost_pct=5.0)


def test_the_difference_of_two_arms_has_an_interval_around_it() -> None:
    found = longer([2.0, 2.02, 1.98, 2.0], [1.0, 1.01, 0.99, 1.0])
    assert found is not None and found.is_clear
    assert found.ms == pytest.approx(1.0, abs=0.01) and found.ratio == pytest.approx(2, abs=0.01)
    assert found.ci95[0] < found.ms < found.ci95[1]
    same = longer([1.0, 1.2, 0.9], [1.0, 0.8, 1.3])
    assert same is not None and not same.is_clear


def test_too_few_times_or_times_below_the_clocks_give_no_difference() -> None:
    assert longer([1.0, 1.0], [1.0, 1.0, 1.0]) is None
    assert longer([1.0] * 3, [1.0, 1.0, 0.0]) is None


def test_a_share_is_the_difference_of_one_call_times_its_calls_over_the_step() -> None:
    here, there = Location("model.py", 41), Location("pool.py", 88)
    costly = call("aten.index_put_.default", calls=3, flags=slower(0.1, 0.09, 0.11), lines=(here,))
    again = call("aten.index_put_.default", form="other", flags=slower(0.1, 0.09, 0.11))
    unclear = call(calls=100, flags=slower(0.1, -0.1, 0.3), lines=(there,))
    first, second = shares(of(unclear, costly, again))
    assert first.operator == "aten.index_put_.default" and first.lines == (here,)
    assert first.calls == 4 and first.points == pytest.approx(4.0)
    # what is not clearly slower is not attributed
    assert second.points == 0.0


def test_filling_new_memory_is_summed_over_all_operators() -> None:
    filled = [call(str(number), calls=2, filling=slower(0.05, 0.04, 0.06)) for number in range(3)]
    assert filling(of(*filled)) == pytest.approx(3.0)
    assert filling(of(*filled, step_ms=None)) is None


def test_without_a_cost_what_raises_or_differs_comes_first() -> None:
    rows = shares(of(call("a"), call("b", off=differs(1)), call("c", off=differs(9)), step_ms=None))
    assert [row.operator for row in rows] == ["c", "b", "a"]
    assert all(row.points is None for row in rows)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ({}, {"off": differs(20)}, "newly differs"),
        ({"off": differs(20)}, {}, "newly repeats"),
        # a race of 1 in 20 would not have shown in 20 executions
        ({}, {"off": differs(1)}, "too seldom to call it a change"),
        ({}, {"on": RAISES}, "newly raises"),
        ({"on": RAISES}, {}, "no longer raises"),
        ({}, {"off": OperatorArm(outcome="not measured")}, "another outcome"),
        ({"flags": slower(0.1, 0.0, 0.2)}, {"flags": slower(1.0, 0.9, 1.1)}, "dearer"),
        ({"flags": slower(1.0, 0.9, 1.1)}, {"flags": slower(0.1, 0.0, 0.2)}, "cheaper"),
    ],
)
def test_what_changed_is_named(before: Any, after: Any, kind: str) -> None:
    now = call(**after)
    assert changes(of(call(**before)), of(now)) == {kind: [now]}


def test_equal_measurements_have_no_change_and_other_forms_are_not_compared() -> None:
    a, b = call(form="a"), call(form="b")
    assert changes(of(a), of(a)) == {}
    # intervals that meet are no change, however far the figures are apart
    wide = call(form="a", flags=slower(1.0, 0.0, 2.0))
    assert changes(of(call(form="a", flags=slower(0.1, 0.0, 0.2))), of(wide)) == {}
    assert changes(of(a), of(b)) == {"only in the second": [b], "only in the first": [a]}
