"""Tensors that a first run keeps and the second measures against (`probe.distance`); tensors made of
others (as torchao's), which have no memory: what they hold is digested; and modules that no optimizer
moves, of which an odd one costs its own rows; and shards of FSDP2, of which each rank records its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from repro_gate.runs.launch import Recording
from repro_gate.trace.model import Trace
from tests.support.tracing import Case, blocks, kept_tensors, names, trace_cases, trace_script

SCRIPT = """
import multiprocessing, torch
from torch.utils.data import DataLoader
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1, dtype=torch.float32))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for x in DataLoader(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), batch_size=4):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
torch.save(net.state_dict(), multiprocessing.current_process().name + ".pt")
"""
FULL = """
import sys
class Little:
    f_bavail, f_frsize = 10, 4096
# the probe's own reference: a mock of `os.statvfs` would not reach it
vars(sys.modules["_repro_gate.probe.distance"].os)["statvfs"] = lambda path: Little
"""
TWO = """
import sys
import torch
from torch import nn

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
        args2, kwargs = torch.utils._pytree.tree_map_only(Int8, Int8.dequantize, (args, kwargs or {}))
        result = function(*args2, **kwargs)
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
if "another" in sys.argv:
    net.frozen.scale[2, 0] *= 1.0001
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
"""
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
ODD = """
import torch
from torch import nn
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(3))
        self.count = 7
class Raises(Average):
    def parameters(self, recurse=True):
        if trained:
            raise RuntimeError("not here")
        return super().parameters(recurse)
class Guarded(nn.Module):
    def __getattribute__(self, name):
        if trained:
            raise LookupError(name)
        return super().__getattribute__(name)
trained = False
odd = [Raises(), Guarded(), nn.LazyLinear(2)]
kept = Average()
for step in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
trained = True
"""
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    cases: dict[str, Any] = {"same": SCRIPT, "other": SCRIPT, "full": FULL + SCRIPT}
    cases |= {name: (TWO, name) for name in ("one", "one-again", "another", "opaque")}
    cases["loader"] = LOADER.replace("{head}", TWO.partition("class Opaque")[0])
    without = "".join(line for line in ODD.splitlines(True) if not line.startswith("odd = "))
    cases |= {"odd": ODD, "clean": without}
    place = tmp_path_factory.mktemp("keep")
    keep = Recording(final=True, steps=(1,), distributions=True)
    found = trace_cases(place, cases, recording=keep)
    assert found["same"].run.outcome == "finished", found["same"].run.problem
    return found


@pytest.fixture(scope="module")
def second(first: Cases, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Measured against the first: one with its seed, one with another, and one whose tensors are
    made of others."""
    cases: dict[str, Any] = {"same": SCRIPT, "one": (TWO, "another")}
    cases["other"] = "import torch\ntorch.manual_seed(43)\n" + SCRIPT
    reference, place = first["same"].run.traces, tmp_path_factory.mktemp("measure")
    return trace_cases(place, cases, recording=Recording(final=True), reference=reference)


def kept_files(case: Case) -> dict[str, dict[str, torch.Tensor]]:
    stem = case.trace.path.name.partition(".")[0]
    paths = case.trace.path.parent.glob(f"{stem}.*.kept")
    return {path.name.split(".", 1)[1]: kept_tensors(path) for path in paths}


def state(case: Case, name: str) -> dict[str, torch.Tensor]:
    assert case.run.folder is not None
    return dict(
        torch.load(case.run.folder.parent.parent / "workspace" / f"{name}.pt", weights_only=True)
    )


def test_the_first_run_keeps_its_end_and_one_step(first: Cases) -> None:
    kept, final = kept_files(first["same"]), state(first["same"], "same")
    parameters = kept["final.parameter.0.kept"]
    assert parameters.keys() == {
        f"{layer}.{name}" for layer in "012" for name in ("weight", "bias")
    }
    assert all(torch.equal(tensor, final[name]) for name, tensor in parameters.items())
    assert "0.weight.exp_avg_sq" in kept["final.optimizer.0.kept"]
    assert first["same"].trace.distances == []
    kinds = {name.split(".")[1] for name in kept if name.startswith("step1.")}
    assert kinds == {"batch", "gradient", "parameter", "optimizer", "buffer"}
    assert set(kept["step1.gradient.0.kept"]) == set(names(first["same"].trace, "gradient", 1))


@pytest.mark.slow
def test_a_second_run_is_as_far_away_as_its_weights_are_and_keeps_nothing(
    first: Cases, second: Cases
) -> None:
    same, other = second["same"].trace, second["other"].trace
    assert not list(same.path.parent.glob("*.kept"))
    assert {item.kind for item in same.distances} == {"parameter", "optimizer"}
    assert {(item.max_abs, item.l2, item.max_ulp) for item in same.distances} == {(0.0, 0.0, 0)}
    ours, theirs = state(second["other"], "other"), state(first["other"], "other")
    found = [item for item in other.distances if item.kind == "parameter"]
    assert len(found) == 6
    for item in found:
        there = theirs[item.name].double()
        gap = ours[item.name].double() - there
        assert item.max_abs == float(gap.abs().max()) > 0 and item.max_ulp
        assert (item.l2, item.reference_l2) == pytest.approx(
            (float(gap.norm()), float(there.norm()))
        )
        assert (item.step, item.shape) == (2, tuple(there.shape))


def test_too_little_room_is_a_note_and_no_failure(first: Cases) -> None:
    case = first["full"]
    assert case.exit_code == 0 and kept_files(case) == {}
    assert {identifier for identifier, _ in case.trace.notes} == {"state-not-kept"}
    assert "too little room" in case.trace.notes[0][1]


def digests(trace: Trace, step: int) -> dict[str, bytes]:
    found = [block for kind in ("parameter", "buffer") for block in blocks(trace, kind, step)]
    return {row[0]: block.digest(at) for block in found for at, row in enumerate(block.rows)}


def test_tensors_are_digested_by_what_they_hold(first: Cases) -> None:
    one, same, other = (digests(first[name].trace, -1) for name in ("one", "one-again", "another"))
    assert one == same and {name for name in one if one[name] != other[name]} == {"frozen"}
    assert {"trained", "frozen", "table", "last.weight", "idle", "none"} <= one.keys()
    first, second = (digests(first["one"].trace, step) for step in (-1, 0))
    assert first["trained"] != second["trained"] and first["frozen"] == second["frozen"]


def test_what_cannot_be_read_is_said_and_a_batch_is_digested(first: Cases) -> None:
    # the meta tensor's alone; and the opaque one's
    one, opaque = (first[name].trace.notes for name in ("one", "opaque"))
    assert [name for name, _ in one] == ["not-digested"] == list({name for name, _ in opaque})
    assert len(opaque) == 2 and any("Opaque" in message for _, message in opaque)
    trace = first["loader"].trace
    assert len(blocks(trace, "batch", 1)) == 1 and trace.notes == []


@pytest.mark.slow
def test_only_what_has_memory_is_kept(second: Cases) -> None:
    trace = second["one"].trace
    kept = {item.name for item in trace.distances if item.kind == "parameter"}
    assert kept == {"last.weight", "last.bias"}


def test_an_odd_module_hides_no_other_and_is_counted_in_a_note(first: Cases) -> None:
    odd, clean = first["odd"].trace, first["clean"].trace
    rows, among = ({(what, name) for what, name, _ in item.unmoved} for item in (clean, odd))
    assert {("module", "Average"), ("attribute", "Average.count")} <= rows <= among
    assert not clean.notes and [name for name, _ in odd.notes] == ["modules-not-read"]


FSDP2 = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
mesh = init_device_mesh("cpu", (2,))
for layer in (net[0], net[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(5, 4)).square().mean().backward()
    opt.step()
torch.save([item.to_local().detach() for item in net.parameters()], "rank%d.pt" % dist.get_rank())
dist.destroy_process_group()
"""
SHARDS = (
    ("0.weight", "float32", (3, 4)),
    ("0.bias", "float32", (3,)),
    ("2.weight", "float32", (1, 6)),
    ("2.bias", "float32", (1,)),
)


@pytest.mark.slow
def test_each_rank_records_its_shards_under_the_models_names(short_path: Path) -> None:
    command = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    run = trace_script(short_path, FSDP2, command=command, recording=Recording(final=True))
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    ranks = sorted((trace for trace in run.traces if trace.trained), key=lambda trace: trace.key)
    told = [(trace.key, len(trace.steps), trace.notes) for trace in ranks]
    assert told == [("rank0", 2, []), ("rank1", 2, [])]
    for trace in ranks:
        for step in (-1, 1):
            assert blocks(trace, "parameter", step)[0].rows == SHARDS
        assert set(blocks(trace, "gradient", 0)[0].rows) == set(SHARDS)
        assert "2.weight.exp_avg_sq" in names(trace, "optimizer", 1)
        place, stem = short_path / "place" / "workspace", trace.path.name.partition(".")[0]
        saved = torch.load(place / f"{trace.key}.pt", weights_only=True)
        [kept] = map(kept_tensors, run.folder.glob(f"{stem}.final.parameter*.kept"))
        for (name, _, _), shard in zip(SHARDS, saved, strict=True):
            assert torch.equal(kept[name], shard)
    one, two = (blocks(trace, "parameter", 1)[0].digests for trace in ranks)
    assert one != two
