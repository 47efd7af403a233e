"""The cost of determinism, from the step times of interleaved runs, with a 95 % interval. Pure.

The time of a run is its pace: the mean step of the fastest of forty stretches of equal length.
Other work on the machine only ever adds to a step, for seconds at a time, so the fastest stretch
scatters less between runs than the median step does; and in a long run it holds every kind of step
where several optimizers take turns. The time of an arm is the geometric mean of its runs', the
figure the ratio of the arms. The interval is Student's, of the difference of two means of
logarithms, with the scatter between runs estimated from both arms together (Student 1908; without
Welch's correction: both arms run the same program on the same machine). It holds whatever makes
runs scatter, the machine's other load included, as far as runs scatter alike: with two runs of each
arm, two degrees of freedom, it is 4.3 standard errors wide to each side, with six it is 2.2. Runs
come in the order on, off, off, on, so that a steady drift of the machine cancels in the figure.

Pairs of runs are added until the interval is narrow. Whoever stops at the first narrow interval
prefers those that are narrow by luck: with six pairs at most, 95 % intervals would hold the true
cost in 90 % of cases. So the runs end early only where even the 99 % interval is narrow, and that
one is reported; where they end for another reason (`cost.pairs`, no time left), the ordinary 95 %
interval is. Strict looks on the way and an ordinary one at the end: the rule of Haybittle (1971)
and Peto et al. (1976), whose looks are stricter still. `benchmarks/cost_coverage.py` shows how
often the interval holds the true cost under this very rule.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from statistics import fmean

from repro_gate.compare.model import Cost, SpeedChange, TimedArm
from repro_gate.trace.model import Trace

RESOLUTION = 1e-6  # milliseconds, in which the trace states times
# percent; outside of this range a mistake of measurement is likelier (shared/facts: what
# determinism costs)
PLAUSIBLE = (-50.0, 300.0)
# percentage points to each side, or a quarter of the figure if that is more
NARROW = 3.0
# how often an interval may miss the true cost: at the last look, and at each earlier look
MISSED = 0.05
MISSED_EARLY = 0.01
STRETCHES = 40  # of a run, where it has as many timed steps
FEWEST = 3  # With fewer timed steps in a run no figure is given.

Runs = Sequence[Sequence[Trace]]  # of one arm
# pace of each run, in milliseconds
Paces = Sequence[float]
StepTimes = Mapping[TimedArm, Paces]


def measure_cost(
    on: Runs,
    off: Runs,
    warmup: int,
) -> Cost | None:
    """Return the cost from the traces of the deterministic runs and of the default runs. None if
    an arm has fewer than two runs, or a run fewer than three timed steps or steps of no length."""
    paces_on = paces(on, warmup)
    paces_off = paces(off, warmup)
    if not (paces_on and paces_off):
        return None
    step_on = _typical(paces_on)
    step_off = _typical(paces_off)
    figure = percent(step_on, step_off)
    low, high = cost_interval(paces_on, paces_off)
    least, most = PLAUSIBLE
    peaks_on, peaks_off = ([peak_bytes(run) for run in runs] for runs in (on, off))
    memory_on = max(peaks_on)
    memory_off = max(peaks_off)
    memory_ci95 = None
    if all(
        peaks_off
    ):  # A run has only one peak, so this is the range of the pairs' costs.
        figures = [*map(percent, peaks_on, peaks_off)]
        memory_ci95 = min(figures), max(figures)
    return Cost(
        determinism_cost_pct=figure,
        ci95=(min(low, figure), max(high, figure)),
        deterministic_step_ms=step_on,
        default_step_ms=step_off,
        timed_steps=sum(len(step_times(run, warmup)) for run in on),
        memory_cost_pct=percent(memory_on, memory_off) if memory_off else None,
        deterministic_peak_bytes=memory_on or None,
        default_peak_bytes=memory_off or None,
        suspicious=None
        if least <= figure <= most
        else f"outside {least:+.0f} % … {most:+.0f} %: more likely a mistake of measurement (too "
        "few steps, another load on the machine, autotuning inside the timed steps) than the cost "
        "of the flags",
        memory_ci95=memory_ci95,
        pairs=min(len(on), len(off)),
    )


def needs_more_runs(
    on: Runs,
    off: Runs,
    warmup: int,
) -> bool:
    """Return whether the interval of the cost is still too wide. False if these runs are too short
    for a cost, since further runs would be too short as well."""
    arms = paces(on, warmup), paces(off, warmup)
    return all(arms) and needs_another_pair(*arms)


def speed_changes(
    now: StepTimes,
    before: StepTimes,
) -> tuple[SpeedChange, ...]:
    """Return how much slower a step is now, for each arm that both sides timed at least twice. The
    sides ran one after the other, so the figure contains a drift of the machine between them."""
    return tuple(
        SpeedChange(
            arm=arm,
            slower_pct=percent(_typical(paces_now), _typical(before[arm])),
            ci95=interval(paces_now, before[arm]),
            runs=runs,
        )
        for arm, paces_now in now.items()
        if (runs := min(len(paces_now), len(before.get(arm, ())))) > 1
    )


def paces(
    runs: Runs,
    warmup: int,
) -> tuple[float, ...]:
    """Return the pace of each run of an arm, in milliseconds. Empty if there are too few runs for a
    cost, or if a run has too few timed steps or steps of zero length."""
    timed = [step_times(run, warmup) for run in runs]
    if len(timed) < 2 or min(map(len, timed)) < FEWEST:
        return ()
    found = tuple(map(pace, timed))
    return found if min(found) > 0 else ()


def pace(times: Sequence[float]) -> float:
    """Return the mean step time of the fastest stretch of a run, of one step at least."""
    length = max(1, len(times) // STRETCHES)
    starts = range(0, len(times) - length + 1, length)
    return min(fmean(times[start : start + length]) for start in starts)


def interval(
    on: Paces,
    off: Paces,
    missed: float = MISSED,
) -> tuple[float, float]:
    """Return the interval of the cost, in percent, from at least two runs of each arm. The true
    cost is outside of it in a share `missed` of cases."""
    freedom = len(on) + len(off) - 2
    logs = _logarithms(on), _logarithms(off)
    means = [*map(fmean, logs)]
    # the variance of runs around the mean of their arm, pooled over both arms
    squares = [
        (each - mean) ** 2
        for arm, mean in zip(logs, means, strict=True)
        for each in arm
    ]
    error = math.sqrt(sum(squares) / freedom) * math.sqrt(1 / len(on) + 1 / len(off))
    figure = means[0] - means[1]
    half = student_t(freedom, missed) * error
    return percent(math.exp(figure - half), 1.0), percent(math.exp(figure + half), 1.0)


def cost_interval(
    on: Paces,
    off: Paces,
) -> tuple[float, float]:
    """Return the interval to report: the strict one if it was narrow enough to end the runs, else
    the 95 % one."""
    missed = MISSED if needs_another_pair(on, off) else MISSED_EARLY
    return interval(on, off, missed)


def needs_another_pair(
    on: Paces,
    off: Paces,
) -> bool:
    """Return whether the strict interval is still too wide."""
    return not narrow(interval(on, off, MISSED_EARLY))


def narrow(ends: tuple[float, float]) -> bool:
    """Return whether an interval, in percent, is narrow enough."""
    low, high = ends
    figure = math.sqrt((100.0 + low) * (100.0 + high)) - 100.0
    return (high - low) / 2 <= max(NARROW, abs(figure) / 4)


@functools.cache
def student_t(
    freedom: int,
    missed: float = MISSED,
) -> float:
    """Return the two-sided quantile of Student's t with two or more degrees of freedom, which is
    exceeded in `missed` of cases."""
    millionths = bisect(
        range(10**9), 1 - missed, key=lambda place: _share_within(place / 1e6, freedom)
    )
    return millionths / 1e6


def _share_within(
    t: float,
    freedom: int,
) -> float:
    """Return the share of Student's distribution between -t and t (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    share = math.sin(angle) * total
    return (angle + share) * 2 / math.pi if odd else share


def _typical(paces: Paces) -> float:
    """Return the geometric mean of the paces of an arm's runs."""
    return math.exp(fmean(_logarithms(paces)))


def _logarithms(paces: Paces) -> list[float]:
    """Return the logarithms of the paces. A pace below the clock's resolution counts as the
    resolution."""
    return [math.log(max(each, RESOLUTION)) for each in paces]


def step_times(
    traces: Sequence[Trace],
    warmup: int,
) -> list[float]:
    """Return the milliseconds of each step after the warm-up. Of several processes the slowest
    counts, since the others wait for it."""
    trained = [trace.steps for trace in traces if trace.steps]
    steps = zip(*trained, strict=False)
    return [max(mark.ms for mark in marks) for marks in steps][warmup:]


def peak_bytes(traces: Sequence[Trace]) -> int:
    """Return the largest peak memory of any process of a run, in bytes."""
    return max((mark.peak_bytes for trace in traces for mark in trace.steps), default=0)


def percent(
    on: float,
    off: float,
) -> float:
    """Return how much more `on` is than `off`, in percent of `off`."""
    return (on / off - 1.0) * 100.0
