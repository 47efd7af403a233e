"""The price of the flags, and what two processes say together about one row."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from repro_gate.ops.catalog import Arm, Outcome
from repro_gate.ops.rows import merged, price_of
from tests.support.operators import row


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
    if again.runs:  # other inputs in the second process say nothing
        assert merged(one, replace(two, inputs="j")).off == replace(first, digests=())


def test_the_price_is_the_ratio_with_the_interval_of_the_gates_own_cost() -> None:
    slow, fast = [2.2, 2.0, 1.9, 2.1], [1.0, 1.1, 0.9, 1.05]
    found, inverse = price_of(slow, fast), price_of(fast, slow)
    assert found is not None and found.low < found.ratio < found.high
    assert found.ratio == pytest.approx((math.prod(slow) / math.prod(fast)) ** 0.25)
    assert inverse is not None and inverse.ratio == pytest.approx(1 / found.ratio)
    assert inverse.high < 1


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
