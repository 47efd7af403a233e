"""Claims about operators whose order of addition is free on a GPU: the gate sees them drift with
the flags off and repeat with them on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.device_training import DEFAULT, attempt, differing, pair

pytestmark = pytest.mark.gpu

# One parameter for each operator, so that its gradient's name says which operator drifted.
OPERATORS = """
import torch, torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
w = nn.ParameterDict({
    "index_add": nn.Parameter(torch.randn(400_000)),
    "scatter_add": nn.Parameter(torch.randn(400_000)),
    "interpolate": nn.Parameter(torch.randn(1, 8, 64, 64)),
    "matmul": nn.Parameter(torch.randn(512, 512)),
}).cuda()
place = torch.randint(64, (400_000,), device="cuda")
target = torch.randn(1, 8, 251, 251, device="cuda")
optimizer = torch.optim.SGD(w.parameters(), lr=1e-4)
for _ in range(4):
    optimizer.zero_grad()
    added = torch.zeros(64, device="cuda").index_add(0, place, w["index_add"])
    scattered = torch.zeros(64, device="cuda").scatter_add(0, place, w["scatter_add"])
    grown = F.interpolate(w["interpolate"], size=(251, 251), mode="bilinear", align_corners=False)
    losses = [(added / 300).square().sum(), (scattered / 300).square().sum(), (grown - target).square().mean(),
              (w["matmul"] @ w["matmul"]).square().mean()]
    sum(losses).backward()
    optimizer.step()
"""
# Operators for which torch may have no deterministic kernel: then it refuses, and the gate says
# which one.
REFUSED = {
    "embedding_bag": """
import torch
bag = torch.nn.EmbeddingBag(1000, 32, mode="max").cuda()
optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
rows = torch.randint(1000, (64, 128), device="cuda")
for _ in range(3):
    optimizer.zero_grad()
    bag(rows).square().mean().backward()
    optimizer.step()
""",
    "ctc_loss": """
import torch, torch.nn.functional as F
logits = torch.nn.Parameter(torch.randn(50, 16, 20, device="cuda"))
optimizer = torch.optim.SGD([logits], lr=0.1)
targets = torch.randint(1, 20, (16, 30), device="cuda")
lengths = torch.full((16,), 50), torch.randint(10, 30, (16,))
for _ in range(3):
    optimizer.zero_grad()
    F.ctc_loss(logits.log_softmax(2), targets, *lengths, zero_infinity=True).backward()
    optimizer.step()
""",
}


def test_operators_that_add_in_any_order_drift_by_default_and_alone(tmp_path: Path) -> None:
    found = differing(pair(tmp_path, OPERATORS, DEFAULT), "gradient")
    assert {"index_add", "scatter_add", "interpolate"} <= found
    assert "matmul" not in found


def test_the_same_operators_repeat_their_bits_with_the_flags_on(tmp_path: Path) -> None:
    comparison = pair(tmp_path, OPERATORS)[2]
    assert comparison.identical, comparison.first_divergence
    assert comparison.steps == 4


@pytest.mark.parametrize("operator", REFUSED)
def test_an_operator_without_a_deterministic_kernel_is_named_or_repeats(
    tmp_path: Path, operator: str
) -> None:
    """Which of the two depends on the torch version; never a run that counts as deterministic and
    drifts."""
    run = attempt(tmp_path, REFUSED[operator])
    if run.good:
        assert pair(tmp_path, REFUSED[operator])[2].identical
    else:
        assert run.reason_id == "run/no-deterministic-implementation", (run.problem, run.ended.tail)
        assert operator in run.problem.replace("EmbeddingBag", "embedding_bag")
