"""Claims about `probe.faults`: a fault changes the live value by one bit, once, in the step and the
process that it is for, and says so."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.traces import compare_runs
from repro_gate.probe import faults
from repro_gate.runs.launch import Run
from tests.support.tracing import trace_script, trained

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

RECORDED = """
import numpy, random
from repro_gate import record, step
weight = numpy.ones(3)
for number in range(4):
    weight *= 0.5 + random.random()
    record("weight", weight, "parameter")
    step()
print(weight.tolist())
"""
TRAINED = """
import torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    optimizer.zero_grad()
    model(torch.rand(8, 4)).sum().backward()
    optimizer.step()
print(float(model[0].weight.sum()))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
def test_the_last_bit_of_one_float_is_flipped(dtype: str) -> None:
    # not contiguous
    tensor = torch.tensor([0.0, float("nan"), 1.0, 2.0]).to(getattr(torch, dtype)).reshape(2, 2).t()
    before = tensor.clone()
    said = faults.flip(torch, tensor)
    apart = ~((tensor == before) | (tensor != tensor))
    assert apart.sum() == 1 and tensor[0, 1] != before[0, 1]
    assert "was (1" in said.replace("was 1", "was (1")
    plain = before.real if dtype == "complex64" else before
    assert 0 < float((tensor - before)[0, 1].abs()) <= torch.finfo(plain.dtype).eps


@pytest.mark.parametrize(
    ("values", "after"),
    [
        ([0, 2, 5, 7], [0, 2, 4, 7]),
        ([2, 4], [3, 4]),
        ([False, True], [False, False]),
        ([False], [True]),
        ([0, 0], [1, 0]),
    ],
)
def test_an_index_is_made_smaller_where_that_can_be(values: list[Any], after: list[Any]) -> None:
    """So that a flipped label or token is one that the model knows."""
    tensor = torch.tensor(values)
    faults.flip(torch, tensor)
    assert tensor.tolist() == after


def test_an_array_is_changed_by_one_bit() -> None:
    wide = (numpy.ones((2, 2)), numpy.ones((3, 2), dtype="float32").T)
    for array in (*wide, numpy.arange(4), numpy.ones(2, dtype=bool)):
        before = array.copy()
        faults.flip_array(numpy, array)
        assert (array != before).sum() == 1


@pytest.mark.parametrize(
    ("name", "seed", "one"),
    [
        ("torch", torch.manual_seed, lambda: torch.rand(1).item()),
        ("numpy", numpy.random.seed, numpy.random.random),
        ("python", random.seed, random.random),
    ],
)
def test_a_generator_is_drawn_from_once(name: str, seed: Any, one: Any) -> None:
    seed(1)
    faults.draw(name)
    after = one()
    seed(1)
    assert [one(), one()][1] == after


def test_threads_that_race_scale_a_tensor_otherwise_each_time_and_by_little() -> None:
    seen = set()
    for _ in range(4):
        tensor = torch.ones(100)
        faults.race(torch, tensor)
        assert 1.0 <= float(tensor.min()) <= float(tensor.max()) <= 1.01
        seen.add(float(tensor[0]))
    assert len(seen) > 1


def faulty(tmp_path: Path, source: str = RECORDED, **changes: object) -> Run:
    fault = {"what": "flip", "kind": "parameter", "name": "weight", "step": 2, "process": "main"}
    return trace_script(tmp_path, source, name="faulty", probe={"fault": {**fault, **changes}})


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trace_script(tmp_path_factory.mktemp("clean"), RECORDED)


def first_of(clean: Run, run: Run) -> tuple[int, str, str]:
    first = compare_runs(clean.traces, run.traces).first_divergence
    assert first is not None
    return first.step, first.kind, first.name


def test_a_flipped_bit_goes_on_in_the_training_and_is_told(tmp_path: Path, clean: Run) -> None:
    run = faulty(tmp_path)
    assert first_of(clean, run) == (2, "parameter", "weight")
    assert run.ended.tail != clean.ended.tail
    [(identifier, message)] = trained(run).notes
    assert identifier == faults.NOTE
    assert message.startswith("step 2 of main, parameter weight: element [0] was")


def test_a_draw_is_seen_where_it_was_made(tmp_path: Path, clean: Run) -> None:
    run = faulty(tmp_path, what="draw", kind="rng", name="python")
    assert first_of(clean, run) == (2, "rng", "python")


@pytest.mark.parametrize(
    "other",
    [{"process": "rank7"}, {"step": 9}, {"name": "bias"}, {"name": "other", "what": "race"}],
)
def test_another_place_gets_no_fault(other: dict[str, object], tmp_path: Path, clean: Run) -> None:
    run = faulty(tmp_path, **other)
    assert compare_runs(clean.traces, run.traces).identical
    assert run.ended.tail == clean.ended.tail and not trained(run).notes


@pytest.mark.slow
def test_a_flag_that_is_switched_off_is_noted_with_the_line_of_the_training(tmp_path: Path) -> None:
    """As if that line had done it."""
    run = faulty(tmp_path, TRAINED, what="flag", kind="flag", name="any")
    trace = trained(run)
    on = [trace.settings[mark.flags]["torch.use_deterministic_algorithms"] for mark in trace.steps]
    assert on == [True, True, False, False]
    [undone] = trace.undone
    assert (undone.file, undone.step) == ("train.py", 2)
    assert "backward" in TRAINED.splitlines()[undone.line - 1]
