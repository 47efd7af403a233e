"""Verdicts about the numbers of a training: NaN, flags, threads, the noise floor, seeds. Real
processes, each fault with its clean twin: what passes with torch shares one gate run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import LOOP, gate_training, with_line

SPEC = "version: 1\ntrain: {run: python train.py, steps: 4, timeout: 2m}\ncost: {measure: false}\n"
SCALED = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 1)
        self.scale = torch.nn.Parameter(torch.empty(8))
        self.register_buffer("mask", torch.full((8,), float("-inf")))
        # fill
    def forward(self, x):
        return self.fc(x * self.scale)
model = Scaled()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(16, 8)
    loss = model(x).square().mean()
    # loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_parameter_that_was_never_written_fails_and_is_named(tmp_path: Path) -> None:
    gated = gate_training(tmp_path, SCALED, SPEC.replace("cost: {measure: false}\n", ""))
    gated.must(1)
    assert gated.report["determinism"]["identical"]
    assert {*gated.reason_ids} == {"determinism/nonfinite"}
    reason = gated.report["reasons"][0]
    assert "parameter scale is NaN from before the first step" in reason["message"]
    assert "without the flags it holds other values" in reason["message"]
    assert "allow-nonfinite" in reason["remedy"]


@pytest.mark.slow
def test_what_is_no_fault_passes(tmp_path: Path) -> None:
    """A flag of cuDNN on a CPU; a mask of -inf; a parameter of NaN that is allowed."""
    source = "import torch\ntorch.backends.cudnn.benchmark = True\n" + SCALED
    gated = gate_training(tmp_path, source, SPEC + "determinism: {allow-nonfinite: true}\n")
    gated.must(0)
    assert gated.report["determinism"]["non_finite"]
    check = gated.check("random-state/flags")
    (line,) = check["evidence"]
    assert check["status"] == "pass" and line.endswith("no CUDA device was used")


@pytest.mark.parametrize(
    ("factor", "fails", "told"),
    [
        # a training that diverges later is its own affair
        ("float('nan') if number > 1 else 1", False, [2, "nan"]),
        ("float('nan') if number > 0 else 1", True, [2, "nan"]),
        # a scaler of AMP that starts too high
        ("float('inf') if number < 2 else 1", False, [0, "inf"]),
    ],
)
def test_losses_fail_where_none_is_ever_finite(
    factor: str, fails: bool, told: list[object], tmp_path: Path
) -> None:
    source = LOOP.replace('record("loss", loss)', f'record("loss", loss * ({factor}))')
    gated = gate_training(tmp_path, source, SPEC)
    gated.must(int(fails), *(["determinism/nonfinite"] if fails else []))
    # told even where it is no fault
    assert told in gated.report["determinism"]["non_finite"]


BACKGROUND = """
import random, threading, time
def draw():
    while True:
        random.random()
        time.sleep(random.SystemRandom().random() / 500)
threading.Thread(target=draw, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_a_thread_that_draws_beside_training_is_no_divergence(fault: bool, tmp_path: Path) -> None:
    source = BACKGROUND + with_line("time.sleep(0.02)" + ("" if fault else "; x = number"))
    gated = gate_training(tmp_path, source, SPEC)
    gated.must(int(fault))
    if not fault:
        check = gated.must_warn("random-state/generators")
        assert check["evidence"][0].startswith("python: differs from ")
