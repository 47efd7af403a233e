"""The heat map says what differs and nothing else, and grows coarser instead of larger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.compare.heat_map import (
    COLUMNS,
    LEVELS,
    PARTS,
    ROWS,
    Marks,
    column_of,
    place_of,
    state_size,
)
from repro_gate.compare.model import HeatMap
from repro_gate.compare.traces import compare_runs, with_replay
from repro_gate.trace.fields import Measured
from repro_gate.trace.model import Trace
from tests.support.built_traces import block, changed, flip, training, with_loss
from tests.support.built_traces import place_of as block_at

A = training()


def rows_of(a: list[Trace], b: list[Trace]) -> dict[tuple[str, str, str], str]:
    """The cells by row."""
    drawn = compare_runs(a, b).heat_map
    assert drawn is not None
    return {(row.process, row.kind, row.module): row.cells for row in drawn.rows}


def measured(step: int, kind: str, name: str, l2: float, ulp: int = 5) -> Measured:
    """One distance of a float32 tensor."""
    given = {"dtype": "float32", "shape": (2,), "max_abs": l2, "max_ulp": ulp, "reference_l2": 1.0}
    return Measured(step=step, kind=kind, name=name, l2=l2, **given)  # type: ignore[arg-type]


def test_only_what_differs_is_marked_in_the_rows_of_its_process() -> None:
    cells = rows_of([training()], [training()])
    assert cells["main", "parameter", "fc"] == "...." and cells["main", "gradient", "fc"] == " ..."
    assert cells["main", "buffer", "norm"] == " ..." and set("".join(cells.values())) == {".", " "}
    found = ["rng", "rng", "batch", "loss", "gradient", "parameter", "optimizer", "buffer"]
    assert [kind for _, kind, _ in cells] == found
    b = with_loss(changed(A, block_at(A, 1, "gradient"), flip(0)), 2, 0.4)
    cells = rows_of([A], [b])
    assert cells["main", "gradient", "fc"] == " .?." and cells["main", "parameter", "fc"] == "...."
    # |1/3 - 0.4| over 1/3 is 0.2: 2^20 and more epsilons of float32
    assert cells["main", "loss", ""] == " .." + LEVELS[20]
    cells = rows_of([A], [changed(A, block_at(A, 1, "rng"), flip(0))])
    assert set("".join(cells.values())) <= {".", " "}
    # they differ, which does not matter: no cell says that they are identical
    assert not [kind for _, kind, _ in cells if kind == "rng"]
    other = training(key="rank1")
    cells = rows_of([A, other], [A, changed(other, block_at(other, 0, "parameter"), flip(1))])
    assert (
        cells["rank1", "parameter", "fc"] == ".?.." and cells["main", "parameter", "fc"] == "...."
    )


def test_what_a_replay_measured_colours_what_differs_and_nothing_else() -> None:
    a = training()
    pair = compare_runs([a], [changed(a, block_at(a, 1, "gradient"), flip(0))])
    again = training()
    again.distances = [
        measured(1, "gradient", "fc.weight", 2.0**-20),
        measured(1, "gradient", "fc.bias", 2.0**-21),
        measured(2, "gradient", "fc.weight", 0.5),  # bitwise identical in the pair that is told of
        measured(1, "parameter", "fc.weight", 3.0, ulp=9),
        measured(1, "parameter", "fc.bias", 4.0),
    ]
    found = with_replay(pair, [again])
    assert found.heat_map is not None
    cells = {(row.kind, row.module): row.cells for row in found.heat_map.rows}
    assert cells["gradient", "fc"] == " .3."  # 2^-20 of the norm is 2^3 epsilons of float32
    assert cells["parameter", "fc"] == "...."
    assert [(item.step, item.weight_l2, item.max_ulp) for item in found.growth] == [
        (1, 5.0, 9),
        (2, None, 5),
    ]
    b = changed(A, block_at(A, 2, "parameter"), flip(0))
    found = compare_runs([A], [replace(b, distances=[measured(2, "parameter", "fc.weight", 0.5)])])
    assert found.growth == () and found.heat_map is not None
    assert next(row.cells for row in found.heat_map.rows if row.kind == "parameter") == "...m"


@pytest.mark.parametrize(
    ("steps", "width"), [(0, 1), (1, 1), (100, 1), (101, 2), (1000, 10), (1001, 11)]
)
def test_a_column_stands_for_more_steps_of_a_longer_training(steps: int, width: int) -> None:
    marks = Marks(steps)
    assert marks.width == width
    assert column_of(-1, marks) == 0 and column_of(0, marks) == 1
    last = column_of(max(steps - 1, 0), marks)
    assert column_of(steps + 5, marks) == last <= COLUMNS


def _large(layers: int, other: int | None = None) -> HeatMap:
    names = [f"blocks.{number // 12}.part{number % 12}.weight" for number in range(layers)]
    large = block(0, "parameter", [(name, "float32", (2,)) for name in names], at=1)
    a, b = training(1), training(1)
    a.blocks.append(large)
    b.blocks.append(large if other is None else flip(other)(large))
    found = compare_runs([a], [b]).heat_map
    assert found is not None
    return found


def test_rows_are_modules_as_far_as_there_are_rows_and_names_are_cut() -> None:
    fine, coarse = _large(24), _large(5_000, other=4_999)
    assert fine.depth == 3 and any(row.module == "blocks.0.part3" for row in fine.rows)
    assert coarse.depth == 1 and len(coarse.rows) <= ROWS
    row = next(row for row in coarse.rows if (row.kind, row.module) == ("parameter", "blocks"))
    assert (row.tensors, row.cells) == (5_000, " ?")
    for kind, name, module in (
        ("parameter", "layers.0.fc.weight", "layers.0.fc"),
        ("optimizer", "layers.0.fc.weight.exp_avg", "layers.0.fc"),
        ("optimizer", "param_groups.0.lr", "param_groups"),
        ("gradient", "scale", "scale"),
        ("loss", "loss", ""),
        ("batch", "images", ""),
        ("rng", "torch", "torch"),
    ):
        assert place_of(("main", kind, name), 9) == ("main", kind, module)
        assert len(place_of(("main", "parameter", "a." * 4_000), 10_000)[2].split(".")) == PARTS


def test_the_bytes_of_a_step_count_each_tensor_once() -> None:
    trace = training()
    trace.tables = [
        ("parameter", (("a", "float32", (10,)), ("b", "bfloat16", (4, 2)))),
        ("parameter", (("a", "float32", (10,)),)),
        ("gradient", (("a", "float64", (10,)), ("flag", "bool", (3,)))),
        ("rng", (("torch", "uint8", (5056,)),)),
    ]
    assert state_size([trace], ("parameter", "gradient")) == (4, 40 + 16 + 80 + 3)
    assert state_size([trace, replace(trace)], ("parameter",)) == (4, 2 * 56)
