"""Claims about what is recorded of a GPU: its facts, the workspace setting when CUDA started,
records of batches, and what `hash` asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.machine import read_machine
from tests.gpu.device_training import attempt
from tests.support.gates import ROOT, gate, training
from tests.support.tracing import trained

pytestmark = pytest.mark.gpu

OF_GPU = ("gpu-model", "gpu-sm-count", "gpu-memory-bytes", "gpu-capability")
DEVICE_FACTS = (*OF_GPU, "gpu-uuid")
SCRIPT = """
import os, torch
# first
w = torch.nn.Parameter(torch.zeros(64, device="DEVICE"))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    ((w - step) ** 2).sum().backward()
    optimizer.step()
"""


def on(device: str, source: str, first: str = "") -> str:
    return source.replace("DEVICE", device).replace("# first", first)


def test_a_training_on_the_device_says_which_one_and_hash_asks_the_same(
    tmp_path: Path, cuda: str
) -> None:
    facts = trained(attempt(tmp_path, on("cuda", SCRIPT))).facts
    assert facts["gpu-model"] == cuda and all(facts[name] for name in DEVICE_FACTS)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), facts["threads"])
    request, path = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text(json.dumps({"answer": str(path), "extension": None}))
    command = [sys.executable, str(ROOT / "repro_gate/probe"), "facts", str(request)]
    subprocess.check_call(command, env={**os.environ, **threads})
    answer = json.loads(path.read_text())
    for name in (*DEVICE_FACTS, "torch", "cuda", "cudnn", "nccl", "device"):
        assert answer[name] == facts[name], name


_LATE = """
del os.environ["CUBLAS_WORKSPACE_CONFIG"]
torch.zeros(1).cuda()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
"""


@pytest.mark.parametrize(("first", "value"), [("", ":4096:8"), (_LATE, "")])
def test_the_workspace_setting_is_read_when_cuda_starts(
    first: str, value: str, tmp_path: Path
) -> None:
    facts = trained(attempt(tmp_path, on("cuda", SCRIPT, first))).facts
    assert facts["cublas-workspace-at-cuda-start"] == value


def test_a_training_on_the_processor_is_none_on_the_device(tmp_path: Path) -> None:
    facts = trained(attempt(tmp_path, on("cpu", SCRIPT))).facts
    assert facts["device"].startswith("cpu")
    assert not {*DEVICE_FACTS, "cublas-workspace-at-cuda-start"} & {*facts}


def test_the_machine_names_its_driver_and_modes() -> None:
    machine = read_machine()
    assert machine["driver"] and machine["gpu.0.model"] and machine["gpu.0.uuid"]


def test_the_address_of_a_training_on_the_device_names_it(tmp_path: Path, cuda: str) -> None:
    folder = training(tmp_path / "code", on("cuda", SCRIPT), run="python3 train.py")
    gated = gate(folder, out=tmp_path)
    leaves = gated.report["config_hash"]["inputs"]["platform"]
    assert leaves["gpu-model"] == cuda and leaves["driver"] and leaves["gpu-sm-count"]
    assert "cpu-model" not in leaves
    for name in ("hardware/recorded", "env/cublas-workspace"):
        assert gated.check(name)["status"] == "pass"
