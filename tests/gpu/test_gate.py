"""Claims about the whole gate on a GPU, through its command line: the verdict, the noise of the
quickstart, and a GPU that is hidden."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.gates import ROOT, gate, gate_training

pytestmark = pytest.mark.gpu


def test_the_quickstart_passes_on_the_device_with_a_noise_floor_above_zero(
    tmp_path: Path, cuda: str
) -> None:
    folder = tmp_path / "quickstart"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "quickstart" / "train.py", folder)
    train = "{run: 'python3 train.py --seed {seed}', steps: 30, timeout: 3m}"
    hardware = f"{{device: cuda, gpu-model: {cuda}}}"
    spec = f"version: 1\ntrain: {train}\nhardware: {hardware}\n"
    (folder / "repro.yml").write_text(spec)
    gated = gate(folder, out=tmp_path)
    gated.must(0)
    assert gated.report["determinism"]["identical"]
    assert gated.report["noise_floor"]["weight_l2"] > 0
    assert gated.report["cost"] is not None
    assert gated.check("hardware/device")["status"] == "pass"
    assert cuda in str(gated.check("hardware/device"))


TRAIN = """
import torch
# first
w = torch.nn.Parameter(torch.zeros(1000, device=generator.device))
optimizer = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    noise = torch.randn(1000, device=generator.device, generator=generator)
    (w - noise).square().sum().backward()
    optimizer.step()
"""


def test_an_unseeded_draw_on_the_device_fails(tmp_path: Path) -> None:
    source = TRAIN.replace("# first", "generator = torch.Generator('cuda')\ngenerator.seed()")
    gated = gate_training(tmp_path, source, run="python3 train.py")
    gated.must(1)
    assert gated.first["step"] == 0 and gated.first["kind"] in ("loss", "gradient")


KERNEL = """
import torch, triton
import triton.language as tl
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))
class Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        out = torch.zeros(1, device=x.device)
        total[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
    @staticmethod
    def backward(ctx, grad):
        return grad.expand(ctx.shape)
torch.manual_seed(0)
net = torch.nn.Linear(64, 4096, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(4):
    optimizer.zero_grad()
    out = net(torch.randn(256, 64, device="cuda"))
    (Total.apply(out) / 1000).square().sum().backward()
    optimizer.step()
"""


def test_a_kernel_of_the_trainings_own_that_adds_in_any_order_is_named(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    spec = "version: 1\ntrain: {run: python3 train.py, steps: 4, timeout: 2m}\n"
    gated = gate_training(
        tmp_path, KERNEL, f"{spec}cost: {{measure: false}}\ndiagnosis: {{runs: 4}}\n"
    )
    gated.must(1)
    found = gated.report["diagnosis"]
    where = found["cause"], found["file"], found["confirmed"]
    assert where == ("nondeterministic-op", "train.py", False), gated.said
    assert KERNEL.splitlines()[found["line"] - 1].startswith("    (Total.apply"), gated.said
    assert "does not dispatch" in found["message"]


def test_device_cpu_hides_the_gpu_from_the_training(tmp_path: Path) -> None:
    first = "assert not torch.cuda.is_available()\ngenerator = torch.Generator()"
    spec = "version: 1\ntrain: {run: python3 train.py, steps: 4, timeout: 2m}\n"
    spec += "hardware: {device: cpu}\ncost: {measure: false}\n"
    gated = gate_training(tmp_path, TRAIN.replace("# first", first), spec)
    gated.must(0)
    assert gated.check("hardware/device")["status"] == "pass"
