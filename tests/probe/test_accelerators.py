"""Claims about `probe.facts` where a training is on another accelerator than CUDA: it is named, and
a GPU of AMD's, which torch reaches through `torch.cuda`, has its facts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.probe.shared import PROCESS
from tests.probe.test_facts import facts_of
from tests.support.cuda import Cuda, in_torch
from tests.support.gates import gate_training
from tests.support.tracing import trace_script, trained

# Nothing here has such a device: only what a parameter says of itself is another's.
TRAIN = """
import torch
class Elsewhere(torch.nn.Parameter):
    device = torch.device("KIND")
weight = Elsewhere(torch.zeros(4))
weight.data += torch.rand(4)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    (weight - step).square().sum().backward()
    optimizer.step()
"""


def fake_torch(initialized: bool) -> Any:
    """A torch that is built for CUDA and has put something on the second of its GPUs."""
    cuda = Cuda(started=initialized)
    if initialized:
        cuda.allocate(1, 1536)
    return in_torch(cuda)


def of_parameters(*kinds: str) -> Any:
    """A session whose parameters lie on these kinds of device; of a tensor nothing else may be
    asked."""
    items = [("w", SimpleNamespace(device=SimpleNamespace(type=kind))) for kind in kinds]
    names = SimpleNamespace(parameters=items)
    return SimpleNamespace(hooks=SimpleNamespace(tensors=SimpleNamespace(names=names)))


def without_cuda() -> Any:
    """A torch that is built for another accelerator; strict, since nothing of `torch.cuda` works
    there."""

    def broken(*_: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    torch = fake_torch(initialized=False)
    torch.version.cuda = None
    torch.backends.cudnn.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    for name in ("memory_stats_as_nested_dict", "get_device_name", "get_device_properties"):
        setattr(torch.cuda, name, broken)
    return torch


@pytest.mark.parametrize("kind", ["xpu", "mps", "hpu", "npu", "xla", "privateuseone"])
def test_the_device_is_where_the_parameters_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = SimpleNamespace(hooks=None)  # before torch was imported
    for kinds, device in (
        ([kind], f"{kind}: AVX512"),
        (["cpu", kind], f"{kind}: AVX512"),
        (["cpu", "meta"], "cpu: AVX512"),
        ([], "cpu: AVX512"),
    ):
        monkeypatch.setattr(PROCESS, "sessions", [before, of_parameters(*kinds)])
        said = facts_of(without_cuda(), monkeypatch)
        assert said["device"] == device and said["gpus"] == "0"
        assert not {"hip", "gpu-model"} & said.keys() and said["cuda"] == "none"
    # what is on a GPU is on a GPU, whatever else there is
    torch = fake_torch(initialized=True)
    assert facts_of(torch, monkeypatch)["device"] == "cuda: GPU 1"


def test_a_gpu_of_rocm_has_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS, "sessions", [])
    torch = fake_torch(initialized=True)
    torch.version.cuda, torch.version.hip = None, "6.4.43482"
    torch.cuda.get_device_properties(1).name = "AMD Instinct MI300X"
    said = facts_of(torch, monkeypatch)
    assert said["hip"] == "6.4.43482" and said["cuda"] == "none" and said["gpus"] == "2"
    assert said["device"] == "cuda: AMD Instinct MI300X"
    assert said["gpu-model"] == "AMD Instinct MI300X" and said["cudnn"] == "91002"
    assert "hip" not in facts_of(fake_torch(initialized=True), monkeypatch)


@pytest.mark.parametrize("kind", ["mps", "xpu", "hpu"])
def test_a_trace_says_the_other_accelerator(kind: str, tmp_path: Path) -> None:
    trace = trained(trace_script(tmp_path, TRAIN.replace("KIND", kind)))
    assert trace.facts["device"].startswith(f"{kind}: ") and len(trace.steps) == 4


def test_a_training_on_another_accelerator_is_inconclusive(tmp_path: Path) -> None:
    gated = gate_training(tmp_path / "other", TRAIN.replace("KIND", "mps"))
    gated.must(3, "hardware/device")
    assert gated.report["determinism"]["identical"]
    [reason] = gated.report["reasons"]
    assert "CPU, CUDA, and ROCm through torch.cuda" in reason["message"]
    twin = gate_training(tmp_path / "twin", TRAIN.replace("KIND", "cpu"))
    twin.must(0)
