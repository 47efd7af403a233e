"""The cost of determinism, from the step times of interleaved runs, with a 95 % bootstrap interval. Pure.

The time of an arm is the geometric mean of its runs' median step times, and the figure is the ratio of the two arms: the same as the
geometric mean of the ratios within each pair of neighbouring runs, so that whatever slows a whole pair down cancels. The interval resamples
what may vary: the pairs, and within each run moving blocks of steps (times of neighbouring steps depend on each other), and takes the 2.5th
and 97.5th percentile of the figure over 1,000 resamples (Efron and Tibshirani 1993, chapters 8 and 13; Künsch 1989 for moving blocks). It
is seeded, so one set of times gives one interval. Where runs as a whole scatter more than steps do, two pairs say little, and the interval
holds the true cost less often than 95 times in 100 (`tests/compare/test_cost.py` has the counts).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from statistics import fmean, median

from repro_gate.compare.model import Cost
from repro_gate.compare.traces import processes
from repro_gate.trace.model import Trace

RESAMPLES = 1000
MOST_STEPS = 2000  # of one run that enter the bootstrap, spread evenly over it: more tell nothing more
RESOLUTION = 1e-6  # milliseconds, in which the trace states times
PLAUSIBLE = (-50.0, 300.0)  # percent; outside, a mistake of measurement is likelier (shared/facts: what determinism costs)
WIDEST = math.log(1.25 / 0.75)  # ratio of the ends of the widest interval that a figure is told for
ENOUGH = 20  # timed steps of a run from which the interval is taken at its word
MOST_NEEDED = 1_000_000  # steps: more is the same advice
FEWEST = 3  # timed steps of a run, below which no figure is given

Pair = tuple[Sequence[float], Sequence[float]]  # step times of a deterministic run and of its default run, in milliseconds


def measure_cost(pairs: Sequence[tuple[Sequence[Trace], Sequence[Trace]]], warmup: int) -> Cost | None:
    """The cost from pairs of (deterministic run, default run). None where a run has fewer than three timed steps, or steps of no length."""
    times = [(step_times(first, warmup), step_times(second, warmup)) for first, second in pairs]
    if not times or any(len(arm) < FEWEST or median(arm) <= 0 for pair in times for arm in pair):
        return None
    on, off = (math.exp(fmean(math.log(_typical(pair[arm])) for pair in times)) for arm in (0, 1))
    figure = percent(on, off)
    low, high = interval(times)
    bounds = (min(low, figure), max(high, figure))
    peaks = [(peak_bytes(first), peak_bytes(second)) for first, second in pairs]
    memory_on, memory_off = (max(pair[arm] for pair in peaks) for arm in (0, 1))
    return Cost(
        determinism_cost_pct=figure,
        ci95=bounds,
        deterministic_step_ms=on,
        default_step_ms=off,
        timed_steps=sum(len(pair[0]) for pair in times),
        memory_cost_pct=percent(memory_on, memory_off) if memory_off else None,
        deterministic_peak_bytes=memory_on or None,
        default_peak_bytes=memory_off or None,
        suspicious=_suspicion(figure),
        memory_ci95=_memory_interval(peaks),
        steps_needed=_steps_needed(bounds, min(len(arm) for pair in times for arm in pair), warmup),
    )


def _steps_needed(bounds: tuple[float, float], timed: int, warmup: int) -> int | None:
    """None where the interval is narrow enough for a figure, else about how many steps of a run would make it so.

    Narrow enough is no wider than from -25 % to +25 %, as the ratio of its ends; in proportion narrower below ENOUGH timed steps, whose
    scatter says little about itself. An interval shrinks with the square root of the steps.
    """
    low, high = (1.0 + bound / 100.0 for bound in bounds)
    width = math.log(high / low) / WIDEST if low > 0 else math.inf
    if width <= min(1.0, timed / ENOUGH):
        return None
    steps = warmup + min(max(float(ENOUGH), timed * width**2), float(MOST_NEEDED))
    size = int(10 ** max(math.floor(math.log10(steps)) - 1, 0))
    return math.ceil(steps / size) * size  # two digits: it is an estimate


def step_times(traces: Sequence[Trace], warmup: int) -> list[float]:
    """Milliseconds of each step after the warm-up; of several processes the slowest, since steps wait for it."""
    runs = [[mark.ms for mark in trace.steps] for trace in processes(traces).values() if trace.steps]
    if not runs:
        return []
    length = min(len(run) for run in runs)
    return [max(run[step] for run in runs) for step in range(min(warmup, length), length)]


def peak_bytes(traces: Sequence[Trace]) -> int:
    """The largest peak memory of any process of a run, in bytes."""
    return max((mark.peak_bytes for trace in traces for mark in trace.steps), default=0)


def _memory_interval(peaks: Sequence[tuple[int, int]]) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of the memory cost, in percent, over every way to draw as many pairs of runs as there are: a run has one
    peak, so with two pairs it is the range of what the pairs say."""
    if not all(off for _, off in peaks):
        return None
    draws = itertools.product(peaks, repeat=len(peaks)) if len(peaks) <= 4 else [(pair,) for pair in peaks]
    figures = sorted(percent(max(on for on, _ in drawn), max(off for _, off in drawn)) for drawn in draws)
    return figures[int(0.025 * (len(figures) - 1))], figures[math.ceil(0.975 * (len(figures) - 1))]


def interval(times: Sequence[Pair]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the cost, in percent."""
    generator = random.Random(0)
    short = [tuple(arm[:: -(-len(arm) // MOST_STEPS)] for arm in pair) for pair in times]
    rounds = RESAMPLES if max(len(arm) for pair in short for arm in pair) <= 500 else RESAMPLES // 4
    figures = []
    for _ in range(rounds):
        drawn = [[_typical(_blocks(arm, generator)) for arm in generator.choice(short)] for _ in short]
        figures.append(percent(math.exp(fmean(math.log(on / off) for on, off in drawn)), 1.0))
    figures.sort()
    return figures[int(0.025 * (len(figures) - 1))], figures[math.ceil(0.975 * (len(figures) - 1))]


def percent(on: float, off: float) -> float:
    """How much more `on` is than `off`, in percent of `off`."""
    return (on / off - 1.0) * 100.0


def _typical(times: Sequence[float]) -> float:
    """The median, in milliseconds, and no less than what the clock can tell from nothing."""
    return max(median(times), RESOLUTION)


def _blocks(times: Sequence[float], generator: random.Random) -> list[float]:
    """A resample of one run's steps: blocks of length n**(1/3) from random places (Künsch's rate), cut to the run's length."""
    count = len(times)
    length = max(1, round(count ** (1 / 3)))
    drawn: list[float] = []
    while len(drawn) < count:
        start = generator.randrange(count - length + 1)
        drawn += times[start : start + length]
    return drawn[:count]


def _suspicion(figure: float) -> str | None:
    if PLAUSIBLE[0] <= figure <= PLAUSIBLE[1]:
        return None
    return (
        f"outside {PLAUSIBLE[0]:+.0f} % … {PLAUSIBLE[1]:+.0f} %: more likely a mistake of measurement (too few steps, another load on the "
        "machine, autotuning inside the timed steps) than the cost of the flags"
    )
