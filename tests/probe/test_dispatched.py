"""Claims about `probe.dispatched`: the operators of one step, and those that torch refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.runs.launch import RunResult
from tests.support.tracing import trace_script, trained

SCRIPT = """
import torch
torch.manual_seed(3)
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
index = torch.tensor([1, 2])
for step in range(4):
    y = layer(torch.rand(4, 8))
    if {refused} and step >= 1:
        y = y.put(index, torch.ones(2))
    if {refused} and step >= 2:
        pooled, where = torch.nn.functional.max_pool2d(y[None, None], 2, return_indices=True)
        y = y + torch.nn.functional.max_unpool2d(pooled, where, 2)[0, 0]
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), torch.rand(1).item(), torch.are_deterministic_algorithms_enabled(), flush=True)
"""
CLEAN = SCRIPT.replace("{refused}", "False")
FAULTY = SCRIPT.replace("{refused}", "True")


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return trace_script(tmp_path_factory.mktemp("refused"), FAULTY, probe={"refused": 10})


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return trace_script(tmp_path_factory.mktemp("noted"), CLEAN, probe={"dispatched": 1})


def test_every_refused_operator_is_named_once_with_its_line(refusing: RunResult) -> None:
    refused, lines = trained(refusing).refused, FAULTY.splitlines()
    assert [(item.op, item.phase, item.step) for item in refused] == [
        ("put_", "forward", 1),
        ("put_", "backward", 1),
        ("max_unpooling2d_forward_out", "forward", 2),
    ]
    for item in refused:
        wanted = "y = y.put(" if item.op == "put_" else "y = y + torch.nn.functional.max_unpool2d("
        assert lines[item.line - 1].strip().startswith(wanted)
    assert refusing.good and len(refusing.ended.tail) == 4
    assert all(line.endswith(" True") for line in refusing.ended.tail)  # the flag as it was
    assert not trained(refusing).undone  # the probe's own switch is no line of the training


@pytest.mark.slow
def test_an_operator_that_torch_does_not_refuse_is_not_named(tmp_path: Path) -> None:
    found = trained(trace_script(tmp_path, CLEAN, probe={"refused": 10}))
    assert len(found.steps) == 4 and not found.refused


@pytest.mark.slow
def test_another_error_of_an_operator_ends_the_training_as_it_would(tmp_path: Path) -> None:
    script = CLEAN.replace("y.square()", "y.view(7)")
    run = trace_script(tmp_path, script, probe={"refused": 10})
    assert not run.good and "shape '[7]' is invalid" in run.ended.tail[-1]


@pytest.mark.slow
def test_operators_are_counted_by_name_dtype_and_pass(noted: RunResult, tmp_path: Path) -> None:
    rows = {tuple(row): count for *row, count in trained(noted).dispatched}
    assert rows["aten.addmm.default", "float32", "forward", ""] == 1
    assert rows["aten.mm.default", "float32", "backward", ""] == 1
    assert any(row[:3] == ("aten.rand.default", "", "forward") for row in rows)
    assert not any("hash" in row[0] for row in rows)
    plain = trace_script(tmp_path, CLEAN)
    assert noted.ended.tail == plain.ended.tail and not trained(plain).dispatched
    with_note, without = (
        [(item.step, item.kind, item.digests) for item in trained(run).blocks]
        for run in (noted, plain)
    )
    assert with_note == without


@pytest.mark.slow
def test_where_something_is_compiled_nothing_is_noted_and_it_compiles(tmp_path: Path) -> None:
    """A compiled graph dispatches nothing, and under the watch it would not run. What is compiled
    behind the first step, with `fullgraph`, refuses to run without being compiled."""
    early = CLEAN.replace("index =", "layer = torch.compile(layer, backend='eager')\nindex =")
    found = trained(trace_script(tmp_path, early, probe={"dispatched": 1}))
    assert len(found.steps) == 4 and not found.dispatched
    average = """
mean = torch.zeros(8, 8)
@torch.compile(fullgraph=True, backend='eager')
def average(weight, mean):
    mean.lerp_(weight, 0.5)
"""
    call = "    optimizer.step()\n    average(layer.weight.detach(), mean)\n"
    late = CLEAN.replace("for step in", average + "for step in")
    late = late.replace("    optimizer.step()\n", call)
    run = trace_script(tmp_path, late, probe={"dispatched": 1}, name="late")
    assert run.good and len(trained(run).steps) == 4, run.ended.tail
