"""Claims about a training that uses a GPU in an unusual way: another than the current one, more
than one stream, a capture in which something is noticed, its own look at the memory, a compiled
step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.device_training import pair, train, train_bare
from tests.support.tracing import blocks, trained

pytestmark = pytest.mark.gpu

SECOND = """
import torch
w = torch.nn.Parameter(torch.randn(2048, 2048, device="cuda:1"))
optimizer = torch.optim.SGD([w], lr=0.0)
for step in range(4):
    optimizer.zero_grad()
    x = w
    for _ in range(20):
        x = torch.tanh(x @ w)
    x.mean().backward()
    optimizer.step()
# asks whether GPU 0 has a context, and opens none
print("context", torch._C._cuda_hasPrimaryContext(0))
torch.cuda.synchronize(1)
begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
with torch.cuda.device(1), torch.no_grad():
    begun.record()
    x = w
    for _ in range(20):
        x = torch.tanh(x @ w)
    ended.record()
    ended.synchronize()
print("forward", begun.elapsed_time(ended))
"""


def test_a_training_on_the_second_gpu_leaves_the_first_alone(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    run = train(tmp_path, SECOND)
    said = dict(line.split() for line in run.ended.tail if line.startswith(("context", "forward")))
    bare = dict(line.split() for line in train_bare(tmp_path / "bare", SECOND).splitlines())
    assert said["context"] == bare["context"] == "False"
    trace = trained(run)
    assert trace.facts["gpu-uuid"] == f"GPU-{torch.cuda.get_device_properties(1).uuid}"
    assert trace.steps[-1].ms > float(said["forward"])


CAPTURE = """
import os, subprocess, torch
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
for _ in range(50):
    x @ x.T  # what was recorded is on its way as the capture begins
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        step()
    subprocess.check_call(["true"])
    with torch.cuda.stream(torch.cuda.ExternalStream(side.cuda_stream)):
        torch.backends.cudnn.benchmark = True  # noticed where no stream captures
        torch.backends.cudnn.benchmark = False
for _ in range(4):
    graph.replay()
print("replayed")
"""


def test_a_capture_survives_what_is_noticed_in_it(tmp_path: Path) -> None:
    first, _, comparison = pair(tmp_path, CAPTURE)
    assert "replayed" in first.ended.tail
    assert comparison.identical and comparison.steps == 3 + 4
    trace = trained(first)
    assert [item.flag for item in trace.undone].count("torch.backends.cudnn.benchmark") >= 1
    assert not trace.notes


AVERAGE = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(2048, 2048).cuda()
average = torch.nn.Linear(2048, 2048).cuda()
average.requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
side = torch.cuda.Stream()
with torch.cuda.stream(side):  # loaded on a stream of its own, behind much work
    noise = torch.zeros(2048, 2048, device="cuda")
    for _ in range(200):
        noise = torch.tanh(noise @ noise)
    with torch.no_grad():
        net.weight.copy_(noise + 0.5)
for step in range(3):
    optimizer.zero_grad()
    if not step:
        net.register_forward_pre_hook(lambda *_: torch.cuda.current_stream().wait_stream(side))
    net(torch.ones(4, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(200):
            noise = torch.tanh(noise @ noise)
        average.weight.lerp_(net.weight + noise, 0.5)
"""


def test_what_side_streams_write_is_read_when_it_is_there(tmp_path: Path) -> None:
    """In the twin that waits itself the same is read."""
    first, second, comparison = pair(tmp_path, AVERAGE)
    waits = AVERAGE.replace(
        "for step in range(3):", "torch.cuda.synchronize()\nfor step in range(3):"
    )
    twin = train(tmp_path, waits + "torch.cuda.synchronize()\n", name="twin")
    assert comparison.identical
    of_all = [trained(run) for run in (first, second, twin)]
    initial = [blocks(trace, "parameter", -1)[0].digests for trace in of_all]
    averages = [[row for row in trace.unmoved if row[0] == "module"] for trace in of_all]
    assert initial[0] == initial[1] == initial[2]
    assert averages[0] == averages[1] == averages[2] != []


MEMORY = """
import torch
w = torch.nn.Parameter(torch.zeros(64 * 1024 * 1024, device="cuda"))
optimizer = torch.optim.Adam([w], foreach=False)
for step in range(4):
    optimizer.zero_grad()
    if step < 2:
        (w * 2).square().sum().backward()  # more than in the last steps
    else:
        (w[:10] - 1).square().sum().backward()
    optimizer.step()
    if step == 0:
        print("first", torch.cuda.max_memory_allocated())
    if step == 1:
        torch.cuda.reset_peak_memory_stats()
stats = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
print("last", torch.cuda.max_memory_allocated())
print("stats", stats)
print("reserved", torch.cuda.max_memory_reserved())
"""


def test_the_training_reads_the_memory_that_it_would_without_the_probe(tmp_path: Path) -> None:
    lines = train(tmp_path, MEMORY).ended.tail
    words = ("first", "last", "stats", "reserved")
    probed = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(words)}
    printed = train_bare(tmp_path / "bare", MEMORY).splitlines()
    bare = {line.split()[0]: int(line.split()[1]) for line in printed}
    assert probed.keys() == bare.keys() == set(words)
    for name in words:  # the digest's own tables and sums are small
        assert abs(probed[name] - bare[name]) <= 8 * 1024 * 1024, name


COMPILED = """
import torch
torch.manual_seed(0)
class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for item in group["params"]:
                item.add_(item.grad, alpha=-group["lr"])
net = torch.nn.Linear(32, 10).cuda()
optimizer = Own(net.parameters())
step = STEP
x = torch.randn(16, 32, device="cuda")
for _ in range(4):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    step()
"""


def test_steps_that_are_compiled_whole_are_recorded(tmp_path: Path) -> None:
    compiled = 'torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")'
    first, _, comparison = pair(tmp_path, COMPILED.replace("STEP", compiled))
    assert comparison.identical and comparison.steps == 4
    trace = trained(first)
    moved = {
        bytes(block.digests) for step in range(4) for block in blocks(trace, "parameter", step)
    }
    assert len(moved) == 4 and not trace.notes
    assert all(blocks(trace, "gradient", step) for step in range(4))
