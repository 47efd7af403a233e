"""Claims about `probe.rng`: all generators are seeded first, and their states are told apart."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from repro_gate.probe import rng
from tests.support.tracing import names, trace_script, trained

DRAW = """
import random
first = random.random()
import numpy
second = numpy.random.rand()
import torch
print([first, second, torch.rand(1).item(), hash("text")])
"""
TRAIN = """
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.randn(4, 3)).sum().backward()
opt.step()
"""


def test_python_numpy_torch_and_hashes_are_seeded_before_the_first_line(tmp_path: Path) -> None:
    one = trace_script(tmp_path / "one", DRAW + TRAIN, seed=7)
    other = trace_script(tmp_path / "other", DRAW, seed=8)
    drawn = torch.rand(1, generator=torch.Generator().manual_seed(7)).item()
    expected = [random.Random(7).random(), np.random.RandomState(7).rand(), drawn]
    bare = [sys.executable, "-c", "print(hash('text'))"]
    hashed = subprocess.run(
        bare, env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert one.ended.tail == (str([*expected, int(hashed.stdout)]),)
    assert not set(eval(one.ended.tail[0])) & set(eval(other.ended.tail[0]))
    assert names(trained(one), "rng", -1) == ["python", "numpy", "torch"]


def test_each_generator_shows_in_its_own_digest_and_nothing_is_drawn() -> None:
    def states() -> list[bytes]:
        rows, digests = rng.states()
        assert [name for name, _, _ in rows][:3] == ["python", "numpy", "torch"]
        return [digests[start : start + 16] for start in (0, 16, 32)]

    draws = (
        (0, random.random),
        (1, np.random.randn),  # draws two and keeps one
        (1, np.random.randn),
        (2, lambda: torch.rand(1)),
        (0, lambda: random.gauss(0, 1)),  # keeps one for later, which is part of Python's state
        (0, lambda: random.gauss(0, 1)),
    )
    for place, draw in draws:
        before = states()
        assert states() == before
        draw()
        differs = [a != b for a, b in zip(before, states(), strict=True)]
        assert differs == [number == place for number in range(3)]
