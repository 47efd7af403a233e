"""The load beside a stressed run, and the variables that it gets. What the probe does in its
processes is `probe/stress.py`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

from repro_gate.runs.environment import usable_processors

# Inductor chooses among kernels by other times than it measured; the C library fills memory that it
# hands out and takes back.
VARIABLES: Mapping[str, str] = {
    "TORCHINDUCTOR_DISTORT_BENCHMARKING_RESULT": "inverse",
    "MALLOC_PERTURB_": "170",
}
# Computes and waits in turns of odd lengths, and ends with the gate.
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
    """Keep every processor busy meanwhile."""
    command = [sys.executable, "-I", "-S", "-c", _LOAD]
    with contextlib.ExitStack() as started:
        for _ in range(usable_processors()):
            process = subprocess.Popen(
                command,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
        yield
