"""The worker: what comes of calls in both arms, in real processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., list[dict[str, Any]]]
OWN = """
import os, time
def repeats(torch, device, dtype):
    x = torch.ones(8, dtype=dtype)
    return lambda: x + 1
def crashes(torch, device, dtype):
    return lambda: os.abort()
def later(torch, device, dtype):
    made = []
    def function():
        made.append(1)
        if len(made) > 1:
            raise ValueError("only once")
        return torch.ones(1)
    return function
def moves(torch, device, dtype):
    made = []
    def function():
        made.append(1)
        return torch.full((4,), 1.0 + len(made) * 2**-7, dtype=dtype)
    return function
def nothing(torch, device, dtype):
    return 1
def draws(torch, device, dtype):
    return lambda: torch.rand(100, dtype=dtype)
def twice(torch, device, dtype):
    def function(x):
        return x * 2
    function.inputs = [torch.ones(8, dtype=dtype)]
    return function
"""


def tensor(*size: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    stride, step = [], 1
    for side in reversed(size):
        stride.insert(0, step)
        step *= side
    return {"tensor": dtype, "size": size, "stride": stride, "device": "cpu", **more}


INDEX = tensor(1 << 18, dtype="int64", elements=[0, 15, 16])
FORMS = [
    ("aten.index_put_.default", [[tensor(16), [INDEX], tensor(1 << 18), True], {}]),
    ("aten.mul.Tensor", [[tensor(64, 64), 2.0], {}]),
    ("aten.put_.default", [[tensor(16), INDEX, tensor(1 << 18)], {}]),
    ("aten.empty.memory_format", [[[4096]], {"device": {"device": "cpu"}}]),
    ("aten.mul.Tensor", [[{"unknown": "sparse"}, 2.0], {}]),
    ("mine.own.default", [[], {}]),
]


@pytest.fixture(scope="module")
def rows(ask: Ask) -> list[dict[str, Any]]:
    about, *found, done = ask(calls=[(name, json.dumps(form)) for name, form in FORMS])
    assert about["about"]["torch"] and done == {"done": True}
    assert [row["number"] for row in found] == list(range(len(FORMS)))
    return found


def test_a_planted_race_differs_without_the_flags_and_repeats_with_them(rows: Any) -> None:
    """`index_put_` that accumulates adds in the order of its threads."""
    off, on = rows[0]["off"], rows[0]["on"]
    assert off["outcome"] == "differs" and off["differing"] and off["max_ulp"]
    assert on["outcome"] == "repeats" and on["runs"] > 5 and not on["differing"]


def test_a_clean_operator_repeats_in_both_arms_and_all_three_are_timed(rows: Any) -> None:
    row = rows[1]
    assert row["off"]["outcome"] == row["on"]["outcome"] == "repeats"
    assert len(row["off_ms"]) == len(row["on_ms"]) == len(row["unfilled_ms"]) > 3


def test_what_the_flags_refuse_raises_and_is_measured_without_them(rows: Any) -> None:
    row = rows[2]
    assert row["on"]["outcome"] == "raises" and "deterministic" in row["on"]["message"]
    assert row["off"]["outcome"] in ("differs", "repeats") and not row["on_ms"]


def test_memory_as_it_was_is_timed_and_not_compared(rows: Any) -> None:
    assert rows[3]["off"] == {"outcome": "new memory"} and rows[3]["on_ms"]


def test_what_cannot_be_made_says_why(rows: Any) -> None:
    unknown, foreign = (row["off"] for row in rows[4:])
    assert unknown == {"outcome": "not measured", "message": "an argument is a sparse"}
    assert "mine.own.default is not registered" in foreign["message"]


@pytest.fixture(scope="module")
def own(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    folder = tmp_path_factory.mktemp("own")
    Path(folder, "mine.py").write_text(OWN)
    names = [line[4:].partition("(")[0] for line in OWN.splitlines() if line.startswith("def ")]
    lines = ask(own=[f"mine:{name}" for name in names], path=[str(folder)], seconds=90)
    return {(row["operator"].removeprefix("mine:"), row["form"]): row for row in lines[1:-1]}


def test_both_controls_are_measured_before_a_users_own(own: Any) -> None:
    assert own["control/races", "float32 forward"]["off"]["outcome"] == "differs"
    assert own["control/repeats", "float32 forward"]["off"]["outcome"] == "repeats"


@pytest.mark.parametrize(
    ("name", "outcome", "message"),
    [
        ("repeats", "repeats", ""),
        ("draws", "repeats", ""),  # from one seed each time
        ("twice", "repeats", ""),
        ("moves", "differs", ""),
        ("crashes", "not measured", "it ended its process with SIGABRT"),
        ("later", "not measured", "only once"),
        ("nothing", "not measured", "mine:nothing must return a function, not int"),
    ],
)
def test_a_users_own_operator_is_measured(own: Any, name: str, outcome: str, message: str) -> None:
    off = own[name, "float32 forward"]["off"]
    assert (off["outcome"], off.get("message", "")) == (outcome, message)


def test_the_backward_is_measured_where_there_are_inputs(own: Any) -> None:
    assert own["twice", "float64 backward"]["off"]["outcome"] == "repeats"
    assert "no output has a gradient" in own["repeats", "float64 backward"]["off"]["message"]


def test_when_the_time_is_over_the_rest_is_not_measured(ask: Ask) -> None:
    name, form = FORMS[1]
    (_, row, _) = ask(calls=[(name, json.dumps(form))], seconds=0)
    assert row["off"] == {"outcome": "not measured", "message": "the time was over"}
