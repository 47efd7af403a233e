"""Claims about DataLoaders: each is seen as its first iterator is made, with workers and seed.
Whatever a worker calls, it is none of the training's processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from repro_gate.trace.model import Trace
from tests.support.tracing import Case, names, trace_cases, trace_script, trained

SOURCE = """
import multiprocessing, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self):
        self.transform = nn.Dropout(0.5)  # a module, as every transform of torchvision
    def __len__(self):
        return 64
    def __getitem__(self, index):
        x = torch.arange(8.0) + index
        if "grad" in sys.argv:  # a sample made by an optimizer
            y = nn.Parameter(torch.zeros(8))
            inner = torch.optim.SGD([y], lr=0.1)
            (y - x).square().sum().backward()
            inner.step()
            x = y.detach()
        return self.transform(x)

def main():
    net = nn.Linear(8, 1)
    def make():
        return torch.optim.SGD(net.parameters(), lr=0.01)
    def loader():
        return DataLoader(Data(), batch_size=4, num_workers=2 if sys.argv[1] == "fork" else 1, multiprocessing_context=sys.argv[1])
    optimizer = make() if sys.argv[2] == "before" else None
    batches = iter(loader())
    optimizer = optimizer or make()
    for x in batches:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
POOL = """
import multiprocessing
import torch
from torch import nn
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def prepare(index):
    return nn.Dropout(0.5)(torch.ones(8) * index)
with multiprocessing.get_context("fork").Pool(2) as pool:
    data = pool.map(prepare, range(8))
for x in data:
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
RECORDS = SOURCE.replace(
    "        return self.transform(x)",
    "        from repro_gate import record; record('x', x)\n        return self.transform(x)",
)
SPLITS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
x, y = torch.arange(40.0).view(20, 2), torch.arange(20) % 2
train = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True, num_workers=1)
held_out = DataLoader(TensorDataset(x, y), batch_size=3)
unused = DataLoader(TensorDataset(x, y), batch_size=2)
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for epoch in range(2):
    for a, b in train:
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(a), b).backward()
        opt.step()
    for a, b in held_out:
        net(a)
"""
IN_A_CHILD = """
import gc, multiprocessing, torch, weakref
from torch.utils.data import DataLoader
def work():
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    for x in DataLoader(torch.arange(4.0).view(4, 1)):
        net(x).sum().backward()
        opt.step()
loader = DataLoader(torch.arange(3.0))
next(iter(loader))
gone = weakref.ref(loader)
del loader
gc.collect()
assert gone() is None, "it is held alive"
process = multiprocessing.get_context("fork").Process(target=work, name="worker")
process.start()
process.join()
"""
FORKED = {"before": "fork before", "after": "fork after", "grad": "fork before grad"}
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def traced(short_folder: Path) -> Cases:
    """Trainings whose workers are forks, in one run."""
    cases: dict[str, str | tuple[str, str]] = {"pool": POOL, "splits": SPLITS, "child": IN_A_CHILD}
    cases |= {name: (SOURCE, arguments) for name, arguments in FORKED.items()}
    return trace_cases(short_folder, {**cases, "records": (RECORDS, "fork before")}, steps=3)


def claims(trace: Trace) -> None:
    assert (trace.end, len(trace.steps), trace.stopped) == ("steps", 3, True)
    assert names(trace, "parameter", -1) == ["weight", "bias"]


def test_a_forked_worker_is_no_process_of_the_training(traced: Cases) -> None:
    train = {name: case.trace for name, case in traced.items() if name != "child"}
    for way, trace in train.items():
        claims(trace)
        if way in FORKED:
            assert names(trace, "batch", 2) == ["value"]
            assert [loader.workers for loader in trace.loaders] == [2]
        assert trace.distributions is None, "nobody asked to observe"
    traces = traced["pool"].run.traces
    assert sorted(trace.key for trace in traces if trace.trained) == sorted({*train, "worker"})
    # what a worker records is said to be nothing
    assert {name for trace in traces for name, _ in trace.notes} == {"record-in-worker"}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["spawn before", "forkserver after grad"])
def test_a_worker_that_imports_anew_is_none_either(arguments: str, short_path: Path) -> None:
    run = trace_script(short_path, SOURCE, command=f"python train.py {arguments}", steps=3)
    assert run.outcome == "stopped", (run.outcome, run.problem, run.ended.tail)
    trace = trained(run)
    claims(trace)
    assert names(trace, "batch", 2) == ["value"] and len(run.traces) > 1, "each has a trace"
    assert trace.key == "main" and [loader.workers for loader in trace.loaders] == [1]


def test_each_loader_is_told_once_by_its_own_process(traced: Cases) -> None:
    train, held_out = traced["splits"].trace.loaders
    assert [item.workers for item in (train, held_out)] == [1, 0]
    assert None is not train.base_seed != held_out.base_seed is not None
    main = traced["child"].trace
    [worker] = [trace for trace in traced["child"].run.traces if trace.key == "worker"]
    for trace in (main, worker):
        assert [item.workers for item in trace.loaders] == [0]
    assert {case.exit_code for case in traced.values()} == {0}
