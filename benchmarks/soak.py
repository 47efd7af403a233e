"""Whether runs of a training with side streams repeat, over and over: what a probe that reads too
early would call a divergence.

`workloads/side_streams.py` under the probe, several processes at a time, until the time is over.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.arms import WORKLOADS, open_place, run_probed
from benchmarks.figure import Figure
from repro_gate.compare.traces import compare_runs
from repro_gate.runs import arms
from repro_gate.trace.model import Trace


@dataclass(frozen=True)
class Settings:
    """Seconds in which runs are started, how many at a time, and where they train."""

    seconds: float = 15.0
    at_a_time: int = 6
    device: str = "cuda"


QUICK = Settings(seconds=0.0, at_a_time=2, device="cpu")


def measure(settings: Settings) -> list[Figure]:
    """The share of the runs that are the first one's equal."""
    began = time.monotonic()
    runs: list[list[Trace]] = []
    # each in a process of its own: a run ends all that its process has started
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(settings.at_a_time, context) as pool:
        while not runs or time.monotonic() - began < settings.seconds:
            runs += pool.map(_run, [settings.device] * settings.at_a_time)
    compared = [compare_runs(runs[0], run) for run in runs[1:]]
    others = [str(item.first_divergence) for item in compared if not item.identical]
    share = 1 - len(others) / len(compared)
    beside = {"runs": len(runs), "first_divergences": others[:5]}
    label = "soak of side streams, runs that are equal"
    return [Figure(label, "share", (share,), 1.0, beside, at_least=True)]


def _run(device: str) -> list[Trace]:
    command = f"python3 side_streams.py {device}"
    condition = arms.deterministic(42, frozenset(), None)
    with open_place(WORKLOADS) as place:
        return list(run_probed(place, command, condition, "soak").traces)
