"""Claims about `factors.entropy`: each way to random bytes is told; pinned, it gives the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import apart, once, pinned, told, watched_twice

HEAD = """
import multiprocessing, os, random, secrets, uuid
import numpy as np
from pathlib import Path
"""
DRAWS = (
    "os.urandom(4)",
    "os.getrandom(4)",
    "secrets.token_hex(4)",
    "uuid.uuid4()",
    "uuid.uuid1(node=7)",
    "random.Random().random()",
    "random.SystemRandom().random()",
    "(random.seed(), random.random())",
    "np.random.default_rng().random()",
    "np.random.SeedSequence().entropy",
    "np.random.RandomState().rand()",
    "(np.random.seed(), np.random.rand())",
    "open(file='/dev/urandom', mode='rb').read(4)",
    "os.read(os.open('/dev/urandom', os.O_RDONLY), 4)",
    "Path('/dev/urandom').open('rb').read(4)",
    "np.fromfile('/dev/urandom', np.uint8, 4).tolist()",
)
SCRIPT = HEAD + "\n".join(f"print({draw})" for draw in DRAWS) + "\n"
FIRST = HEAD.count("\n") + 1


def test_each_draw_is_told_with_its_line_and_differs_between_two_runs(tmp_path: Path) -> None:
    both = watched_twice(tmp_path, SCRIPT)
    lines = {use.line for use in told(both[0], "entropy") if use.direct}
    assert lines == set(range(FIRST, FIRST + len(DRAWS))) and all(apart(both))
    ours, theirs = (
        {(use.line, use.digest) for use in told(run) if use.line >= FIRST} for run in both
    )
    assert not ours & theirs


def test_pinned_each_draw_is_the_same_in_two_runs_and_another_one_each_time(tmp_path: Path) -> None:
    script = HEAD + "for _ in range(2):\n" + "".join(f"    print({draw})\n" for draw in DRAWS)
    found = pinned(tmp_path, script, "entropy")
    assert len(set(found)) == len(found) == 2 * len(DRAWS)


def test_one_line_can_be_pinned_alone_and_a_seeded_generator_stays(tmp_path: Path) -> None:
    seeded = "print(random.Random(3).random(), np.random.default_rng(3).random())\n"
    source = SCRIPT + seeded
    both = tuple(
        once(tmp_path, source, {"watch": True, "pin": {"entropy": [["train.py", FIRST + 8]]}})
        for _ in range(2)
    )
    assert apart(both) == [number not in (8, len(DRAWS)) for number in range(len(DRAWS) + 1)]  # type: ignore[arg-type]
    assert pinned(tmp_path, HEAD + seeded, "entropy")[0] == both[0].ended.tail[-1]
    assert not [use for use in told(both[0]) if use.line == FIRST + len(DRAWS)]


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
    assert all(apart(watched_twice(short_path, CHILDREN)))


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
    assert apart(both) == [True, True, False] and found[2] == both[0].ended.tail[2]
