"""Peak memory of a training process with the probe minus without, for 1,000 steps of 200 tensors.
Goal: at most 16 MiB plus one tensor.

Each process is fresh and reads its own high-water mark (VmHWM) after its last step. As in the gate,
the first probed run keeps its final state and the second measures its distance to it. Beside it:
the trace's size, and what the gate takes to read and compare two such traces.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.arms import (
    OUTER,
    WORKLOADS,
    Place,
    RunFailed,
    open_place,
    run_bare,
    run_probed,
)
from benchmarks.figure import ROOT, Figure
from repro_gate.runs import arms
from repro_gate.runs.launch import RunResult

MIB = 2**20
ALLOWED_MIB = 16
COMPARE = """\
import sys
from pathlib import Path
def peak():
    lines = open("/proc/self/status")
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
from repro_gate.compare.traces import compare_runs
from repro_gate.trace.reader import read_folder
before = peak()
a, b = (read_folder(Path(name), None) for name in sys.argv[1:3])
assert compare_runs(a, b).identical
print(peak(), peak() - before)
"""


@dataclass(frozen=True)
class Settings:
    """Steps of the small-tensor training (0: left out) and of the one with one large tensor (bytes;
    it takes a second a step or so), rounds of each."""

    steps: int = 1000
    large_steps: int = 100
    large: int = 64 * MIB
    rounds: int = 1


QUICK = Settings(steps=0, large_steps=2, large=2 * MIB, rounds=1)


@dataclass(frozen=True)
class Round:
    """Peak memory of each process of one round in MiB, and the trace's size."""

    bare: float
    first: float
    second: float
    trace: float
    gate: float
    gate_own: float  # without what the interpreter and the modules take


def measure(settings: Settings) -> list[Figure]:
    """Extra memory of the first and the second run of a pair, for both trainings; the trace; the
    gate."""
    figures = []
    with open_place(WORKLOADS) as place:
        one_large = f"one tensor of {settings.large // MIB} MiB"
        for label, steps, large in (
            ("200 small tensors", settings.steps, 0),
            (one_large, settings.large_steps, settings.large),
        ):
            if steps == 0:
                continue
            rounds = [
                _round(place, f"{'large' if large else 'small'}-{number}", steps, large)
                for number in range(settings.rounds)
            ]
            goal = ALLOWED_MIB + large / MIB
            bare = {
                "bare_mib": round(statistics.median(item.bare for item in rounds), 1)
            }
            figures += [
                Figure(
                    f"probe, {steps} steps, {label}",
                    "MiB",
                    tuple(item.first - item.bare for item in rounds),
                    goal,
                    bare,
                ),
                Figure(
                    f"probe that also measures distances, {steps} steps, {label}",
                    "MiB",
                    tuple(item.second - item.bare for item in rounds),
                    goal,
                    bare,
                ),
                Figure(
                    f"trace file, {steps} steps, {label}",
                    "MiB",
                    tuple(item.trace for item in rounds),
                ),
                Figure(
                    f"gate reading and comparing two, {steps} steps, {label}",
                    "MiB",
                    tuple(item.gate for item in rounds),
                    None,
                    {
                        "without_interpreter_and_modules_mib": round(
                            statistics.median(item.gate_own for item in rounds), 1
                        )
                    },
                ),
            ]
    return figures


def _round(place: Place, name: str, steps: int, large: int) -> Round:
    out = place.root / f"{name}.json"
    command = (
        f"python3 train.py --model many --large {large} --steps {steps} --out {out}"
    )
    condition = replace(arms.default(42, None), steps=steps)
    run_bare(place, command, condition)
    bare = _peak(out)
    first = run_probed(place, command, condition, f"{name}-1", keep_final=True)
    first_peak = _peak(out)
    second = run_probed(
        place, command, condition, f"{name}-2", keep_final=True, reference=first.traces
    )
    second_peak = _peak(out)
    gate, own = _gate_peak((first, second))
    return Round(
        bare,
        first_peak,
        second_peak,
        sum(trace.path.stat().st_size for trace in first.traces) / MIB,
        gate,
        own,
    )


def _peak(out: Path) -> float:
    return float(json.loads(out.read_text(encoding="utf-8"))["peak_kib"]) / 1024


def _gate_peak(runs: Sequence[RunResult]) -> tuple[float, float]:
    """Peak memory in MiB of a fresh process that compares two runs, and how much of it came after
    its imports."""
    command = [sys.executable, "-c", COMPARE, *(str(run.folder) for run in runs)]
    done = subprocess.run(
        command, cwd=ROOT, env=OUTER, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RunFailed(
            f"comparing two traces: exit status {done.returncode}\n{done.stderr[-4000:]}"
        )
    peak, own = (int(item) / 1024 for item in done.stdout.split())
    return peak, own
