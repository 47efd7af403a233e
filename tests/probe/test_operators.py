"""`probe.operators`: what torch dispatched in a step, and what a replay of it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.runs import arms
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import OperatorLine
from tests.support.tracing import trace_script, trained

SCRIPT = """
import torch
torch.manual_seed(3)
torch.set_num_threads(4)
table = torch.nn.Parameter(torch.randn(64, 8))
index = torch.randint(0, 64, (20000,))
optimizer = torch.optim.SGD([table], lr=0.1)
for step in range(3):
    rows = table[index]
    noise = torch.rand(3)
    loss = rows.tanh().sum() * noise.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(torch.initial_seed(), torch.rand(1).item(), flush=True)
"""
STEP = 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, RunResult]:
    place = tmp_path_factory.mktemp("operators")
    arm = arms.deterministic(42, frozenset({"torch.use_deterministic_algorithms"}), None)
    env = {"OMP_NUM_THREADS": "4"}
    asked = {"step": STEP, "replay": ["aten.index_put.default", 1, 30]}
    probe = {"factors": {}, "operators": asked}
    found = trace_script(place / "a", SCRIPT, arm=arm, env=env, probe=probe)
    return found, trace_script(place / "b", SCRIPT, arm=arm, env=env)


def operators(run: RunResult, phase: str) -> list[OperatorLine]:
    return [item for item in trained(run).operators if item.phase == phase]


@pytest.mark.slow
def test_a_record_changes_no_number_and_no_generator(runs: tuple[RunResult, RunResult]) -> None:
    recorded, plain = runs
    assert recorded.ended.tail == plain.ended.tail
    assert len(recorded.ended.tail) == 3
    forward = operators(recorded, "forward")
    assert len([item for item in forward if item.op.startswith("aten.tanh")]) == STEP + 1
    assert not trained(plain).operators


def test_operators_have_their_line_and_draws_their_state(runs: tuple[RunResult, RunResult]) -> None:
    lines, forward = SCRIPT.splitlines(), operators(runs[0], "forward")
    backward = [item for item in operators(runs[0], "backward") if "index_put" in item.op]
    taken = [item for item in forward if item.op.startswith("aten.index.")]
    for item in (taken[0], *backward):
        assert lines[item.line - 1].strip() == "rows = table[index]"
    assert operators(runs[0], "optimizer")
    draws = [item for item in forward if item.op.startswith("aten.rand.")]
    assert {len(item.inputs) for item in draws} == {1}
    assert draws[0].inputs != draws[1].inputs
    assert next(item for item in forward if item.op.startswith("aten.tanh")).simple
    assert backward and not backward[0].simple


@pytest.mark.slow
def test_what_unwritten_memory_holds_is_no_input_of_what_writes_to_it_first(tmp_path: Path) -> None:
    script = """
    import torch
    pages = [torch.rand(1000) for _ in range(50)]
    del pages
    weight = torch.empty(1000)
    filled = weight.view(1000).uniform_(generator=torch.Generator().manual_seed(1))
    weight.mul_(2.0)
    pair = [torch.empty(10), torch.empty(10)]
    torch._foreach_zero_(pair)
    torch._foreach_add_(pair, 1.0)
    weight = torch.nn.Parameter(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    """
    allowed = frozenset({"torch.utils.deterministic.fill_uninitialized_memory"})
    arm = arms.deterministic(42, allowed, None)
    probe = {"factors": {}, "operators": {"step": 0, "replay": None}}
    found = {
        item.op.removeprefix("aten.").partition(".")[0]: item
        for item in trained(trace_script(tmp_path, script, arm=arm, probe=probe)).operators
    }
    counts = {"uniform_": 1, "mul_": 1, "_foreach_zero_": 0, "_foreach_add_": 2}
    assert {name: len(found[name].inputs) for name in counts} == counts
    assert found["mul_"].inputs == found["uniform_"].outputs[:1]


def test_a_replay_tells_an_operator_that_adds_in_any_order(
    runs: tuple[RunResult, RunResult],
) -> None:
    found = [item.distinct for item in trained(runs[0]).operators if item.distinct]
    assert len(found) == 1, {item.op for item in trained(runs[0]).operators}
    assert found[0]["deterministic"] == 1
    assert found[0]["one-thread"] == 1
    assert found[0]["as-trained"] >= 1
