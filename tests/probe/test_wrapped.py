"""Tensors made of others (as torchao's) have no memory: what they hold is digested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from repro_gate.trace.model import Trace
from tests.support.tracing import Case, blocks, names, trace_cases

TWO = """
import sys
import torch
from torch import nn

def plain(value):
    return value.dequantize() if isinstance(value, Int8) else value

class Int8(torch.Tensor):  # numbers of eight bits and a scale for each row, in the form of torchao's
    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32, device=data.device)
    def __init__(self, data, scale):
        self.data8, self.scale = data, scale
    def __tensor_flatten__(self):
        return ["data8", "scale"], None
    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data8"], inner["scale"])
    @classmethod
    def of(cls, value):
        scale = value.abs().amax(1, keepdim=True).clamp(min=1e-6) / 127
        return cls((value / scale).round().to(torch.int8), scale)
    def dequantize(self):
        return self.data8.float() * self.scale
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        op = function.overloadpacket
        if op in (torch.ops.aten.detach, torch.ops.aten.alias):
            return cls(args[0].data8, args[0].scale)
        result = function(*torch.utils._pytree.tree_map(plain, args), **torch.utils._pytree.tree_map(plain, kwargs or {}))
        if function.__name__.partition(".")[0].endswith("_") and isinstance(args[0], cls):
            fresh = cls.of(result)
            args[0].data8.copy_(fresh.data8), args[0].scale.copy_(fresh.scale)
            return args[0]
        return result

class Opaque(Int8):  # one that cannot be taken apart
    __tensor_flatten__ = property(lambda self: (_ for _ in ()).throw(RuntimeError("no")))

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.trained = nn.Parameter(Int8.of(torch.randn(3, 4)))
        self.frozen = nn.Parameter(kind.of(torch.randn(4, 4)), requires_grad=False)
        self.register_buffer("table", kind.of(torch.randn(4, 4)))
        self.last = nn.Linear(3, 1)
        self.idle = nn.Parameter(torch.empty(2, 2, device="meta"), requires_grad=False)
        self.none = nn.Parameter(torch.empty(0, 4))
    def forward(self, x):
        return self.last(nn.functional.linear(x @ self.frozen.dequantize() + self.table.dequantize()[0], self.trained))

net = Net(Opaque if "opaque" in sys.argv else Int8)
if "other" in sys.argv:
    net.frozen.scale[2, 0] *= 1.0001
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
"""


KEEP: dict[str, Any] = {"keep_final": True, "keep_steps": (1,)}
LOADER = """
import torch
from torch import nn
from torch.utils.data import DataLoader
{head}
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in DataLoader(list(torch.randn(8, 4)), batch_size=4, collate_fn=lambda rows: Int8.of(torch.stack(rows))):
    optimizer.zero_grad()
    net(x.dequantize()).mean().backward()
    optimizer.step()
"""
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    names = ("one", "same", "other", "opaque")
    cases: dict[str, str | tuple[str, str]] = {name: (TWO, name) for name in names}
    cases["loader"] = LOADER.replace("{head}", TWO.partition("class Opaque")[0])
    found = trace_cases(tmp_path_factory.mktemp("wrapped"), cases, observe=True, **KEEP)
    assert found["one"].run.outcome == "finished", found["one"].run.problem
    return found


def digests(trace: Trace, step: int) -> dict[str, bytes]:
    found = [block for kind in ("parameter", "buffer") for block in blocks(trace, kind, step)]
    return {row[0]: block.digest(at) for block in found for at, row in enumerate(block.rows)}


def test_tensors_are_digested_by_what_they_hold(runs: Cases) -> None:
    one, same, other = (digests(runs[name].trace, -1) for name in ("one", "same", "other"))
    assert one == same and {name for name in one if one[name] != other[name]} == {"frozen"}
    assert {"trained", "frozen", "table", "last.weight", "idle", "none"} <= one.keys()
    first, second = (digests(runs["one"].trace, step) for step in (-1, 0))
    assert first["trained"] != second["trained"] and first["frozen"] == second["frozen"]


def test_what_cannot_be_read_is_said_and_a_batch_is_digested(runs: Cases) -> None:
    said = {
        name: [message for identifier, message in case.trace.notes if identifier == "not-digested"]
        for name, case in runs.items()
    }
    # the meta tensor's alone; and the opaque one's
    assert [len(said[name]) for name in ("one", "opaque")] == [1, 2]
    assert any("Opaque" in message for message in said["opaque"])
    trace = runs["loader"].trace
    assert len(blocks(trace, "batch", 1)) == 1 and trace.notes == []


@pytest.mark.slow
def test_only_what_has_memory_is_kept(runs: Cases, tmp_path: Path) -> None:
    other = {"one": (TWO, "other")}
    second = trace_cases(tmp_path, other, reference=[runs["one"].trace], **KEEP)["one"].trace
    kept = {item.name for item in second.distances if item.kind == "parameter"}
    assert kept == {"last.weight", "last.bias"}
    assert "trained" in names(second, "gradient", 0)
