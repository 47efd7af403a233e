"""Step time with the probe over step time without it, for a model of 24 tensors and one of 200. Goal: at most 1.05.

The training script times its own steps; bare and probed processes take turns. Two ratios: the whole step, the probe's digests and lines
included; and the training time that the probe reports, its own taken out, which is what the determinism cost is computed from.
"""
from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arms import WORKLOADS, Place, open_place, run_bare, run_probed
from benchmarks.figure import ROOT, Figure
from repro_gate.runs import conditions

GOAL = 1.05


@dataclass(frozen=True)
class Settings:
    """Steps of each process, how many of them are left out at the start, rounds of one bare and one probed process."""

    models: tuple[str, ...] = ("quickstart", "transformer")
    steps: int = 60
    warmup: int = 10
    rounds: int = 5


QUICK = Settings(steps=4, warmup=1, rounds=1)


@dataclass(frozen=True)
class Round:
    """Medians over the steps of one round, in milliseconds."""

    bare: float
    whole: float
    reported: float
    probe: float
    tensors: int


def measure(settings: Settings = Settings()) -> list[Figure]:
    """Two figures for each model."""
    figures = []
    with open_place(WORKLOADS) as place:
        (place.workspace / "quickstart.py").write_bytes((ROOT / "examples" / "quickstart" / "train.py").read_bytes())
        for model in settings.models:
            rounds = [_round(place, settings, model, number) for number in range(settings.rounds)]
            label = f"{model}, {rounds[0].tensors} tensors"
            beside = {"bare_ms": _rounded(item.bare for item in rounds), "probe_ms": _rounded(item.probe for item in rounds), "steps": settings.steps}
            figures += [Figure(f"whole step, {label}", "ratio", tuple(item.whole / item.bare for item in rounds), GOAL, beside),
                        Figure(f"training time as reported, {label}", "ratio", tuple(item.reported / item.bare for item in rounds), GOAL)]
    return figures


def _round(place: Place, settings: Settings, model: str, number: int) -> Round:
    """One bare and one probed process; which goes first alternates."""
    bare: list[float] = []
    for arm in ("bare", "probed") if number % 2 else ("probed", "bare"):
        out = place.root / f"{model}-{arm}-{number}.json"
        command = f"python train.py --model {model} --steps {settings.steps} --out {out}"
        condition = conditions.default(42, frozenset(), None)
        if arm == "bare":
            run_bare(place, command, condition)
            bare, _ = _steps(out)
        else:
            run = run_probed(place, command, condition, f"{model}-{number}")
            whole, tensors = _steps(out)
            marks = next(trace.steps for trace in run.traces if trace.trained)[settings.warmup:]
    return Round(statistics.median(bare[settings.warmup:]), statistics.median(whole[settings.warmup:]), statistics.median(mark.ms for mark in marks),
                 statistics.median(mark.probe_ms for mark in marks), tensors)


def _steps(out: Path) -> tuple[list[float], int]:
    content = json.loads(out.read_text(encoding="utf-8"))
    return content["ms"], content["tensors"]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 3) for value in values]
