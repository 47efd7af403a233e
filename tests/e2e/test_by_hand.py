"""What the gate says of trainings that no torch optimizer steps, or that leave more behind than an optimizer moves; and of clean twins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import Gated, gate, training

HEAD = """
import os, time, torch
from torch import nn
noise = lambda: time.time_ns() % 10**6 * 1e-9
def data():
    return torch.randn(16, 4), torch.randn(16, 1)
"""
BY_BACKWARD = (
    HEAD
    + """
net = nn.Linear(4, 1)
for step in range(6):
    x, y = data()
    net.zero_grad()
    ((net(x) - y) ** 2).mean().backward()
    for p in net.parameters():
        p.data.add_(p.grad, alpha=-0.1{0})
"""
)
BESIDE = (
    HEAD
    + """
net, small = nn.Linear(4, 1), nn.Linear(4, 1)
optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
params = {name: p.detach() for name, p in net.named_parameters()}
def loss(params, x, y):
    return ((torch.func.functional_call(net, params, (x,)) - y) ** 2).mean()
for step in range(6):
    x, y = data()
    grads = torch.func.grad(loss)(params, x, y)
    params = {name: params[name] - (0.1{0}) * grads[name] for name in params}
    optimizer.zero_grad()
    small(x).mean().backward()
    optimizer.step()
"""
)
STRATEGY = (
    HEAD
    + """
x, y = data()
weights = torch.zeros(4, 1)
with torch.no_grad():
    for step in range(6):
        tries = weights + 0.1 * torch.randn(32, 4, 1)
        scores = -((x @ tries - y) ** 2).mean((1, 2))
        weights = tries[scores.topk(8).indices].mean(0){0}
torch.save(weights, "weights.pt")
"""
)
FINALLY = (
    HEAD
    + """
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
try:
    while True:
        x, y = data()
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
finally:
    net.weight.data.mul_(0.5{0})
    torch.save(net.state_dict(), "net.pt")
"""
)
AVERAGE = (
    HEAD
    + """
class Net(nn.Linear):
    calls, cache = 0, None
    def forward(self, x):
        self.calls += 1
        self.cache = torch.ones(3){0}
        return super().forward(x)
class Critic(Net):
    pass
net, critic = Net(4, 1), Critic(1, 1)
average = torch.optim.swa_utils.AveragedModel(nn.Linear(4, 1))
first, second = torch.optim.Adam(net.parameters()), torch.optim.Adam(critic.parameters())
for step in range(6):
    x, y = data()
    for optimizer in (first, second):
        first.zero_grad(), second.zero_grad()
        (critic(net(x)) - y).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        average.module.weight.mul_(0.9).add_(net.weight * (0.1{0}))
"""
)
ARTIFACTS = "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncapture: {artifacts: ['*.pt']}\ncost: {measure: false}\n"


def both(tmp_path: Path, source: str, fault: str, spec: str = "") -> tuple[Gated, Gated]:
    """What the gate says of the training with the fault, and of its clean twin."""
    bad, good = (
        gate(training(tmp_path / name, source.replace("{0}", text), spec), out=tmp_path) for name, text in (("bad", fault), ("good", ""))
    )
    return bad, good


def said(gated: Gated, identifier: str) -> list[str]:
    return [item["message"] for item in gated.report["notes"] if item["id"] == identifier]


@pytest.mark.parametrize(
    ("source", "fault", "spec", "kind", "note"),
    [
        (BY_BACKWARD, " - noise()", "", "parameter", "steps are calls of backward(): no torch optimizer took a step"),
        (BESIDE, " + noise()", "", "parameter", ""),
        (STRATEGY, " + noise()", ARTIFACTS, "artifact", "no step was recorded: the runs are compared by their artifacts alone"),
        (FINALLY, " + noise()", "", "parameter", ""),
    ],
    ids=["backward", "func-beside-an-optimizer", "strategy", "finally"],
)
def test_a_fault_is_found_and_its_clean_twin_passes(source: str, fault: str, spec: str, kind: str, note: str, tmp_path: Path) -> None:
    bad, good = both(tmp_path, source, fault, spec)
    assert bad.exit_code == 1 and bad.first["kind"] == kind, bad.stdout + bad.stderr
    assert good.exit_code == 0, good.stdout + good.stderr
    notes = {item["id"]: item["message"] for item in good.report["notes"]}
    assert note == "" or note in (notes.get("probe/steps"), notes.get("probe/whole-run"))
    assert not said(good, "probe/state-not-kept")


def test_what_differs_beside_the_training_is_one_notice_and_no_failure(tmp_path: Path) -> None:
    bad, good = both(tmp_path, AVERAGE, " + noise()")
    assert (bad.exit_code, good.exit_code) == (0, 0), bad.stdout + bad.stderr + good.stdout
    [told] = said(bad, "unrecorded/modules")
    assert "module AveragedModel (no optimizer)" in told and "attribute Net.cache" in told
    assert not said(good, "unrecorded/modules")
    assert not said(good, "probe/state-not-kept")  # two optimizers have a file each


def test_names_of_any_kind_and_length_are_reported(tmp_path: Path) -> None:
    source = (
        HEAD
        + """
from repro_gate import record
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_parameter("w\\\\ud800", nn.Parameter(torch.ones(4, 1)))
        self.register_parameter("n" * 10_000, nn.Parameter(torch.ones(1)))
    def forward(self, x):
        first, second = self.parameters()
        return x @ first + second
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for step in range(6):
    optimizer.zero_grad()
    net(data()[0]).mean().backward()
    next(net.parameters()).grad.add_(1.0{0})
    optimizer.step()
    record("r" * 10_000, 1.0)
"""
    )
    bad, good = both(tmp_path, source.replace("\\\\", "\\"), " + noise()")
    assert bad.exit_code == 1 and bad.first["name"] == "w\\ud800", bad.stdout + bad.stderr
    assert good.exit_code == 0, good.stdout + good.stderr
