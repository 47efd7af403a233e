"""The controls tell whether the measuring can be believed: a race is found, a repeating operator is not, and either broken is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from repro_gate.ops.case import Case
from repro_gate.ops.contention import Contention
from repro_gate.ops.controls import controls, problems
from repro_gate.ops.measure import Settings, measure


@pytest.fixture
def load(torch: Any) -> Iterator[Contention]:
    made = Contention(torch, "cpu")
    yield made
    made.stop()


def _rows(torch: Any, load: Contention, cases: list[Case]) -> list[dict[str, Any]]:
    return [{"case": case.name, **measure(torch, case, "cpu", "float32", "forward", Settings(), load)} for case in cases]


def test_both_controls_come_out_right(torch: Any, load: Contention) -> None:
    races, repeats = rows = _rows(torch, load, controls("cpu"))
    assert problems(rows) == []
    assert races["off"]["distinct"] > 1 and races["off"]["max_ulp"] > 0
    assert repeats["off"]["distinct"] == 1 and repeats["off"]["runs"] >= 4


def test_a_control_that_came_out_wrong_is_named(torch: Any, load: Contention) -> None:
    count = itertools.count()
    still = Case("races", lambda make: (lambda x: x + 1, [make.normal(8)]), source="control", dtypes=["float32"], backward=False)
    moves = Case("repeats", lambda make: (lambda x: x + next(count), [make.normal(8)]), source="control", dtypes=["float32"])
    rows = _rows(torch, load, [still, moves])
    assert problems(rows) == [
        "control/races: repeats, where it must be differs",
        "control/repeats: differs, where it must be repeats",
    ]
    assert problems([]) == [
        "control/races: not measured, where it must be differs",
        "control/repeats: not measured, where it must be repeats",
    ]
