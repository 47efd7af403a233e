"""How often the intervals of the cost hold the true cost, in simulated gate runs that stop as the
gate does: the promise, put to the test.

Each gate run does an alternating run of three arms, and up to two more until `compare.cost` finds
the interval narrow enough. Steps scatter by 5 % and follow one another (each takes half of the last
one's deviation) on machines that drift, are kept busy by a neighbour for a part of the time, or
stall now and then; and in trainings of which every tenth step saves a checkpoint. Beside each
figure stands the share of whole runs' intervals, of two pairs, that hold the cost if runs scatter
by 3.7 % as on two cores, and how wide these are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.figure import Figure
from repro_gate.compare.cost import (
    STRICT,
    UNTIMED,
    Block,
    estimate,
    interval,
    needs_another_run,
    usual,
)
from repro_gate.runs.arms import ALTERNATING_RUNS

GOAL = 0.93
ARMS = 3
RUN_SCATTER = 0.037


@dataclass(frozen=True)
class Settings:
    """Gate runs of each scenario, and steps of each alternating run."""

    gates: int = 4_000
    steps: int = 80


QUICK = Settings(gates=50)
# how much longer than usual a step takes on the machine of one gate run, as a logarithm
Machine = Callable[[int], float]


def _quiet(_: random.Random) -> Machine:
    return lambda _: 0.0


@dataclass(frozen=True)
class Scenario:
    """A machine, and the true cost in percent. `follows` is the part of a step's deviation that the
    next one takes, `scatter` the standard deviation of steps."""

    name: str
    cost: float = 5.0
    begin: Callable[[random.Random], Machine] = _quiet
    scatter: float = 0.05
    follows: float = 0.5
    steps: int | None = None  # of an alternating run


def measure(settings: Settings, scenarios: Sequence[Scenario] = ()) -> list[Figure]:
    """For each scenario: the share of intervals that hold the cost, how wide they are, and how many
    alternating runs they took."""
    figures = []
    for scenario in scenarios or SCENARIOS:
        generator = random.Random(scenario.name)
        found, runs, whole = [], 0, []
        steps = scenario.steps or settings.steps
        for _ in range(settings.gates):
            blocks: list[Block] = []
            for _ in range(ALTERNATING_RUNS):
                if not blocks or needs_another_run(blocks):
                    blocks += alternate(generator, scenario, steps)
                    runs += 1
            on, off = (
                [level * generator.lognormvariate(0, RUN_SCATTER) for _ in range(2)]
                for level in (1 + scenario.cost / 100, 1.0)
            )
            whole.append(interval(on, off))
            figure = estimate(usual(blocks))
            low, high = interval(on, off, STRICT)
            is_excluded = not low <= figure.cost_pct <= high
            found.append(whole[-1] if is_excluded else figure.ci95)
        more = {
            "median_width_pct": _width(found),
            "mean_runs": runs / settings.gates,
            "share_of_whole_runs": _share(whole, scenario.cost),
            "median_width_of_whole_runs_pct": _width(whole),
        }
        label = f"intervals that hold the cost, {scenario.name}"
        share = (_share(found, scenario.cost),)
        figures.append(Figure(label, "share", share, GOAL, more, at_least=True))
    return figures


def alternate(generator: random.Random, scenario: Scenario, steps: int) -> list[Block]:
    """Return the timed blocks of one alternating run of this many steps."""
    slower = math.log(1 + scenario.cost / 100)
    costs = [0.0, slower, slower * 3 / 4]
    machine = scenario.begin(generator)
    own = scenario.scatter * math.sqrt(1 - scenario.follows**2)
    deviation = generator.gauss(0, scenario.scatter)
    blocks: list[Block] = []
    for start in range(0, steps - ARMS + 1, ARMS):
        block = [0.0] * ARMS
        for place, arm in enumerate(generator.sample(range(ARMS), ARMS)):
            deviation = scenario.follows * deviation + generator.gauss(0, own)
            block[arm] = costs[arm] + deviation + machine(start + place)
        blocks.append(block)
    return blocks[UNTIMED:]


def _share(found: Sequence[tuple[float, float]], cost: float) -> float:
    return sum(low <= cost <= high for low, high in found) / len(found)


def _width(found: Sequence[tuple[float, float]]) -> float:
    return median(high - low for low, high in found)


def _drifting(generator: random.Random) -> Machine:
    end = generator.uniform(-0.2, 0.2)
    return lambda step: end * step / 80


def _busy(generator: random.Random) -> Machine:
    """A neighbour that comes and goes, and makes a step up to twice as long."""
    levels, busy = [], False
    for _ in range(1_000):
        busy = busy != (generator.random() < 0.1)
        levels.append(generator.uniform(0.1, 0.7) if busy else 0.0)
    return levels.__getitem__


def _stalls(generator: random.Random) -> Machine:
    return lambda _: generator.expovariate(1) if generator.random() < 0.05 else 0.0


def _saving(_: random.Random) -> Machine:
    return lambda step: 0.7 if step % 10 == 9 else 0.0


SCENARIOS = (
    *(Scenario(f"cost {cost:g} %", cost) for cost in (0.0, 2.0, 5.0, 20.0)),
    Scenario("steps scatter by 1 %", scatter=0.01),
    Scenario("steps scatter by 3 %", scatter=0.03),
    Scenario("steps scatter by 20 %", scatter=0.2),
    Scenario("steps do not follow one another", follows=0.0),
    Scenario("steps hardly leave the last one's time", follows=0.95),
    Scenario("each step makes up for the last one", follows=-0.7),
    Scenario("the machine drifts by up to 20 %", begin=_drifting),
    Scenario("a busy neighbour", begin=_busy),
    Scenario("one step in twenty stalls", begin=_stalls),
    Scenario("every tenth step saves", begin=_saving),
    Scenario("the fewest steps", steps=18),
)
