"""What the gate says of trainings that no torch optimizer steps, or that leave more behind than an
optimizer moves; and of clean twins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import Gated, gate_training, tiered

HEAD = """
import os, time, torch
from torch import nn
noise = lambda: time.time_ns() % 10**6 * 1e-9
def data():
    return torch.randn(16, 4), torch.randn(16, 1)
"""
BY_BACKWARD = """
net = nn.Linear(4, 1)
for step in range(6):
    x, y = data()
    net.zero_grad()
    ((net(x) - y) ** 2).mean().backward()
    for p in net.parameters():
        p.data.add_(p.grad, alpha=-0.1{0})
"""
ONE_EACH = """
net, optimizers = nn.Linear(4, 1), {}
for step in range(6):
    x, y = data()
    ((net(x) - y) ** 2).mean().backward()
    for p in sorted(net.parameters(), key=lambda p: os.urandom(4)):
        if p not in optimizers:
            optimizers[p] = torch.optim.Adam([p])
        optimizers[p].step()
        p.data.add_(0{0})
        p.grad = None
"""
STRATEGY = """
x, y = data()
weights = torch.zeros(4, 1)
with torch.no_grad():
    for step in range(6):
        tries = weights + 0.1 * torch.randn(32, 4, 1)
        scores = -((x @ tries - y) ** 2).mean((1, 2))
        weights = tries[scores.topk(8).indices].mean(0){0}
torch.save(weights, "weights.pt")
"""
# Two optimizers, an average, what a module keeps beside its weights, and weights that change after
# the last step.
MIXED = """
class Net(nn.Linear):
    def forward(self, x):
        self.cache = torch.zeros(3){cache}
        return super().forward(x)
net, critic = Net(4, 1), nn.Linear(1, 1)
average = torch.optim.swa_utils.AveragedModel(nn.Linear(4, 1))
first, second = torch.optim.Adam(net.parameters()), torch.optim.Adam(critic.parameters())
try:
    while True:
        x, y = data()
        first.zero_grad(), second.zero_grad()
        (critic(net(x)) - y).square().mean().backward()
        with torch.no_grad():
            average.module.weight.mul_(0.9).add_(net.weight * (0.1{cache}))
        first.step(), second.step()
finally:
    net.weight.data.mul_(0.5{end})
"""
ARTIFACTS = """
version: 1
train: {run: python train.py, timeout: 2m}
capture: {artifacts: ['*.pt']}
cost: {measure: false}
"""


def said(gated: Gated, identifier: str) -> list[str]:
    return [item["message"] for item in gated.report["notes"] if item["id"] == identifier]


WEIGHT = ("parameter", "weight")
BACKWARD = "steps are calls of backward(): "
CASES = {
    "backward": (
        BY_BACKWARD,
        " - noise() - (time.sleep(0.15) or 0)",  # slow enough to be ended
        "",
        WEIGHT,
        f"{BACKWARD}no torch optimizer took a step",
    ),
    "one-each": (
        *(ONE_EACH, " + noise()", "", WEIGHT),
        f"{BACKWARD}each optimizer is made after one",
    ),
    "strategy": (
        *(STRATEGY, " + noise()", ARTIFACTS, ("artifact", "weights.pt: (root)")),
        "no step was recorded: the runs are compared by their artifacts alone",
    ),
}


@pytest.mark.parametrize("case", tiered(CASES, ("backward",)))
def test_a_fault_is_found_and_its_clean_twin_passes(case: str, tmp_path: Path) -> None:
    source, fault, spec, first, note = CASES[case]
    bad, good = (
        gate_training(tmp_path / name, HEAD + source.replace("{0}", text), spec, "--fail-fast")
        for name, text in (("bad", fault), ("good", ""))
    )
    bad.must(1)
    assert (bad.first["kind"], bad.first["name"], bad.first["dtype"]) == (*first, "float32")
    if case == "backward":
        last = bad.report["runs"][-1]
        assert said(bad, "run/fail-fast") and last["outcome"] == "interrupted" and last["steps"] < 4
    good.must(0)
    assert note in {item["message"] for item in good.report["notes"]}
    assert not said(good, "probe/state-not-kept")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cache", "end"])
def test_weights_that_change_after_the_last_step_count(tmp_path: Path, place: str) -> None:
    """With noise in one place. Parameters of torch.func: tests/probe/test_torch_hooks.py."""
    source = HEAD + MIXED
    for other in ("cache", "end"):
        source = source.replace(f"{{{other}}}", " + noise()" if other == place else "")
    gated = gate_training(tmp_path, source)
    assert not said(gated, "probe/state-not-kept")  # two optimizers have a file each
    told = " ".join(said(gated, "unrecorded/modules"))
    for text in ("module AveragedModel (no optimizer)", "attribute Net.cache"):
        assert (text in told) is (place == "cache")
    if place == "cache":
        gated.must(0)
    else:
        gated.must(1)
        assert (gated.first["kind"], gated.first["name"]) == ("parameter", "Net.weight")


UNSEEN = """
import random
import model
w = [0.0, 0.0]
for name in ("a", "b"):
    print(name)
"""
MODEL = """
import random, repro_gate
def train(w):
    for step in range(4):
        x = random.random()
        loss = (w - x) ** 2{noise}
        w -= 0.2 * (w - x)
        # here
    return w
w = train(0.0)
"""
TWO_LINES = 'repro_gate.record("loss", loss)\n        repro_gate.step()'


def test_a_training_that_nothing_sees_is_told_where_to_add_two_lines(tmp_path: Path) -> None:
    """`record` and `step`: with them it passes, and what differs is found."""
    seen, files = MODEL.replace("# here", TWO_LINES), ("none", "clean", "faulty")
    noisy = seen.replace("{noise}", " + random.SystemRandom().random()")
    none, clean, faulty = (
        gate_training(tmp_path / name, UNSEEN, files={"model.py": text.replace("{noise}", "")})
        for name, text in zip(files, (MODEL, seen, noisy), strict=True)
    )
    none.must(3, "run/nothing-recorded")
    line = MODEL.split("\n").index("    for step in range(4):") + 1
    two = f'(model.py:{line}) `repro_gate.record("loss", loss)` and at its end `repro_gate.step()`'
    assert two in none.report["reasons"][0]["remedy"]
    clean.must(0)
    faulty.must_diverge(0, "loss")
