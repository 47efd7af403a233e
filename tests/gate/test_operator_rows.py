"""The price of the flags, and what two processes say together about one row."""

from __future__ import annotations

import math

import pytest

from repro_gate.gate.operator_rows import entries_of, price, rows_of
from repro_gate.ops.catalog import Direction, Outcome
from repro_gate.runs.operators import Line, Measured


def measured(outcome: Outcome = "repeats", *digests: str, runs: int = 8) -> Measured:
    differing = runs // 2 if outcome == "differs" else 0
    results = digests[-1:] or ("d",)
    return Measured(
        outcome=outcome,
        runs=runs,
        differing=differing,
        distinct=1,
        digests=digests or ("d",),
        results=results,
    )


def line(
    off: Measured, on: Measured | None = None, inputs: str = "i", direction: Direction = "forward"
) -> Line:
    return Line(
        case="k/x",
        operator="x",
        dtype="float32",
        direction=direction,
        off=off,
        on=on or measured(),
        inputs=inputs,
    )


def merged(first: Line, again: Line | None) -> tuple[str, int, int, int]:
    (row,) = rows_of({first.key: first}, {} if again is None else {again.key: again})
    return row.off.outcome, row.off.runs, row.off.differing, row.off.distinct


@pytest.mark.parametrize(
    ("first", "again", "expected"),
    [
        (measured(), measured(runs=1), ("repeats", 9, 0, 1)),
        (measured(), measured("repeats", "other", runs=1), ("differs", 9, 1, 2)),
        (
            measured("repeats", "a", "b"),
            measured("repeats", "a", "b", runs=1),
            ("repeats", 9, 0, 1),
        ),
        (
            measured("repeats", "a", "b"),
            measured("repeats", "a", "c", runs=2),
            ("differs", 10, 2, 2),
        ),
        (
            measured("uninitialised"),
            measured("repeats", "other", runs=1),
            ("uninitialised", 8, 0, 1),
        ),
        (measured("differs"), measured("repeats", "other", runs=1), ("differs", 9, 5, 2)),
        (measured(), measured("differs", runs=4), ("differs", 12, 2, 1)),
        (measured(), measured("timeout", runs=0), ("timeout", 8, 0, 1)),
        (measured("differs"), measured("crash", runs=0), ("differs", 8, 4, 1)),
        (measured(), measured("raises", runs=0), ("differs", 8, 0, 1)),
        (measured(), measured("no-kernel", runs=0), ("differs", 8, 0, 1)),
    ],
)
def test_a_fresh_process_counts(
    first: Measured, again: Measured, expected: tuple[str, int, int, int]
) -> None:
    assert merged(line(first), line(again)) == expected
    assert merged(line(first), None)[0] == first.outcome


def test_other_inputs_in_the_second_process_say_nothing() -> None:
    assert merged(line(measured()), line(measured("repeats", "other"), inputs="j")) == (
        "repeats",
        8,
        0,
        1,
    )


def test_the_price_is_the_ratio_with_the_interval_of_the_gates_own_cost() -> None:
    found = price([2.2, 2.0, 1.9, 2.1], [1.0, 1.1, 0.9, 1.05])
    assert found is not None and found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(
        math.sqrt(math.sqrt(2.2 * 2.0 * 1.9 * 2.1 / (1.0 * 1.1 * 0.9 * 1.05)))
    )
    same = price([1.0, 1.2, 0.8, 1.1], [1.1, 0.9, 1.0, 1.2])
    assert same is not None and same.low < 1 < same.high
    inverse = price([1.0, 1.1, 0.9, 1.05], [2.2, 2.0, 1.9, 2.1])
    assert (
        inverse is not None and inverse.ratio == pytest.approx(1 / found.ratio) and inverse.high < 1
    )


def test_the_price_spans_both_processes() -> None:
    def timed(on: float) -> Line:
        times = {"times_on_ms": (on, on * 1.01, on * 0.99), "times_off_ms": (1.0, 1.01, 0.99)}
        return Line(case="k/x", dtype="float32", off=measured(), on=measured(), **times)  # type: ignore[arg-type]

    (row,) = rows_of({timed(1).key: timed(4.0)}, {timed(1).key: timed(1.0)})
    assert (
        row.price is not None
        and row.price.ratio == pytest.approx(2.0)
        and row.price.low < 1 < 4 < row.price.high
    )
    (row,) = rows_of({timed(1).key: timed(4.0)}, {})
    assert row.price is None, "one process times what looked apart by chance, too"


@pytest.mark.parametrize("on", [[], [1.0, 2.0], [1.0, math.inf, 1.0], [1.0, 0.0, 1.0], [1e-5] * 4])
def test_no_price_without_three_times_that_the_clock_can_tell(on: list[float]) -> None:
    assert price(on, [1.0] * 4) is None and price([1.0] * 4, on) is None


def test_torchs_list_is_told_apart_by_device_and_by_what_it_says() -> None:
    both = Line(
        case="k/x",
        operator="x",
        rows=(("float32", "forward"),),
        documented_on={"cpu": {"forward": "deterministic"}, "cuda": {"backward": "raises"}},
    )
    missing = Line(
        case="documented/y",
        operator="y does z",
        rows=(),
        documented_on={"cuda": {"forward": "raises"}},
    )
    found = {
        (entry.entry, entry.says): (entry.case, entry.here)
        for entry in entries_of([both, missing, Line(case="k/z", rows=())], "cpu")
    }
    assert found == {
        ("x", "deterministic"): ("k/x", True),
        ("x", "raises"): ("k/x", False),
        ("y does z", "raises"): (None, False),
    }
