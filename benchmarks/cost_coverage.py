"""How often the 95 % interval of the cost holds the true cost, in simulated gate runs: what the interval promises, put to the test.

A true cost of 12 %, steps that scatter by 5 % about their run and follow one another (each takes half of the last one's deviation), and
runs that scatter, drift or fall into a slow spell as a machine's do. In a slow spell the machine takes a quarter longer for a quarter of
the time of all runs, wherever that begins.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figure import Figure
from repro_gate.compare.cost import interval

COST, STEPS = 12.0, 0.05
GOAL = 0.93


@dataclass(frozen=True)
class Settings:
    """Gate runs of each scenario, timed steps of each run, and the numbers of pairs."""

    gates: int = 2_000
    steps: int = 30
    pairs: tuple[int, ...] = (2, 3, 5)


QUICK = Settings(gates=50, steps=5, pairs=(2,))
Level = Callable[[float], float]  # how slow the machine is at a time between 0 (the first run begins) and 1 (the last one ends)
Runs = list[list[float]]


def measure(settings: Settings) -> list[Figure]:
    """For each scenario and number of pairs: the share of intervals that hold the cost, and how wide they are."""
    figures = []
    for name, scatter, level in SCENARIOS:
        for pairs in settings.pairs:
            generator = random.Random(f"{name} {pairs}")
            found = [interval(*_gate(generator, settings.steps, pairs, scatter, level)) for _ in range(settings.gates)]
            held = sum(low <= COST <= high for low, high in found) / len(found)
            width = sorted(high - low for low, high in found)[len(found) // 2]
            label = f"{name}, {pairs} pairs"
            figures.append(
                Figure(f"intervals that hold the cost, {label}", "share", (held,), GOAL, {"median_width_pct": width}, at_least=True)
            )
    return figures


def _gate(generator: random.Random, steps: int, pairs: int, scatter: float, level: Callable[[random.Random], Level]) -> tuple[Runs, Runs]:
    """Step times of the deterministic and of the default runs of one gate run, in its order."""
    arms: tuple[Runs, Runs] = ([], [])
    at = level(generator)
    order = [arm for pair in range(pairs) for arm in ((0, 1) if pair % 2 == 0 else (1, 0))]
    for place, arm in enumerate(order):
        base = (10.0 * (1 + COST / 100) if arm == 0 else 10.0) * generator.lognormvariate(0, scatter)
        times, off = [], 0.0
        for step in range(steps):
            off = 0.5 * off + generator.gauss(0, STEPS * math.sqrt(0.75))
            times.append(base * math.exp(off) * at((place + step / steps) / len(order)))
        arms[arm].append(times)
    return arms


def _steady(_: random.Random) -> Level:
    return lambda _: 1.0


def _drifting(generator: random.Random) -> Level:
    end = generator.uniform(-0.1, 0.1)
    return lambda time: 1.0 + end * time


def _spell(generator: random.Random) -> Level:
    begin = generator.uniform(-0.25, 1.0)
    return lambda time: 1.25 if begin <= time < begin + 0.25 else 1.0


SCENARIOS = (
    ("runs do not scatter", 0.0, _steady),
    ("runs scatter by 2 %", 0.02, _steady),
    ("runs scatter by 5 %", 0.05, _steady),
    ("the machine drifts by up to 10 %", 0.01, _drifting),
    ("a slow spell", 0.01, _spell),
)
