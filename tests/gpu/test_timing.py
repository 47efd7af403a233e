"""Claims about how a cost on a GPU is timed: the real nvidia-smi's answers are understood, and are
in the report's cost of the GPU that was trained on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from repro_gate.machine import gpu_states
from tests.support.gates import gate_training

pytestmark = pytest.mark.gpu

SPEC = """
version: 1
train: {run: python3 train.py, steps: 40, timeout: 4m}
hardware: {device: cuda}
robustness: {vary: false}
"""
# it sets a flag itself, so whole runs decide
TRAIN = """
import torch
torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled())
torch.manual_seed(0)
weights = [torch.nn.Parameter(torch.randn(SIZE, SIZE, device="cuda")) for _ in range(COUNT)]
optimizer = torch.optim.Adam(weights, lr=1e-3)
for step in range(40):
    optimizer.zero_grad()
    sum(weight.square().mean() for weight in weights).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module", autouse=True)
def smi() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not on PATH")


def test_the_state_of_every_gpu_is_read() -> None:
    listed = subprocess.check_output(["nvidia-smi", "-L"], text=True, timeout=60)
    states = gpu_states()
    assert len(states) == len([line for line in listed.splitlines() if line.startswith("GPU ")])
    for state in states:
        assert state["gpu"] in listed and 100 <= state["sm_mhz"] <= 5_000
        assert 5 <= state["celsius"] <= 120 and state["slowed"] != ("unknown",)
        assert state["watts"] is None or 0 < state["watts"] < 3_000


@pytest.mark.parametrize(("size", "count"), [(64, 400), (4096, 4)], ids=["small", "large"])
def test_the_cost_has_the_gpu_before_and_after_each_run(
    size: int, count: int, tmp_path: Path
) -> None:
    """Four hundred small tensors take the probe long, four large ones take the device long."""
    source = TRAIN.replace("SIZE", str(size)).replace("COUNT", str(count))
    gated = gate_training(tmp_path, source, SPEC, run="python3 train.py")
    gated.must(0)
    cost = gated.report["cost"]
    moments = {(state["run"], state["when"]) for state in cost["gpus"]}
    for run in ("deterministic-1", "default-1", "default-2", "deterministic-2"):
        assert {(run, "before"), (run, "after")} <= moments
    assert len({state["gpu"] for state in cost["gpus"]}) == 1
    # whichever way it is: never a figure of whole runs with a probe that takes much of a step
    assert cost["undigested"] or cost["probe_pct"] <= 10 or not cost["why"], cost
    names = [run["name"] for run in gated.report["runs"]]
    assert any(name.startswith("undigested-") for name in names) is cost["undigested"]
