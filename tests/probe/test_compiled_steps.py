"""Claims about steps in functions compiled with `fullgraph=True`: they compile as without the
probe, and are recorded as those that are not compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from tests.support.tracing import Case, blocks, trace_cases

HEAD = """
import threading, torch, torch._dynamo

class Momentum(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for item in group["params"]:
                state = self.state[item]
                if "moment" not in state:
                    state["moment"] = torch.zeros_like(item)
                state["moment"].mul_(0.9).add_(item.grad)
                item.add_(state["moment"], alpha=-group["lr"])

def whole(function):
    return torch.compile(function, fullgraph=True, backend="eager")

def train(step, times=3):
    for _ in range(times):
        opt.zero_grad()
        net(torch.ones(4, 3)).square().mean().backward()
        step()
        print("step", net.weight.sum().item().hex(), flush=True)

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = Momentum(net.parameters())
"""
CASES = {
    "eager": "train(opt.step)",
    "method": "train(whole(opt.step))",
    "function": "@whole\ndef step():\n    opt.step()\ntrain(step)",
    "in_part": "step = whole(opt.step)\ntrain(step, 1)\ntrain(opt.step, 1)\ntrain(step, 1)",
    "broken": """
@whole
def fails():
    print("here")
    opt.step()
try:
    fails()
except torch._dynamo.exc.Unsupported:
    train(opt.step)
""",
    "twice": "@whole\ndef step():\n    opt.step()\n    opt.step()\ntrain(step)",
    "none": "train(whole(lambda: net.weight.detach().mul_(0.5)))",
    "thread": """
thread = threading.Thread(target=train, args=(whole(opt.step),))
thread.start(); thread.join()
""",
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Case]:
    folder = tmp_path_factory.mktemp("compiled")
    return trace_cases(folder, {name: HEAD + source for name, source in CASES.items()})


def steps(case: Case) -> list[str]:
    """What a training says of its weights after each step."""
    return [line for line in case.printed if line.startswith("step")]


@pytest.mark.parametrize("name", ["method", "function", "in_part", "broken"])
def test_a_compiled_step_is_recorded_as_one_that_is_not(
    cases: Mapping[str, Case], name: str
) -> None:
    eager, case = (replace(cases[it].trace, key="main") for it in ("eager", name))
    assert cases[name].exit_code == 0, cases[name].printed
    assert (len(case.steps), case.end, case.notes) == (3, "exit", [])
    assert compare_runs([eager], [case]).identical
    moved = {bytes(block.digests) for step in range(3) for block in blocks(case, "parameter", step)}
    assert len(moved) == 3 and len(blocks(case, "gradient", 2)) == 1
    assert steps(cases[name]) == steps(cases["eager"])


def test_steps_that_cannot_be_told_apart_are_said(cases: Mapping[str, Case]) -> None:
    trace = cases["twice"].trace
    assert (len(trace.steps), cases["twice"].exit_code) == (6, 0)
    [(name, message)] = trace.notes
    assert name == "compiled-steps" and "fullgraph=True" in message


def test_a_compiled_function_without_a_step_is_none(cases: Mapping[str, Case]) -> None:
    [(name, message)] = cases["none"].trace.notes
    assert name == "steps" and message.startswith("steps are calls of backward()")


def test_a_thread_has_the_compiled_steps_that_it_takes(cases: Mapping[str, Case]) -> None:
    case = cases["thread"]
    assert case.exit_code == 0
    assert [len(it.steps) for it in case.run.traces if it.pid == case.trace.pid] == [0, 3]


def test_a_training_stops_after_its_last_compiled_step(tmp_path: Path) -> None:
    source = HEAD + "train(whole(opt.step), 100)"
    case = trace_cases(tmp_path, {"long": source}, steps=2)["long"]
    assert (len(case.trace.steps), case.trace.stopped, case.exit_code) == (2, True, 0)
    assert len(steps(case)) == 1
