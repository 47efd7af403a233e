"""Each thread that trains has a trace of its own; one that only fetches for others has none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from repro_gate.trace.model import Trace
from tests.support.tracing import names, trace_script

SOURCE = """
import queue, sys, threading
import torch
from torch.utils.data import DataLoader, TensorDataset

models = [torch.nn.Linear(4, 2) for _ in range(3)]
turn = threading.Barrier(2)

def job(model):  # in another order in each run: who begins is drawn by the line below
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()

def first(model):
    job(model)
    turn.wait()

def second(model):
    turn.wait()
    job(model)

order = [first, second] if "forth" in sys.argv else [second, first]
threads = [threading.Thread(target=target, args=(model,), name=name) for target, model, name in zip(order, models, ("left", "right"))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

batches = queue.Queue(2)

def fetch():
    for batch in DataLoader(TensorDataset(torch.arange(32.0).view(8, 4)), 2):
        batches.put(batch[0])
    batches.put(None)

threading.Thread(target=fetch).start()
optimizer = torch.optim.SGD(models[2].parameters(), lr=0.01)
while (batch := batches.get()) is not None:
    optimizer.zero_grad()
    models[2](batch).square().mean().backward()
    optimizer.step()
models[2].register_buffer("late", torch.ones(2))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Mapping[str, Trace]]:
    folder = tmp_path_factory.mktemp("threads")
    found = (
        trace_script(folder / way, SOURCE, command=f"python train.py {way}")
        for way in ("forth", "back")
    )
    return [{trace.key: trace for trace in run.traces if trace.trained} for run in found]


def test_each_thread_that_trains_has_its_own_trace(runs: list[Mapping[str, Trace]]) -> None:
    wanted = {"main": (4, "exit"), "main/left": (5, "exit"), "main/right": (5, "exit")}
    for run in runs:
        assert {key: (len(trace.steps), trace.end) for key, trace in run.items()} == wanted
        blocks = [block for trace in run.values() for block in trace.blocks]
        assert not [block for block in blocks if block.kind == "batch"]
        assert not run["main"].loaders
        # a buffer that comes after the last step is compared
        assert [names(run["main"], "buffer", step) for step in (3, 4)] == [[], ["late"]]


def test_independent_threads_may_take_any_order(runs: list[Mapping[str, Trace]]) -> None:
    for key in ("main/left", "main/right"):
        ours, theirs = (
            [
                (block.step, block.kind, block.rows, block.digests)
                for block in run[key].blocks
                if block.kind != "rng"
            ]
            for run in runs
        )
        assert ours == theirs and len(ours) > 15


EIGHT = """
import threading
import torch

lock_step = threading.Barrier(8)

def by_optimizer(net, loss):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        loss(net).backward()
        yield optimizer.step()

def by_grad(net, loss):
    while True:
        grads = torch.autograd.grad(loss(net), net.parameters())
        with torch.no_grad():
            yield [p.sub_(grad, alpha=0.1) for p, grad in zip(net.parameters(), grads)]

def by_backward(net, loss):
    while True:
        net.zero_grad()
        loss(net).backward()
        yield [p.data.sub_(p.grad, alpha=0.1) for p in net.parameters()]

def train(number):
    way = (by_optimizer, by_grad, by_backward)[number % 3]
    steps = way(torch.nn.Linear(4, 2), lambda net: net(torch.ones(3, 4)).square().mean())
    for _ in range(20):
        lock_step.wait()
        next(steps)

threads = [threading.Thread(target=train, args=(number,), name=str(number)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_eight_threads_that_step_at_once_leave_eight_whole_traces(tmp_path: Path) -> None:
    run = trace_script(tmp_path, EIGHT)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    traces = {trace.key: trace for trace in run.traces if trace.trained}
    assert sorted(traces) == [f"main/{number}" for number in range(8)]
    for trace in traces.values():
        assert (len(trace.steps), trace.end) == (20, "exit")
        for step in range(1, 19):  # of a step by hand, the last update comes after it
            kinds = [block.kind for block in trace.blocks if block.step == step]
            assert {"rng", "loss", "gradient", "parameter"} <= set(kinds), (trace.key, step, kinds)
    assert "probe-error" not in {name for trace in run.traces for name, _ in trace.notes}
