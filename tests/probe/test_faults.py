"""Claims about `probe.faults`: a fault changes the live value by one bit, once, where it is put."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from repro_gate.probe import faults
from repro_gate.runs.launch import RunResult
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


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
def test_the_last_bit_of_one_float_is_flipped(dtype: str) -> None:
    # not contiguous
    tensor = torch.tensor([0.0, float("nan"), 1.0, 2.0]).to(getattr(torch, dtype)).reshape(2, 2).t()
    before = tensor.clone()
    said = faults.flip(torch, tensor)
    apart = ~((tensor == before) | (tensor != tensor))
    assert apart.sum() == 1 and tensor[0, 1] != before[0, 1] and "element [0, 1" in said
    plain = before.real if dtype == "complex64" else before
    assert 0 < float((tensor - before)[0, 1].abs()) <= torch.finfo(plain.dtype).eps


def test_an_index_is_made_smaller_where_that_can_be() -> None:
    """So that a flipped label or token is one that the model knows."""
    odd, even, truth = [0, 2, 5, 7], [2, 4], [False, True]
    for values, after in ((odd, [0, 2, 4, 7]), (even, [3, 4]), (truth, [False, False])):
        tensor = torch.tensor(values)
        faults.flip(torch, tensor)
        assert tensor.tolist() == after


def test_an_array_is_changed_by_one_bit() -> None:
    wide = (numpy.ones((2, 2)), numpy.ones((3, 2), dtype="float32").T)
    for array in (*wide, numpy.arange(4), numpy.ones(2, dtype=bool)):
        before = array.copy()
        faults.flip_array(array)
        assert (array != before).sum() == 1


def test_a_generator_is_drawn_from_once() -> None:
    for name, seed, one in (
        ("torch", torch.manual_seed, lambda: torch.rand(1).item()),
        ("numpy", numpy.random.seed, numpy.random.random),
        ("python", random.seed, random.random),
    ):
        seed(1)
        faults.draw(name)
        after = one()
        seed(1)
        assert [one(), one()][1] == after


def test_threads_that_race_scale_a_tensor_otherwise_each_time_and_by_little() -> None:
    tensors = [torch.ones(100) for _ in range(4)]
    for tensor in tensors:
        faults.race(torch, tensor)
        assert 1.0 <= float(tensor.min()) == float(tensor.max()) <= 1.01
    assert len({float(tensor[0]) for tensor in tensors}) > 1


def faulty(tmp_path: Path, source: str = RECORDED, **changes: object) -> RunResult:
    fault = {"what": "flip", "kind": "parameter", "name": "weight", "step": 2, "process": "main"}
    return trace_script(tmp_path, source, name="faulty", probe={"fault": {**fault, **changes}})


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return trace_script(tmp_path_factory.mktemp("clean"), RECORDED)


def test_a_fault_is_seen_where_it_was_put_and_goes_on(tmp_path: Path, clean: RunResult) -> None:
    for number, put in enumerate(({}, {"what": "draw", "kind": "rng", "name": "python"})):
        run = faulty(tmp_path / str(number), **put)
        first = compare_runs(clean.traces, run.traces).first_divergence
        assert first is not None
        wanted = (2, put.get("kind", "parameter"), put.get("name", "weight"))
        assert (first.step, first.kind, first.name) == wanted
        assert run.ended.tail != clean.ended.tail
        [(identifier, message)] = trained(run).notes
        assert identifier == faults.NOTE and message.startswith("step 2 of main, ")


@pytest.mark.parametrize("other", [{"process": "rank7"}, {"step": 9}, {"name": "bias"}])
def test_another_place_gets_no_fault(
    other: dict[str, object], tmp_path: Path, clean: RunResult
) -> None:
    run = faulty(tmp_path, **other)
    assert compare_runs(clean.traces, run.traces).identical
    assert run.ended.tail == clean.ended.tail and not trained(run).notes
