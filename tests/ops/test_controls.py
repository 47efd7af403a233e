"""The controls tell whether the measuring can be believed: a race is found, a repeating operator is
not, and either broken is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from repro_gate.ops.case import Case
from repro_gate.ops.contention import Contention
from repro_gate.ops.controls import EXPECTED, controls
from repro_gate.ops.measure import Settings, measure


@pytest.fixture
def load(torch: Any) -> Iterator[Contention]:
    made = Contention(torch, "cpu")
    yield made
    made.stop()


def _rows(torch: Any, load: Contention, cases: list[Case]) -> list[dict[str, Any]]:
    return [
        {"case": case.name, **measure(torch, case, "cpu", "float32", "forward", Settings(), load)}
        for case in cases
    ]


def test_both_controls_come_out_right(torch: Any, load: Contention) -> None:
    races, repeats = rows = _rows(torch, load, controls("cpu"))
    assert {row["case"]: row["off"]["outcome"] for row in rows} == EXPECTED
    assert races["off"]["distinct"] > 1 and races["off"]["max_ulp"] > 0
    assert repeats["off"]["distinct"] == 1 and repeats["off"]["runs"] >= 4


def test_a_broken_control_comes_out_wrong(torch: Any, load: Contention) -> None:
    count = itertools.count()
    still = Case(
        "races",
        lambda make: (lambda x: x + 1, [make.normal(8)]),
        source="control",
        dtypes=["float32"],
        backward=False,
    )
    moves = Case(
        "repeats",
        lambda make: (lambda x: x + next(count), [make.normal(8)]),
        source="control",
        dtypes=["float32"],
    )
    assert [row["off"]["outcome"] for row in _rows(torch, load, [still, moves])] == [
        "repeats",
        "differs",
    ]
