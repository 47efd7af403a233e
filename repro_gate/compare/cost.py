"""The cost of determinism, from the step times of interleaved runs, with a 95 % interval. Pure.

The time of a run is its median step time, that of an arm the geometric mean of its runs', and the figure is the ratio of the two arms.
The interval is Student's, of the difference of two means of logarithms, with the scatter between runs estimated from both arms together
(Student 1908; without Welch's correction: both arms run the same program on the same machine). It holds whatever makes runs scatter, the
machine's other load included, as far as runs scatter alike: with two runs of each arm, two degrees of freedom, it is 4.3 standard errors
wide to each side, with ten it is 2.1. Runs come in the order on, off, off, on, so that a steady drift of the machine cancels in the figure.
`benchmarks/cost_coverage.py` shows how often it holds the true cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, median

from repro_gate.compare.model import Cost, SpeedChange, TimedArm
from repro_gate.compare.traces import processes
from repro_gate.trace.model import Trace

RESOLUTION = 1e-6  # milliseconds, in which the trace states times
PLAUSIBLE = (-50.0, 300.0)  # percent; outside, a mistake of measurement is likelier (shared/facts: what determinism costs)
WIDEST = math.log(1.25 / 0.75)  # ratio of the ends of the widest interval that a figure is told for
MOST_PAIRS = 20  # of runs, as the spec allows
FEWEST = 3  # timed steps of a run, below which no figure is given

_T95 = {2: 4.302653, 4: 2.776445}  # two-sided 95 % quantiles of Student's t, where the expansion below is too far off

StepTimes = Mapping[TimedArm, Sequence[float]]
Runs = Sequence[Sequence[float]]  # step times of each run of one arm, in milliseconds


def measure_cost(on: Sequence[Sequence[Trace]], off: Sequence[Sequence[Trace]], warmup: int) -> Cost | None:
    """The cost from the traces of the deterministic runs and of the default runs. None where an arm has fewer than two runs, or a run fewer
    than three timed steps or steps of no length."""
    arms = [[step_times(run, warmup) for run in runs] for runs in (on, off)]
    if not _enough(arms):
        return None
    typical = [math.exp(fmean(map(_logarithm, runs))) for runs in arms]
    figure, scatter = percent(*typical), _scatter(arms[0], arms[1])
    low, high = interval(arms[0], arms[1])
    peaks = [[peak_bytes(run) for run in runs] for runs in (on, off)]
    memory_on, memory_off = max(peaks[0]), max(peaks[1])
    told = 2 * _half(arms[0], arms[1]) <= WIDEST
    return Cost(
        determinism_cost_pct=figure,
        ci95=(min(low, figure), max(high, figure)),
        deterministic_step_ms=typical[0],
        default_step_ms=typical[1],
        timed_steps=sum(map(len, arms[0])),
        memory_cost_pct=percent(memory_on, memory_off) if memory_off else None,
        deterministic_peak_bytes=memory_on or None,
        default_peak_bytes=memory_off or None,
        suspicious=_suspicion(figure),
        memory_ci95=_memory_interval(list(zip(*peaks, strict=False))),
        pairs=min(map(len, arms)),
        run_scatter_pct=percent(math.exp(scatter), 1.0),
        told=told,
        pairs_needed=None if told else _pairs_for(scatter, WIDEST / 2),
    )


def speed_change(arm: TimedArm, now: Sequence[float], before: Sequence[float]) -> SpeedChange | None:
    """How much slower a step of one arm is now, from the median step time of each run in milliseconds; None where a side has fewer than
    two. The two sides ran one after the other, so a drift of the machine between them is part of the figure."""
    if min(len(now), len(before)) < 2:
        return None
    sides = [[(median_ms,) for median_ms in side] for side in (now, before)]
    figure = percent(*(math.exp(fmean(map(_logarithm, runs))) for runs in sides))
    return SpeedChange(arm=arm, slower_pct=figure, ci95=interval(sides[0], sides[1]), runs=min(map(len, sides)))


def speed_changes(now: StepTimes, before: StepTimes) -> tuple[SpeedChange, ...]:
    """`speed_change` of each arm that both sides timed: the median step time of each run in milliseconds, by arm."""
    found = (speed_change(arm, now[arm], before[arm]) for arm in now if arm in before)
    return tuple(item for item in found if item is not None)


def run_medians(runs: Sequence[Sequence[Trace]], warmup: int) -> tuple[float, ...]:
    """The median step time of each run of an arm, in milliseconds; none where a run has too few timed steps for a cost."""
    timed = [step_times(run, warmup) for run in runs]
    return tuple(median(times) for times in timed) if timed and _enough([timed, timed]) else ()


def _enough(sides: Sequence[Runs]) -> bool:
    return all(len(runs) > 1 and all(len(times) >= FEWEST and median(times) > 0 for times in runs) for runs in sides)


def interval(on: Runs, off: Runs) -> tuple[float, float]:
    """The 95 % interval of the cost, in percent, from two runs or more of each arm."""
    figure = fmean(map(_logarithm, on)) - fmean(map(_logarithm, off))
    half = _half(on, off)
    return percent(math.exp(figure - half), 1.0), percent(math.exp(figure + half), 1.0)


def _half(on: Runs, off: Runs) -> float:
    """From the middle of the interval to its ends, in logarithms."""
    return student_t(len(on) + len(off) - 2) * _scatter(on, off) * math.sqrt(1 / len(on) + 1 / len(off))


def pairs_to_decide(cost: Cost, budget: float) -> int | None:
    """About how many pairs of runs would show on which side of a budget, in percent, the cost lies; None where more than MOST_PAIRS."""
    if min(cost.run_scatter_pct, cost.determinism_cost_pct, budget) <= -100.0:  # a report's figures may be anyone's
        return None
    scatter, figure, most = (math.log1p(value / 100.0) for value in (cost.run_scatter_pct, cost.determinism_cost_pct, budget))
    return _pairs_for(scatter, abs(figure - most))


def _pairs_for(scatter: float, half: float) -> int | None:
    """The fewest pairs of runs whose interval is no wider than `half` to each side; None where that takes more than MOST_PAIRS."""
    fitting = (count for count in range(2, MOST_PAIRS + 1) if student_t(2 * count - 2) * scatter * math.sqrt(2 / count) <= half)
    return next(fitting, None)


def student_t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t with 2, or 4 or more, degrees of freedom: from 6 on to within 0.004 (Abramowitz and Stegun
    1964, 26.7.5)."""
    if freedom in _T95:
        return _T95[freedom]
    z = NormalDist().inv_cdf(0.975)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / float(freedom) ** (power + 1) for power, term in enumerate(terms))


def _scatter(on: Runs, off: Runs) -> float:
    """The standard deviation of the logarithms of runs about the mean of their arm, pooled over both."""
    logs = [[_logarithm(times) for times in runs] for runs in (on, off)]
    squares = sum((value - fmean(arm)) ** 2 for arm in logs for value in arm)
    return math.sqrt(squares / (len(on) + len(off) - 2))


def _logarithm(times: Sequence[float]) -> float:
    """Of the median step time, which is no less than what the clock can tell from nothing."""
    return math.log(max(median(times), RESOLUTION))


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


def percent(on: float, off: float) -> float:
    """How much more `on` is than `off`, in percent of `off`."""
    return (on / off - 1.0) * 100.0


def _suspicion(figure: float) -> str | None:
    if PLAUSIBLE[0] <= figure <= PLAUSIBLE[1]:
        return None
    return (
        f"outside {PLAUSIBLE[0]:+.0f} % … {PLAUSIBLE[1]:+.0f} %: more likely a mistake of measurement (too few steps, another load on the "
        "machine, autotuning inside the timed steps) than the cost of the flags"
    )
