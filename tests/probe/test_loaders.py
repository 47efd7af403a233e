"""Claims about `probe.loaders`: each DataLoader is seen at its first batch, with workers and seed."""

from __future__ import annotations

import gc
import tempfile
import types
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from repro_gate.probe.loaders import Loaders
from tests.support.tracing import Case, trace_cases

SPLITS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
x, y = torch.arange(40.0).view(20, 2), torch.arange(20) % 2
train = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True, num_workers=1)
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
import multiprocessing, torch
from torch.utils.data import DataLoader
def work():
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    for x in DataLoader(torch.arange(4.0).view(4, 1)):
        net(x).sum().backward()
        opt.step()
next(iter(DataLoader(torch.arange(3.0))))
process = multiprocessing.get_context("fork").Process(target=work, name="worker")
process.start()
process.join()
"""
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def traced() -> Iterator[Cases]:
    """Both trainings; their folder has a short path, as multiprocessing's sockets need."""
    with tempfile.TemporaryDirectory(prefix="rg", dir="/tmp") as folder:
        yield trace_cases(Path(folder), {"splits": SPLITS, "in_a_child": IN_A_CHILD})


def test_each_loader_is_told_once_by_its_own_process(traced: Cases) -> None:
    train, held_out = traced["splits"].trace.loaders
    assert [item.workers for item in (train, held_out)] == [1, 0]
    assert None is not train.base_seed != held_out.base_seed is not None
    main = traced["in_a_child"].trace
    [worker] = [trace for trace in traced["in_a_child"].run.traces if trace.key == "worker"]
    for trace in (main, worker):
        assert [item.workers for item in trace.loaders] == [0]


def test_neither_loaders_nor_data_sets_are_held_alive() -> None:
    events: list[str] = []
    session = types.SimpleNamespace(event=lambda name, **fields: events.append(name))
    loaders = Loaders(session)
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data)
    for _ in range(2):
        iterator = iter(loader)
        loaders.started(loader, iterator)
        for _ in iterator:
            loaders.batch(iterator)
    assert events == ["loaders"]
    gone = [weakref.ref(data), weakref.ref(loader)]
    del data, loader, iterator
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
