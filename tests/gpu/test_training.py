"""Claims about a traced training on a GPU: what is recorded, that deterministic runs repeat in each
precision, that no bit changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.device_training import DEFAULT, DETERMINISTIC, pair, train, train_bare
from tests.support.tracing import blocks, names, trained

pytestmark = pytest.mark.gpu

NET = """
import json, os, sys, torch, torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
def make():
    head = nn.Flatten(), nn.Linear(16 * 14 * 14, 10)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.2), *head).cuda()
def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 16, 16, generator=generator).cuda(), torch.randint(10, (8,), generator=generator).cuda()
net = make()
"""
PLAIN = """
for step in range(4):
    x, y = batch(step)
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
LOOPS = {
    "float32": "optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)" + PLAIN,
    "GradScaler": """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
for step in range(4):
    x, y = batch(step)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("loss", step, loss.item().hex())
""",
    "bf16": """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(4):
    x, y = batch(step)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
""",
    "fused": "optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)" + PLAIN,
    "compile": "net = torch.compile(net)\noptimizer = torch.optim.Adam(net.parameters(), lr=1e-3)"
    + PLAIN,
    "workers": """
from torch.utils.data import DataLoader, TensorDataset
torch.randn(3).pin_memory()
generator = torch.Generator().manual_seed(7)
data = TensorDataset(torch.randn(32, 3, 16, 16, generator=generator), torch.randint(10, (32,), generator=generator))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
    optimizer.zero_grad()
    F.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)).backward()
    optimizer.step()
""",
    "fsdp2": f"""
import tempfile
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
meeting = os.path.join(tempfile.mkdtemp(), "meeting")
dist.init_process_group("nccl", init_method="file://" + meeting, rank=0, world_size=1, device_id=torch.device("cuda:0"))
torch.cuda.set_device(0)
fully_shard(net[5])
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
{PLAIN}
dist.destroy_process_group()
""",
}
FINAL = """
content = b"".join(bytes(tensor.cpu().contiguous().untyped_storage()) for tensor in net.state_dict().values())
import hashlib
open("final.txt", "w").write(hashlib.sha256(content).hexdigest())
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_deterministic_runs_repeat_and_every_tensor_has_its_name(tmp_path: Path, loop: str) -> None:
    first, _, comparison = pair(tmp_path, NET + LOOPS[loop])
    assert comparison.identical, comparison.first_divergence
    assert comparison.steps == 4
    trace = trained(first)
    net = {f"{layer}.{name}" for layer in (0, 1, 5) for name in ("weight", "bias")}
    assert set(names(trace, "parameter", 3)) == set(names(trace, "gradient", 3)) == net
    assert {"1.running_mean", "1.running_var"} <= set(names(trace, "buffer", 3))
    assert trace.facts["device"].startswith("cuda: ")
    assert not trace.notes
    if loop == "fsdp2":
        assert trace.key == "rank0"


WHOLE_STEP = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(32, 10).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(16, 32, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=True)
    net(x).square().mean().backward()
    optimizer.step()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(5):
    x.copy_(torch.randn(16, 32, device="cuda"))
    graph.replay()
"""


def test_each_replay_of_a_graph_that_holds_an_optimizers_step_is_a_step(tmp_path: Path) -> None:
    first, _, comparison = pair(tmp_path, WHOLE_STEP)
    assert comparison.identical and comparison.steps == 3 + 5
    trace = trained(first)
    for kind in ("parameter", "gradient", "optimizer"):
        moved = {bytes(block.digests) for step in range(8) for block in blocks(trace, kind, step)}
        assert len(moved) >= 8, kind


def test_a_scaled_loss_is_recorded_as_the_training_knows_it(tmp_path: Path) -> None:
    run = train(tmp_path, NET + LOOPS["GradScaler"])
    printed = [line.split()[2] for line in run.ended.tail if line.startswith("loss ")]
    losses = [block for step in range(4) for block in blocks(trained(run), "loss", step)]
    assert [block.values[0] for block in losses] == printed


def test_the_generator_of_the_device_is_recorded_and_moves(tmp_path: Path) -> None:
    run = train(tmp_path, NET + LOOPS["float32"])
    trace = trained(run)
    states = []
    for step in range(4):
        block = blocks(trace, "rng", step)[-1]
        at = [row[0] for row in block.rows].index("cuda:0")
        states.append(block.digests[16 * at : 16 * at + 16])
    assert len(set(states)) == 4  # dropout draws from it at every step


def test_the_flags_are_read_back_as_each_condition_set_them(tmp_path: Path) -> None:
    source, read = NET + LOOPS["float32"], []
    for condition in (DETERMINISTIC, DEFAULT):
        trace = trained(train(tmp_path, source, condition, condition.name))
        read.append(trace.settings[trace.steps[-1].flags])
    assert [item["CUBLAS_WORKSPACE_CONFIG"] for item in read] == [":4096:8", None]
    assert [item["torch.use_deterministic_algorithms"] for item in read] == [True, False]
    assert [item["torch.backends.cudnn.deterministic"] for item in read] == [True, False]


def test_the_probe_changes_no_bit_of_a_training_on_the_device(tmp_path: Path) -> None:
    """The bare twin gets the flags by its own lines and the same environment, and no probe."""
    flags = "import torch\ntorch.use_deterministic_algorithms(True)\n"
    flags += "torch.backends.cudnn.deterministic = True\n"
    source = flags + NET + LOOPS["GradScaler"] + FINAL
    train(tmp_path, source)
    train_bare(tmp_path / "bare", source)
    bare, probed = tmp_path / "bare", tmp_path / "run" / "place" / "workspace"
    assert (bare / "final.txt").read_text() == (probed / "final.txt").read_text()


def test_peak_memory_is_the_trainings_own(tmp_path: Path) -> None:
    """A model so large beside its activations that the digest's products would set the peak if they
    were counted."""
    source = """
import os, torch
w = torch.nn.Parameter(torch.zeros(64 * 1024 * 1024, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.1, foreach=False)
for _ in range(3):
    optimizer.zero_grad()
    (w[:10] - 1).square().sum().backward()
    optimizer.step()
if "REPRO_GATE_PROBE" not in os.environ:
    print(torch.cuda.max_memory_allocated())
"""
    run = train(tmp_path, source)
    peak = int(train_bare(tmp_path / "bare", source))
    assert abs(trained(run).steps[-1].peak_bytes - peak) < 4 * 1024 * 1024


def test_step_times_hold_the_devices_work(tmp_path: Path) -> None:
    """Kernels are queued, not waited for, by the training; the time of a step must still hold them,
    and the probe's time must not."""
    source = """
import time, torch
w = torch.nn.Parameter(torch.randn(4096, 4096, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.0)
for step in range(6):
    optimizer.zero_grad()
    x = w
    for _ in range(20):
        x = torch.tanh(x @ w)
    x.mean().backward()
    optimizer.step()
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(5):
    with torch.no_grad():
        x = w
        for _ in range(20):
            x = torch.tanh(x @ w)
torch.cuda.synchronize()
print("forward", (time.perf_counter() - began) / 5 * 1e3)
"""
    run = train(tmp_path, source)
    forward = next(float(line.split()[1]) for line in run.ended.tail if line.startswith("forward "))
    last = trained(run).steps[-1]
    # a backward pass does twice the work of the forward one, so this holds with a wide margin
    assert last.ms > forward
