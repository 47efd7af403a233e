"""Claims about two ranks that share one device: gloo carries their CUDA tensors, since NCCL refuses
two ranks on one GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace
from tests.gpu.device_training import attempt
from tests.support.tracing import blocks, names

pytestmark = pytest.mark.gpu

LACKS = "gloo lacks this on CUDA:"
HEAD = """
import sys, torch, torch.distributed as dist
from torch import nn
device = torch.device("DEVICE", 0) if "DEVICE" == "cuda" else torch.device("cpu")
dist.init_process_group("cpu:gloo,DEVICE:gloo" if device.type == "cuda" else "gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to(device)
"""
WRAPPED = {
    "ddp": "net = nn.parallel.DistributedDataParallel(net)\n",
    "fsdp2": f"""
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
try:  # what FSDP2 asks of gloo
    whole, part = torch.zeros(4, device=device), torch.zeros(2, device=device)
    dist.all_gather_into_tensor(whole, part)
    dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.AVG)
except (RuntimeError, ValueError) as error:
    print("{LACKS}", error)
    sys.exit(3)
mesh = DeviceMesh.from_group(dist.group.WORLD, device.type)
for layer in (net[0], net[2], net):
    fully_shard(layer, mesh=mesh)
""",
}
LOOP = """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    net(torch.randn(16, 32, generator=generator).to(device)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
ROWS = {
    "ddp": (("0.weight", (64, 32)), ("0.bias", (64,)), ("2.weight", (8, 64)), ("2.bias", (8,))),
    "fsdp2": (("0.weight", (32, 32)), ("0.bias", (32,)), ("2.weight", (4, 64)), ("2.bias", (4,))),
}


def two_ranks(tmp_path: Path, kind: str, device: str, name: str) -> RunResult:
    source = (HEAD + WRAPPED[kind] + LOOP).replace("DEVICE", device)
    command = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    more = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    run = attempt(tmp_path, source, name=name, command=command, **more)
    for line in run.ended.tail:
        if LACKS in line:
            pytest.skip(line)
    assert run.good, (run.outcome, run.problem, run.ended.tail)
    return run


def by_rank(run: RunResult) -> list[Trace]:
    return sorted((trace for trace in run.traces if trace.trained), key=lambda trace: trace.key)


def two_runs_must_be_equal(tmp_path: Path, kind: str, device: str) -> list[Trace]:
    """Two runs of two ranks are equal, and each rank recorded what is its own."""
    first, second = (two_ranks(tmp_path, kind, device, name) for name in ("first", "second"))
    comparison = compare_runs(first.traces, second.traces)
    assert comparison.identical, comparison.first_divergence
    ranks = by_rank(first)
    told = [(trace.key, len(trace.steps), trace.notes) for trace in ranks]
    assert told == [("rank0", 4, []), ("rank1", 4, [])]
    rows = {(name, "float32", shape) for name, shape in ROWS[kind]}
    for trace in ranks:
        for what in ("parameter", "gradient"):
            assert {row for block in blocks(trace, what, 3) for row in block.rows} == rows
        assert "2.weight.exp_avg_sq" in names(trace, "optimizer", 3)
    one, two = (blocks(trace, "parameter", 3)[0].digests for trace in ranks)
    assert (one == two) == (kind == "ddp")  # a shard of one rank is not that of the other
    return ranks


@pytest.mark.parametrize("kind", WRAPPED)
def test_two_ranks_on_one_device_repeat_and_record_their_own(tmp_path: Path, kind: str) -> None:
    for trace in two_runs_must_be_equal(tmp_path, kind, "cuda"):
        assert trace.facts["device"].startswith("cuda: ")
