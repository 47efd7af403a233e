"""Whatever a DataLoader's worker calls, it is none of the training's processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from repro_gate.trace.model import Trace
from tests.support.tracing import Case, names, trace_cases, trace_script, trained

SOURCE = """
import multiprocessing, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Normalize(nn.Module):  # as every transform of torchvision
    def forward(self, x):
        return (x - x.mean()) / x.std()

class Data(Dataset):
    def __init__(self):
        self.transform = nn.Sequential(Normalize(), nn.Dropout(0.5))
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
    def batches():
        return DataLoader(Data(), batch_size=4, num_workers=2 if sys.argv[1] == "fork" else 1, multiprocessing_context=sys.argv[1])
    if sys.argv[2] == "before":
        optimizer, loader = make(), batches()
        batches_of = iter(loader)
    else:
        loader = batches()
        batches_of = iter(loader)
        optimizer = make()
    for x in batches_of:
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
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def forked() -> Iterator[Cases]:
    """Trainings whose workers are forks, in one run; its folder has a short path, as
    multiprocessing's sockets need."""
    ways = {"before": "fork before", "after": "fork after", "grad": "fork before grad"}
    with tempfile.TemporaryDirectory(prefix="rg", dir="/tmp") as folder:
        cases: dict[str, str | tuple[str, str]] = {"pool": POOL}
        cases |= {name: (SOURCE, arguments) for name, arguments in ways.items()}
        yield trace_cases(Path(folder), {**cases, "records": (RECORDS, "fork before")}, steps=3)


def claims(trace: Trace) -> None:
    assert (trace.end, len(trace.steps), trace.stopped) == ("steps", 3, True)
    assert names(trace, "parameter", -1) == ["weight", "bias"]


def test_a_forked_worker_is_no_process_of_the_training(forked: Cases) -> None:
    for way, case in forked.items():
        claims(case.trace)
        if way in ("before", "after", "grad"):
            assert names(case.trace, "batch", 2) == ["value"]
            assert [loader.workers for loader in case.trace.loaders] == [2]
        assert case.trace.distributions is None, "nobody asked to observe"
    traces = forked["pool"].run.traces
    assert sorted(trace.key for trace in traces if trace.trained) == sorted(forked)
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
