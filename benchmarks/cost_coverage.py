"""How often the interval of the cost holds the true cost, in simulated gate runs that stop as the
gate does: the promise, put to the test.

Each gate run times two pairs and then further ones until `compare.cost` finds its interval narrow
enough, or six pairs are done (four, where its time ends then). A true cost of 12 %, or of 4 %;
steps that scatter by 5 % about their run and follow one another (each takes half of the last one's
deviation); and runs that scatter, drift or fall into a slow spell as a machine's do: normally, with
heavy tails, to one side, or each like the one before. A slow spell takes a quarter longer for the
time of four runs, wherever that begins. Beside each figure stands the share without the correction
for stopping: ordinary 95 % intervals, stopped at where they are narrow.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figure import Figure
from repro_gate.compare.cost import (
    Paces,
    cost_interval,
    interval,
    narrow,
    needs_another_pair,
    pace,
)

STEPS = 0.05
GOAL = 0.93
PAIRS = 6  # the default of cost.pairs


@dataclass(frozen=True)
class Settings:
    """Gate runs of each scenario, and timed steps of each run but where a scenario has few."""

    gates: int = 4_000
    steps: int = 30


QUICK = Settings(gates=50, steps=5)
# how slow the machine is in a run, counted from 0, and at which part of it
Level = Callable[[int, float], float]


@dataclass(frozen=True)
class Scenario:
    """A machine, and what is timed on it. `begin` gives the machine of one gate run, `most` the
    pairs that it has time for."""

    name: str
    begin: Callable[[random.Random], Level]
    cost: float = 12.0
    steps: int = 0  # of one run; 0: as the settings say
    most: int = PAIRS


def measure(settings: Settings) -> list[Figure]:
    """For each scenario: the share of intervals that hold the cost, how wide they are, and how many
    pairs they took."""
    figures = []
    for scenario in SCENARIOS:
        generator = random.Random(scenario.name)
        gates = [
            _gate(generator, scenario, scenario.steps or settings.steps)
            for _ in range(settings.gates)
        ]
        found = [
            cost_interval(*_first(arms, _pairs(arms, needs_another_pair)))
            for arms in gates
        ]
        naive = [
            interval(
                *_first(
                    arms, _pairs(arms, lambda on, off: not narrow(interval(on, off)))
                )
            )
            for arms in gates
        ]
        counts = [_pairs(arms, needs_another_pair) for arms in gates]
        more = {
            "median_width_pct": sorted(high - low for low, high in found)[
                len(found) // 2
            ],
            "mean_pairs": sum(counts) / len(counts),
            "share_without_correction": _share(naive, scenario.cost),
        }
        label = f"intervals that hold the cost, {scenario.name}"
        figures.append(
            Figure(
                label,
                "share",
                (_share(found, scenario.cost),),
                GOAL,
                more,
                at_least=True,
            )
        )
    return figures


def _share(found: list[tuple[float, float]], cost: float) -> float:
    return sum(low <= cost <= high for low, high in found) / len(found)


def _pairs(arms: tuple[Paces, Paces], wide: Callable[[Paces, Paces], bool]) -> int:
    """Return after how many pairs a gate run stops."""
    return next(
        (pairs for pairs in range(2, len(arms[0])) if not wide(*_first(arms, pairs))),
        len(arms[0]),
    )


def _first(arms: tuple[Paces, Paces], pairs: int) -> tuple[Paces, Paces]:
    return arms[0][:pairs], arms[1][:pairs]


def _gate(
    generator: random.Random, scenario: Scenario, steps: int
) -> tuple[Paces, Paces]:
    """Paces of the deterministic and of the default runs of one gate run that never stops
    early, in its order."""
    arms: tuple[list[float], list[float]] = ([], [])
    at = scenario.begin(generator)
    order = [
        arm
        for pair in range(scenario.most)
        for arm in ((0, 1) if pair % 2 == 0 else (1, 0))
    ]
    for place, arm in enumerate(order):
        base, times, off = (
            10.0 * (1 + scenario.cost / 100) if arm == 0 else 10.0,
            [],
            0.0,
        )
        for step in range(steps):
            off = 0.5 * off + generator.gauss(0, STEPS * math.sqrt(0.75))
            times.append(base * math.exp(off) * at(place, step / steps))
        arms[arm].append(pace(times))
    return arms


def _each(draw: Callable[[random.Random], float]) -> Callable[[random.Random], Level]:
    """A machine on which each run is slower by a factor of its own."""

    def begin(generator: random.Random) -> Level:
        levels = [math.exp(draw(generator)) for _ in range(2 * PAIRS)]
        return lambda place, _: levels[place]

    return begin


def _normal(scatter: float) -> Callable[[random.Random], Level]:
    return _each(lambda generator: generator.gauss(0, scatter))


def _heavy(scatter: float) -> Callable[[random.Random], Level]:
    """Student's t with three degrees of freedom: one run in some twenty is off by more than three
    times the usual."""
    return _each(
        lambda generator: (
            scatter
            * generator.gauss(0, 1)
            / math.sqrt(generator.gammavariate(1.5, 2) / 3)
        )
    )


def _one_sided(generator: random.Random) -> float:
    """Other work slows one run in four down, and none is ever faster than the machine."""
    return (
        generator.expovariate(1 / 0.08)
        if generator.random() < 0.25
        else abs(generator.gauss(0, 0.01))
    )


def _correlated(generator: random.Random) -> Level:
    """Each run takes 0.7 of the last one's deviation: a machine that warms up, or a neighbour that
    stays."""
    levels, off = [], generator.gauss(0, 0.03)
    for _ in range(2 * PAIRS):
        levels.append(math.exp(off))
        off = 0.7 * off + generator.gauss(0, 0.03 * math.sqrt(1 - 0.7**2))
    return lambda place, _: levels[place]


def _drifting(generator: random.Random) -> Level:
    end, own = generator.uniform(-0.1, 0.1), _normal(0.01)(generator)
    return lambda place, part: (
        own(place, part) * (1.0 + end * (place + part) / (2 * PAIRS))
    )


def _spell(generator: random.Random) -> Level:
    begin, own = generator.uniform(-4, 2 * PAIRS), _normal(0.01)(generator)
    return lambda place, part: (
        own(place, part) * (1.25 if begin <= place + part < begin + 4 else 1.0)
    )


SCENARIOS = (
    Scenario("runs do not scatter", _normal(0.0)),
    Scenario("runs scatter by 1 %, cost 4 %", _normal(0.01), cost=4.0),
    Scenario("runs scatter by 2 %", _normal(0.02)),
    Scenario("runs scatter by 2 %, cost 4 %", _normal(0.02), cost=4.0),
    Scenario("runs scatter by 3 %, cost 4 %", _normal(0.03), cost=4.0),
    Scenario("runs scatter by 5 %", _normal(0.05)),
    Scenario("runs scatter by 2 %, time for 4 pairs", _normal(0.02), most=4),
    Scenario("runs scatter by 2 %, 3 steps each", _normal(0.02), steps=3),
    Scenario("heavy tails, 1 %", _heavy(0.01)),
    Scenario("heavy tails, 2 %, cost 4 %", _heavy(0.02), cost=4.0),
    Scenario("one run in four is slowed down", _each(_one_sided)),
    Scenario("each run like the one before", _correlated),
    Scenario("the machine drifts by up to 10 %", _drifting),
    Scenario("a slow spell", _spell),
)
