"""Verdicts about the numbers of a training: NaN, flags, threads, the noise floor, seeds. Real processes, each fault with its clean twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.gating import gate, training

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
FILLED = SCALED.replace("# fill", "torch.nn.init.ones_(self.scale)")


def test_a_parameter_that_was_never_written_fails_and_is_named(tmp_path: Path) -> None:
    with_default_runs = training(tmp_path / "code", SCALED, SPEC.replace("cost: {measure: false}\n", ""))
    gated = gate(with_default_runs, out=tmp_path)
    assert gated.exit_code == 1 and gated.report["determinism"]["identical"], gated.stdout
    assert set(gated.reason_ids) == {"determinism/nonfinite"}
    first = gated.report["reasons"][0]["message"]
    assert "parameter scale is NaN from before the first step" in first and "uninitialized-memory" in first
    assert "without the flags it holds other values" in first and "allow-nonfinite" in gated.report["reasons"][0]["remedy"]


def test_a_parameter_that_was_never_written_may_be_allowed(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", SCALED, SPEC + "determinism: {allow-nonfinite: true}\n"), out=tmp_path)
    assert gated.exit_code == 0 and gated.report["determinism"]["non_finite"], gated.stdout


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("pass", False),  # the clean twin, with a mask of -inf in a buffer
        ("loss = loss * (float('inf') if step < 2 else 1)", False),  # a loss scale that is too large at first
        ("loss = loss * (float('nan') if step > 1 else 1)", False),  # a training that diverges later is its own affair
        ("loss = loss * (float('nan') if step > 0 else 1)", True),
    ],
)
def test_losses_fail_where_none_is_finite_from_the_first_steps_on(line: str, fails: bool, tmp_path: Path) -> None:
    source = FILLED.replace("# loss", line).replace(
        "    optimizer.step()", "    if loss.isfinite(): optimizer.step()\n    else: optimizer.zero_grad(); optimizer.step()"
    )
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert gated.exit_code == int(fails), gated.stdout
    assert gated.reason_ids == (["determinism/nonfinite"] if fails else [])
    if fails:
        assert "no loss is finite from step 1 to the last of 4 steps" in gated.report["reasons"][0]["message"]


def test_a_flag_of_cudnn_on_a_cpu_is_no_failure(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", "import torch\ntorch.backends.cudnn.benchmark = True\n" + FILLED, SPEC), out=tmp_path)
    check = gated.check("random-state/flags")
    assert gated.exit_code == 0 and check["status"] == "pass", gated.stdout
    line = "torch.backends.cudnn.benchmark is True from step 0 on, set at train.py:2, and the gate wants False; no CUDA device was used"
    assert check["evidence"] == [line]


WORDS = """
import torch
words = "the cat sat on a mat and the dog ran to it over there with all of its heart".split()
vocabulary = {word: number for number, word in enumerate(set(words))}
ids = torch.tensor([vocabulary[word] for word in words])
model = torch.nn.Sequential(torch.nn.Embedding(len(vocabulary), 8), torch.nn.Linear(8, len(vocabulary)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = torch.nn.functional.cross_entropy(model(ids[:-1]), ids[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("fault", [True, False])
def test_what_only_a_fixed_hash_seed_makes_reproducible_is_said_first(fault: bool, tmp_path: Path) -> None:
    source = WORDS if fault else WORDS.replace("set(words)", "sorted(set(words))")
    gated = gate(
        training(tmp_path / "code", source, "version: 1\ntrain: {run: python train.py}\n"),
        "--markdown",
        str(tmp_path / "r.md"),
        out=tmp_path,
    )
    assert gated.exit_code == 0 and gated.report["noise_floor"]["identical"] is not fault, gated.stdout
    said = "without the flags they diverge at step 0, in loss, made reproducible by PYTHONHASHSEED"
    assert (said in " ".join(gated.stdout.split())) is fault, gated.stdout
    assert (said in (tmp_path / "r.md").read_text()) is fault
    assert gated.report["noise_floor"]["reproducible_by"] == ("PYTHONHASHSEED" if fault else "")
