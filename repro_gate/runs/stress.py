"""Disturbs the timing of a stressed run, by a load on every processor and by variables.
`probe/stress.py` is the part inside its processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from repro_gate.runs.environment import Variables, usable_processors

# Inductor chooses kernels by random instead of measured times; the C library fills memory when it
# is allocated and freed.
STRESS: Variables = {
    "TORCHINDUCTOR_DISTORT_BENCHMARKING_RESULT": "inverse",
    "MALLOC_PERTURB_": "170",
}
# Alternates between computing and waiting for irregular times, and ends with the gate.
_LOAD = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + random.uniform(0.01, 0.2)
    while time.monotonic() < end:
        sum(range(1000))
    time.sleep(random.uniform(0, 0.05))
"""


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keep every processor busy inside the block."""
    command = [sys.executable, "-I", "-S", "-c", _LOAD]
    with contextlib.ExitStack() as started:
        for _ in range(usable_processors()):
            process = subprocess.Popen(command, env={}, cwd="/", start_new_session=True)
            started.enter_context(process)
            started.callback(process.kill)
        yield
