"""Claims about `probe.loaders`: each DataLoader is seen at its first batch, and a record has one
digest wherever it turns up."""

from __future__ import annotations

import base64
import dataclasses
import gc
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from repro_gate.probe.loaders import Loaders, record_digests
from repro_gate.trace.format import RECORD_BYTES
from repro_gate.trace.model import LoaderSeen, Records, Trace
from tests.support.tracing import Case, trace_cases


def digests(batch: Any, most: int | None = None) -> list[bytes]:
    return list(record_digests(torch, batch, most))


X = torch.arange(24, dtype=torch.float32).view(4, 2, 3)
Y = torch.tensor([0, 1, 0, 1])
WORDS = ["a", "b", "c", "d"]


def test_a_record_has_one_digest_in_any_batch_and_any_order() -> None:
    whole = digests([X, Y])
    assert len(whole) == len(set(whole)) == 4 and {len(item) for item in whole} == {RECORD_BYTES}
    order = [2, 0, 3, 1]
    assert digests([X[order], Y[order]]) == [whole[index] for index in order]
    assert digests((X[1:3], Y[1:3])) == whole[1:3]
    assert digests({"x": X[2:3], "y": Y[2:3]}) == [whole[2]]


CHANGES = {
    "a value": [X + torch.tensor([0, 0, 1.0]), Y],
    "a label": [X, 1 - Y],
    "a dtype of the same bytes": [X.view(torch.int32), Y],
    "a shape of the same bytes": [X.reshape(4, 3, 2), Y],
    "the sign of zero": [torch.where(X == 0, -0.0, X)[:1], Y[:1]],
    "a text beside it": [X, Y, WORDS],
    "another text": [X, Y, ["b", "c", "d", "e"]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_digest_sees(change: str) -> None:
    assert not set(digests(CHANGES[change])) & set(digests([X, Y]))


def test_strided_and_empty_and_boolean_and_half_tensors_are_read_as_they_stand() -> None:
    assert digests([X.permute(0, 2, 1).contiguous().permute(0, 2, 1), Y]) == digests([X, Y])
    assert digests([X[::2], Y[::2]]) == digests([X, Y])[::2]
    assert len(set(digests([torch.empty(3, 0)]))) == 1
    for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.uint8):
        assert len(set(digests([torch.tensor([0, 1]).to(dtype)]))) == 2
    assert digests([torch.tensor([1 + 1j, 2j]).conj()]) == digests(
        [torch.tensor([1 - 1j, complex(0, -2)])]
    )


def test_arrays_of_numpy_count_like_tensors_and_objects_by_their_text() -> None:
    assert digests([X.numpy(), Y.numpy()]) == digests([X, Y])
    assert digests([np.array(["p", "qq"])]) != digests([np.array(["p", "rr"])])
    assert len(set(digests([np.array([{"a": 1}, {"b": 2}], dtype=object)]))) == 2
    assert len(set(digests([np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")]))) == 2


def test_what_has_no_slice_for_each_record_is_left_out() -> None:
    assert digests(
        [X, Y, torch.tensor(3.0), torch.zeros(7, 4), "name", 5, None, {"scale": 2.0}]
    ) == digests([X, Y])
    assert digests([X, Y, X.reshape(4, 6).to_sparse()]) == digests([X, Y])


@pytest.mark.parametrize(
    "batch",
    [None, 3, "text", [], {}, [torch.tensor(1.0)], WORDS, object(), [[]], torch.empty(0, 3)],
    ids=lambda batch: type(batch).__name__,
)
def test_a_batch_without_records_gives_none(batch: Any) -> None:
    assert digests(batch) == []


def test_more_slices_than_the_loader_batches_are_no_records() -> None:
    assert digests([X, Y], most=3) == [] and len(digests([X, Y], most=4)) == 4


def test_nestings_and_dataclasses_are_gone_through() -> None:
    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        inner: dict[str, Any]

    assert digests(Batch(X, {"deep": [(Y,)]})) == digests([X, Y])


SPLITS = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
x, y = torch.arange(40.0).view(20, 2), torch.arange(20) % 2
leak = 3 if len(sys.argv) > 1 else 0
workers = 1 if "workers" in sys.argv else 0
train = DataLoader(TensorDataset(x[:12], y[:12]), batch_size=4, shuffle=True, num_workers=workers)
held_out = DataLoader(TensorDataset(x[12 - leak:], y[12 - leak:]), batch_size=3)
unused = DataLoader(TensorDataset(x, y), batch_size=2)
whole = DataLoader(TensorDataset(x, y), batch_size=None)
next(iter(held_out))  # a look before training
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for epoch in range(2):
    for a, b in train:
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(a), b).backward()
        opt.step()
    with torch.no_grad():
        for a, b in held_out:
            net(a)
        next(iter(whole))
"""


def split(trace: Trace) -> tuple[set[bytes], set[bytes]]:
    """Digests of the records of training and of evaluation."""

    def of(role: str) -> set[bytes]:
        found = [item for item in trace.records if item.role == role]
        assert all(item.whole for item in found)
        return {
            item.digests[at : at + RECORD_BYTES]
            for item in found
            for at in range(0, len(item.digests), RECORD_BYTES)
        }

    return of("train"), of("evaluation")


def counted(trace: Trace) -> list[tuple[int, str, int, bool]]:
    return [
        (item.loader, item.role, len(item.digests) // RECORD_BYTES, item.whole)
        for item in trace.records
    ]


EPOCHS = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
x = torch.arange(60.0).view(60, 1)
train, held_out = TensorDataset(x[:40]), TensorDataset(x[40:])
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.0001)
for epoch in range(4):
    if "new" in sys.argv:
        train, held_out = TensorDataset(x[:40]), TensorDataset(x[40:])
    if "list" in sys.argv:
        train, held_out = list(x[:40]), list(x[40:])
    for batch in DataLoader(train, batch_size=4, shuffle=True):
        opt.zero_grad()
        net(batch[0]).sum().backward()
        opt.step()
    loader = DataLoader(held_out, batch_size=5)
    with torch.no_grad():
        for batch in loader:
            net(batch[0])
"""


PREFETCHED = """
    import torch
    from torch.utils.data import DataLoader
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    def fit(x):
        net(x).sum().backward()
        opt.step()
    batches = iter(DataLoader(torch.arange(8.0).view(8, 1), batch_size=4))
    first = next(batches)
    second = next(batches)  # fetched ahead
    fit(first)
    with torch.inference_mode():
        for x in DataLoader(torch.arange(9.0, 12.0).view(3, 1)):
            net(x)
    fit(second)
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
PARTS = """
    import torch
    from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset
    data, other = TensorDataset(torch.arange(8.0).view(8, 1)), TensorDataset(torch.arange(8.0).view(8, 1))
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], lr=0.1)
    loaders = [
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=4),
        DataLoader(other, batch_size=4),
        DataLoader(data, batch_size=4, sampler=SubsetRandomSampler([0, 1, 2, 3])),
        DataLoader(Subset(data, [0, 1]), batch_size=2),
        DataLoader([1.0, 2.0], batch_size=2),
    ]
    for loader in loaders:
        for batch in loader:
            pass
    (w.sum() ** 2).backward()
    optimizer.step()
    """
PATCHED = "import sys, torch\nimport _repro_gate.probe.loaders as part\n"
OBSERVED: Mapping[str, str | tuple[str, str]] = {
    "clean": SPLITS,
    "leaking": (SPLITS, "leak workers"),
    "prefetched": PREFETCHED,
    "same": (EPOCHS, "the same"),
    "new": (EPOCHS, "new"),
    "list": (EPOCHS, "list"),
    "ten": SPLITS.replace("import sys, torch", PATCHED + "part.MAX_RECORDS = 10"),
    "unread": SPLITS.replace("import sys, torch", PATCHED + "part._slices = None"),
    "in_a_child": IN_A_CHILD,
    "parts": PARTS,
}


@pytest.fixture(scope="module")
def observed() -> Iterator[Mapping[str, Case]]:
    """Trainings in one run that observes what DataLoaders hand out; its folder has a short path, as
    multiprocessing's sockets need."""
    with tempfile.TemporaryDirectory(prefix="rg", dir="/tmp") as folder:
        found = trace_cases(Path(folder), OBSERVED, observe=True)
        assert found["clean"].run.outcome == "finished", found["clean"].run.problem
        yield found


def test_train_and_held_out_records_are_told_apart_and_a_leak_shows(
    observed: Mapping[str, Case],
) -> None:
    clean = observed["clean"].trace
    seeds = [item.base_seed for item in clean.loaders]
    assert [(item.number, item.workers) for item in clean.loaders] == [(0, 0), (1, 0), (2, 0)]
    assert all(isinstance(seed, int) for seed in seeds) and len(set(seeds)) == 3
    train, evaluation = split(clean)
    assert [
        (item.loader, item.role, len(item.digests) // RECORD_BYTES) for item in clean.records
    ] == [
        (0, "evaluation", 8),
        (1, "train", 12),
    ]
    assert not train & evaluation

    leaking = observed["leaking"].trace
    assert [item.workers for item in leaking.loaders] == [0, 1, 0]
    train, evaluation = split(leaking)
    assert len(train & evaluation) == 3 and len(evaluation) == 11


def test_a_loader_of_which_validation_comes_last_before_a_prefetched_batch_is_trained_on(
    observed: Mapping[str, Case],
) -> None:
    assert [item.role for item in observed["prefetched"].trace.records] == ["train", "evaluation"]


@pytest.mark.parametrize("way", ["same", "new", "list"])
def test_a_new_loader_for_each_epoch_is_written_as_one_for_all(
    way: str, observed: Mapping[str, Case]
) -> None:
    trace = observed[way].trace
    assert [item.number for item in trace.loaders] == list(range(8))
    assert counted(trace) == [(0, "train", 40, True), (1, "evaluation", 20, True)]
    train, evaluation = split(trace)
    assert (len(train), len(evaluation)) == (40, 20) and not train & evaluation


def test_training_and_evaluation_on_one_data_set_are_kept_apart_and_so_are_the_parts_that_samplers_take() -> (
    None
):
    session = Recorder()
    loaders = Loaders(torch, session)
    data = TensorDataset(torch.arange(60.0))
    for _ in range(3):
        drain(loaders, DataLoader(data, batch_size=5, sampler=range(40)), train=True)
        drain(loaders, DataLoader(data, batch_size=5, sampler=range(10)))
        drain(loaders, DataLoader(data, batch_size=5, sampler=range(50, 60)))
    loaders.write()
    assert session.records() == [
        (0, "train", 40, True),
        (1, "evaluation", 10, True),
        (2, "evaluation", 10, True),
    ]


def test_a_loader_that_was_looked_through_before_training_is_one_of_training() -> None:
    session = Recorder()
    loaders = Loaders(torch, session)
    data = TensorDataset(torch.arange(60.0))
    drain(loaders, DataLoader(data, batch_size=5))
    loader = DataLoader(data, batch_size=5, shuffle=True)
    drain(loaders, loader)
    drain(loaders, loader, train=True)
    loaders.write()
    assert session.records() == [(0, "evaluation", 60, True), (1, "train", 60, True)]


class Recorder:
    """Stands in for the session of a process."""

    def __init__(self) -> None:
        self.config = {"observe": True}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    def note(self, identifier: str, message: str) -> None:
        raise AssertionError((identifier, message))

    def records(self) -> list[tuple[int, str, int, bool]]:
        return [
            (
                event["loader"],
                event["role"],
                len(base64.b64decode(event["digests"])) // RECORD_BYTES,
                event["whole"],
            )
            for name, event in self.events
            if name == "records"
        ]


def drain(loaders: Loaders, loader: Any, train: bool = False) -> None:
    """One epoch, as the hooks see it."""
    iterator = iter(loader)
    loaders.started(loader, iterator)
    with torch.set_grad_enabled(train):
        for batch in iterator:
            loaders.batch(iterator, batch)
            if train:
                loaders.trained()


def test_the_limit_is_the_processs_and_a_large_training_set_leaves_room_for_the_held_out_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("repro_gate.probe.loaders.MAX_RECORDS", 100)
    session = Recorder()
    loaders = Loaders(torch, session)
    data = torch.arange(1000.0)
    train = DataLoader(TensorDataset(data[:500]), batch_size=10)
    for _ in range(2):
        drain(loaders, train, train=True)
        drain(loaders, DataLoader(TensorDataset(data[500:530]), batch_size=10))
    loaders.write()
    [(_, role, count, whole), evaluation] = session.records()
    assert (role, whole, evaluation) == ("train", False, (1, "evaluation", 30, True))
    assert 40 <= count <= 70


def test_records_that_are_new_in_each_epoch_end_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("repro_gate.probe.loaders.MAX_RECORDS", 100)
    session = Recorder()
    loaders = Loaders(torch, session)
    held = [DataLoader(TensorDataset(torch.rand(30) + epoch), batch_size=10) for epoch in range(8)]
    for loader in held:
        drain(loaders, loader, train=True)
    loaders.write()
    counts = [count for _, _, count, _ in session.records()]
    assert sum(counts) <= 100
    assert [whole for _, _, count, whole in session.records() if count < 30] == [False] * sum(
        count < 30 for count in counts
    )


def test_neither_loaders_nor_data_sets_are_held_alive() -> None:
    loaders = Loaders(torch, Recorder())
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data)
    drain(loaders, loader, train=True)
    gone = [weakref.ref(data), weakref.ref(loader)]
    del data, loader
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_more_records_than_are_kept_are_said(observed: Mapping[str, Case]) -> None:
    assert counted(observed["ten"].trace) == [(0, "evaluation", 5, False), (1, "train", 5, False)]


def test_a_batch_that_cannot_be_read_is_said_and_the_rest_is_recorded(
    observed: Mapping[str, Case],
) -> None:
    trace = observed["unread"].trace
    assert (trace.end, len(trace.steps), trace.records) == ("exit", 6, [])
    assert {identifier for identifier, _ in trace.notes} == {"records-not-read"}


def test_a_loader_of_another_process_is_that_processs(observed: Mapping[str, Case]) -> None:
    main = observed["in_a_child"].trace
    [worker] = [trace for trace in observed["in_a_child"].run.traces if trace.key == "worker"]
    assert (
        [(item.number, item.workers) for item in main.loaders]
        == [(0, 0)]
        == [(item.number, item.workers) for item in worker.loaders]
    )
    assert isinstance(worker.loaders[0], LoaderSeen) and isinstance(worker.records[0], Records)
    assert len(worker.records[0].digests) == 4 * RECORD_BYTES and main.records == []


def test_loaders_that_draw_one_data_set_whole_are_told_from_those_that_draw_parts(
    observed: Mapping[str, Case],
) -> None:
    seen = [item.dataset for item in observed["parts"].trace.loaders]
    assert seen[0] is not None and seen[0] == seen[1], "the same data set, drawn whole"
    assert seen[2] not in (None, seen[0]) and seen[4] not in (None, seen[0], seen[2]), "others"
    assert seen[3] is None, "a part of it"
