"""Claims about processes that only prepare data: whatever a DataLoader's worker calls, it is never one of the training's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tracing import names, trace_script, trained

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
        return DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
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


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short path: multiprocessing's sockets below it may have 107 characters at most."""
    return tmp_path_factory.mktemp("w")


@pytest.mark.parametrize(
    "arguments", ["fork before", "fork after", "fork before grad", "spawn before", "spawn after", "forkserver after grad"]
)
def test_a_worker_that_calls_a_module_is_no_process_of_the_training(arguments: str, place: Path) -> None:
    run = trace_script(place, SOURCE, command=f"python train.py {arguments}", steps=3)
    assert run.outcome == "stopped", (run.outcome, run.problem, run.ended.tail)
    trace = trained(run)
    assert (trace.key, trace.end, len(trace.steps)) == ("main", "steps", 3)
    assert names(trace, "parameter", -1) == ["weight", "bias"]
    assert [loader.workers for loader in trace.loaders] == [2]


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


def test_a_worker_of_a_pool_that_only_calls_a_module_is_none_either(place: Path) -> None:
    run = trace_script(place, POOL, steps=3)
    assert (run.outcome, trained(run).key) == ("stopped", "main"), (run.problem, run.ended.tail)


def test_what_a_worker_records_is_said_to_be_nothing(place: Path) -> None:
    source = SOURCE.replace(
        "        return self.transform(x)", "        from repro_gate import record; record('x', x)\n        return self.transform(x)"
    )
    run = trace_script(place, source, command="python train.py fork before", steps=3)
    notes = {note for trace in run.traces for note in trace.notes}
    assert (run.outcome, {identifier for identifier, _ in notes}) == ("stopped", {"record-in-worker"}), (run.problem, run.ended.tail)
