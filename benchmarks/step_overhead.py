"""Step time with the probe over step time without it, for a model of 24 tensors and one of 200. Goal: at most 1.05.

The training script times its own steps; bare and probed processes take turns. Two ratios: the whole step, the probe's digests and lines
included; and the training time that the probe reports, its own taken out, which is what the determinism cost is computed from.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.arms import WORKLOADS, Place, open_place, run_bare, run_probed
from benchmarks.figure import ROOT, Figure
from repro_gate.runs import arms
from repro_gate.trace.model import StepMark

GOAL = 1.05


@dataclass(frozen=True)
class Settings:
    """Models and the workload's further arguments; steps of each process, how many of them are left out at the start, rounds of one bare
    and one probed process."""

    models: tuple[str, ...] = ("quickstart", "transformer")
    arguments: str = "--device cpu"
    steps: int = 60
    warmup: int = 10
    rounds: int = 5


QUICK = Settings(models=("transformer",), steps=4, warmup=1, rounds=1)


@dataclass(frozen=True)
class Round:
    """Medians over the steps of one round, in milliseconds."""

    bare: float
    whole: float
    reported: float
    probe: float
    tensors: int
    device_mib: float  # peak memory on the device, probed minus bare; 0 on a CPU


def measure(settings: Settings) -> list[Figure]:
    """Two figures for each model."""
    figures = []
    with open_place(WORKLOADS) as place:
        (place.workspace / "quickstart.py").write_bytes((ROOT / "examples" / "quickstart" / "train.py").read_bytes())
        for model in settings.models:
            rounds = [_round(place, settings, model, number) for number in range(settings.rounds)]
            label = f"{model}, {rounds[0].tensors} tensors"
            beside: dict[str, object] = {
                "steps": settings.steps,
                "bare_ms": _rounded(item.bare for item in rounds),
                "probe_ms": _rounded(item.probe for item in rounds),
            }
            if any(item.device_mib for item in rounds):
                beside["device_peak_probed_minus_bare_mib"] = _rounded(item.device_mib for item in rounds)
            figures += [
                Figure(f"whole step, {label}", "ratio", tuple(item.whole / item.bare for item in rounds), GOAL, beside),
                Figure(f"training time as reported, {label}", "ratio", tuple(item.reported / item.bare for item in rounds), GOAL),
            ]
    return figures


def _round(place: Place, settings: Settings, model: str, number: int) -> Round:
    """One bare and one probed process; which goes first alternates."""
    told: dict[str, dict[str, Any]] = {}
    marks: Sequence[StepMark] = ()
    for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
        out = place.root / f"{model}-{arm}-{number}.json"
        command = f"python3 train.py --model {model} {settings.arguments} --steps {settings.steps} --out {out}"
        condition = arms.default(42, None)
        if arm == "bare":
            run_bare(place, command, condition)
        else:
            run = run_probed(place, command, condition, f"{model}-{number}")
            marks = next(trace.steps for trace in run.traces if trace.trained)[settings.warmup :]
        told[arm] = json.loads(out.read_text(encoding="utf-8"))
    bare, whole = (statistics.median(told[arm]["ms"][settings.warmup :]) for arm in ("bare", "probed"))
    device = (told["probed"]["device_peak_bytes"] - told["bare"]["device_peak_bytes"]) / 2**20
    reported, probe = statistics.median(mark.ms for mark in marks), statistics.median(mark.probe_ms for mark in marks)
    return Round(bare, whole, reported, probe, told["bare"]["tensors"], device)


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 3) for value in values]
