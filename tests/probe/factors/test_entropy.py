"""Claims about `factors.entropy`: each way to random bytes is told; pinned, it gives the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import differing, once, pinned, uses_of, watched_twice

LINES = """
import os, random
import numpy as np
print(os.urandom(4))
print(random.Random().random())
print(np.random.default_rng().random())
print(random.Random(3).random(), np.random.default_rng(3).random())
"""


def test_one_line_can_be_pinned_alone_and_a_seeded_generator_stays(tmp_path: Path) -> None:
    one = {"watch": True, "pin": {"entropy": [["train.py", 5]]}}
    both = once(tmp_path, LINES, one), once(tmp_path, LINES, one)
    assert differing(both) == [True, False, True, False]
    assert pinned(tmp_path, LINES, "entropy")[3] == both[0].ended.tail[3]
    assert {use.line for use in uses_of(both[0], "entropy") if use.line > 3} == {4, 5, 6}


CHILDREN = """
import multiprocessing, os, random, subprocess, sys
import numpy as np

def draw(place):
    place.put((np.random.default_rng().integers(1 << 60), random.random()))

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(np.random.default_rng().integers(1 << 60))
        sys.exit()
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        place = context.SimpleQueue()
        for _ in range(2):
            process = context.Process(target=draw, args=(place,))
            process.start()
            print(place.get())
            process.join()
    for _ in range(2):
        print(subprocess.run([sys.executable, "train.py", "x"], capture_output=True, text=True).stdout.strip())
    shell = "python train.py x; python train.py x; python train.py y"
    print(subprocess.run(shell, shell=True, capture_output=True, text=True).stdout.strip())
"""


@pytest.mark.slow
def test_pinned_every_process_draws_its_own_in_each_run(short_path: Path) -> None:
    found = pinned(short_path, CHILDREN, "entropy")
    assert len(set(found)) == 10  # a shell tells two of one command not apart
    assert all(differing(watched_twice(short_path, CHILDREN)))


TORCH = """
import torch
print(torch.seed(), torch.rand(1).item())
print(torch.Generator().seed())
torch.manual_seed(3)
print(torch.rand(1).item())
"""


@pytest.mark.slow
def test_torchs_own_seeds_are_pinned_and_a_seeded_one_stays_as_it_is(tmp_path: Path) -> None:
    both, found = watched_twice(tmp_path, TORCH), pinned(tmp_path, TORCH, "entropy")
    assert differing(both) == [True, True, False] and found[2] == both[0].ended.tail[2]
