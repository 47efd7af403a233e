"""Claims about `probe.names`: a tensor is called what who wrote the model would call it."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from repro_gate.probe import names


@pytest.fixture(autouse=True)
def _no_models_of_other_tests() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def named(*optimizers: torch.optim.Optimizer) -> list[str]:
    return [name for name, _ in names.name_tensors(list(optimizers)).parameters]


def sgd(*parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def block() -> nn.Module:
    return nn.ModuleDict({"attn": nn.Linear(2, 2, bias=False), "norm": nn.BatchNorm1d(2)})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block(), block()])
        self.scale = nn.Parameter(torch.ones(1))


class DistributedDataParallel(nn.Module):  # by its name, as torch's own is known
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 1, bias=False)


def test_nested_modules_give_dotted_names_and_buffers_too() -> None:
    found = names.name_tensors([sgd(*(net := Net()).parameters())])
    keys = ("attn.weight", "norm.weight", "norm.bias")
    parts = [f"blocks.{index}.{name}" for index in (0, 1) for name in keys]
    assert [name for name, _ in found.parameters] == ["scale", *parts]
    keys = ("running_mean", "running_var", "num_batches_tracked")
    buffers = [f"blocks.{index}.norm.{key}" for index in (0, 1) for key in keys]
    assert [name for name, _ in found.buffers()] == buffers
    del net


SEQUENCE = ["0.out.weight", "1.out.weight"]


def compiled_part() -> nn.Module:
    net = nn.Sequential(Critic(), Critic())
    net[1] = torch.compile(net[1], backend="eager")  # type: ignore[assignment]
    return net


def tied() -> nn.Module:
    net = nn.ModuleDict({"embed": nn.Embedding(4, 2), "head": nn.Linear(2, 4, bias=False)})
    net["head"].weight = net["embed"].weight
    return net


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: [DistributedDataParallel(Critic())], ["out.weight"]),
        (lambda: [torch.compile(Critic(), backend="eager")], ["out.weight"]),
        (lambda: [compiled_part()], SEQUENCE),
        (lambda: [Critic(), nn.PReLU()], ["Critic.out.weight", "PReLU.weight"]),
        (lambda: [Critic(), Critic()], ["Critic.out.weight", "Critic#2.out.weight"]),
        (lambda: [tied()], ["embed.weight"]),
        (lambda: [nn.Sequential(Critic().requires_grad_(False), Critic())], SEQUENCE),
    ],
)
def test_names_of_models_and_wrappers(make: Any, expected: list[str]) -> None:
    models = make()
    trained = [[item for item in net.parameters() if item.requires_grad] for net in models]
    assert named(*(sgd(*items) for items in trained)) == expected


def test_only_what_an_optimizer_moves_is_named_and_a_loose_tensor_by_its_place() -> None:
    net, other, loose = Critic(), block(), torch.zeros(2, requires_grad=True)
    assert named(sgd(*net.parameters(), loose)) == ["out.weight", "param_groups.0.1"]
    found = named(sgd(loose), sgd(torch.zeros(1, requires_grad=True)))
    assert found == ["param_groups.0.0", "optimizer1.param_groups.0.0"]
    keepers = [DistributedDataParallel(net), nn.Sequential(OrderedDict(model=net))]
    first = named(sgd(*net.parameters()))
    assert first == named(sgd(*net.parameters())), "whoever holds it"
    del other, keepers


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    label: int
    extra: Any = None


class Slotted:
    __slots__ = ("hidden", "label")

    def __init__(self) -> None:
        self.label = 3


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.zeros(1), ["value"]),
        ([torch.zeros(1), torch.zeros(1)], ["0", "1"]),
        ((torch.zeros(1), {"mask": torch.zeros(1)}), ["0", "1.mask"]),
        ({"x": torch.zeros(1), "y": None}, ["x"]),
        (namedtuple("Point", "x y")(torch.zeros(1), 2), ["0", "1"]),
        (Sample(torch.zeros(1), 3, ["id-7"]), ["image", "label", "extra.0"]),
        (UserDict(ids=torch.zeros(1), mask=torch.zeros(1)), ["ids", "mask"]),  # as BatchEncoding
        ({1: {"deep": [b"x"]}}, ["1.deep.0"]),
        (Slotted(), ["label"]),
    ],
)
def test_leaves_of_a_batch_are_named_by_their_path(batch: Any, expected: list[str]) -> None:
    assert [name for name, _ in names.leaves(batch)] == expected


def test_code_is_known_by_its_name_and_by_what_it_closes_over_where_it_is_asked_for() -> None:
    def scale(amount: float) -> Any:
        return lambda x: amount * x

    batch = [scale(2.0), scale(3.0), Sample]
    assert [*names.leaves(batch)] == []
    where = f"{scale.__qualname__}.<locals>.<lambda>"
    assert [*names.leaves(batch, code=True)] == [
        ("0", where),
        ("0.0", 2.0),
        ("1", where),
        ("1.0", 3.0),
        ("2", "Sample"),
    ]


def test_leaves_of_something_that_holds_itself_end_and_show_no_address() -> None:
    loop: dict[str, Any] = {"x": 1}
    loop["self"] = loop
    node = Sample(torch.zeros(1), 3)
    node.extra = node
    found = [*names.leaves(loop), *names.leaves(node)]
    plain = [value for _, value in found if not isinstance(value, torch.Tensor)]
    assert len(found) < 50 and not [value for value in plain if "0x" in repr(value)]


def test_listing_modules_leaves_the_tuples_of_other_threads_alone() -> None:
    """A tuple in the making to which the listing refers raises SystemError in its own thread."""
    failed: list[SystemError] = []
    done = threading.Event()

    def make_tuples() -> None:
        while not done.is_set():
            try:
                tuple(number for number in range(50))
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=make_tuples) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    model = block()
    try:
        found = [names.living_modules() for _ in range(30)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert all(any(item is model for item in items) for items in found)
    assert not failed
