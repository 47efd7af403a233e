"""The cost of determinism with a 95 % interval, measured in two ways. Pure.

The figure comes from `alternating` runs, in which the flags change at every step. Steps come in
blocks in which each arm has one turn, in random order. Within a block the difference of the
logarithms of two arms' times is a cost; the figure is the mean of these differences, the fifth at
each end trimmed, with the interval of Tukey and McLaughlin (1963, Sankhya A 25; Yuen 1974,
Biometrika 61): Student's, from the Winsorized scatter. Steps follow one another, but the orders
of two blocks are drawn independently: with either order of two arms as likely as the other, the
products of the differences of two blocks average to zero, whatever a machine does meanwhile. So
the interval holds although neighbouring steps are alike (Fisher 1935: what randomizing is for).

Whole runs with and without the flags are the cross-check, and the result if their 99.5 % interval
excludes the figure or if alternating cannot tell. The time of a run is its pace: the mean step of
the fastest of forty stretches of equal length, since other work on the machine only adds to a
step, for seconds at a time. The time of an arm is the geometric mean of its runs', the figure the
ratio of the arms. The interval is Student's, of the difference of two means of logarithms, with
the scatter between runs estimated from both arms together (Student 1908). Runs come in the order
on, off, off, on, so that a steady drift of the machine cancels in the figure.

`benchmarks/cost_coverage.py` shows how often both intervals hold the true cost.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from statistics import fmean, median, variance
from typing import get_args

from repro_gate.compare.model import Cost, Estimate, GpuState, SpeedChange, TimedArm
from repro_gate.trace.model import Trace

RESOLUTION = 1e-6  # milliseconds, in which the trace states times
# percent; outside of this range a mistake of measurement is likelier. Published: 4 to 30 %, below
# zero now and then, 746 % for one kernel size on an old GPU (Zhuang et al. 2021, arXiv 2106.11872)
PLAUSIBLE = (-50.0, 300.0)
# percentage points to each side, or a quarter of the figure if that is more
NARROW = 1.5
# percentage points: a wider interval that is not narrow has no figure
WIDEST = 30.0
MISSED = 0.05  # how often an interval may miss the true cost
# the same of an interval that ends the measurement early or overrules the other one: at 5 % luck
# would do it as often
STRICT = 0.005
STRETCHES = 40  # of a run, where it has as many timed steps
FEWEST = 3  # With fewer timed steps in a run no figure is given.
# the first two arms of alternating runs; in each other one flag is off
NONE, ALL = 0, 1
TURNS = 12  # of each arm, at least
UNTIMED = 2  # the first blocks of an alternating run, at least: each arm warms up
TRIMMED = 0.2  # of the differences at each end (Wilcox 2012)
BEHIND = 0.1  # the largest share of steps for which the loader may have been behind
CYCLE = 8  # the most steps after which several optimizers take turns anew
SLOW = 5.0  # times the median: such a step compiled, or waited for something
# percent of a step: where the probe takes more, whole runs without digests decide
DIGESTING = 10.0
CLOCK = 0.03  # the share by which the SM clocks of two arms may differ
# the clock of a GPU that is idle, or does not say why it is slow, says nothing about a run
UNTOLD = {"idle", "unknown"}

Runs = Sequence[Sequence[Trace]]  # of one arm
# pace of each run, in milliseconds
Paces = Sequence[float]
StepTimes = Mapping[TimedArm, Paces]
Settings = Mapping[str, object]  # of the flags that alternate, in one arm
Block = Sequence[float]  # the logarithm of the milliseconds of each arm's turn
TOO_SHORT = f"fewer than {TURNS} steps for each arm"
SETS_FLAGS = "the training sets the flags itself"
# a fact of an alternating run -> why its kernels do not follow the flags
FROZEN = {
    "cuda-graph": "a captured CUDA graph keeps the kernels that it was captured with",
    "compiled": "a compiled model keeps the kernels that it was compiled with",
}


def measure_cost(
    on: Runs,
    off: Runs,
    warmup: int,
    blocks: Sequence[Block] | str,
    flags: Sequence[str] = (),
) -> Cost | None:
    """Return the cost from the blocks of alternating runs, or why there are none, and from the
    traces of the deterministic and of the default runs. `flags` are those that were off alone, by
    arm. None if an arm has fewer than two runs, or a run fewer than three timed steps or steps of
    no length."""
    whole = _of_whole_runs(on, off, warmup)
    if whole is None:
        return None
    slow = 0
    if not isinstance(blocks, str):
        kept = usual(blocks)
        slow = len(blocks) - len(kept)
        none = TOO_SHORT if blocks else "the flags did not alternate in any run"
        blocks = none if len(kept) < TURNS else kept
    if isinstance(blocks, str):
        return replace(whole, why=blocks)
    figure = estimate(blocks)
    if not measurable(figure.ci95):
        return replace(
            whole, other=figure, why="the steps that alternate scatter too much"
        )
    low, high = interval(paces(on, warmup), paces(off, warmup), STRICT)
    has_figure = whole.determinism_cost_pct is not None
    if has_figure and not low <= figure.cost_pct <= high:
        why = "their 99.5 % interval excludes the figure of alternating steps"
        return replace(whole, other=figure, why=why)
    step_off = math.exp(_trimmed([block[NONE] for block in blocks])[0])
    shares = [share(blocks, arm, flag) for arm, flag in enumerate(flags, ALL + 1)]
    return _judged(
        replace(
            whole,
            determinism_cost_pct=figure.cost_pct,
            ci95=figure.ci95,
            deterministic_step_ms=step_off * (1 + figure.cost_pct / 100),
            default_step_ms=step_off,
            timed_steps=len(blocks),
            slow_steps=slow,
            # without those that may cost nothing
            flags=tuple(item for item in shares if item.ci95[0] > 0),
            other=Estimate(
                cost_pct=percent(whole.deterministic_step_ms, whole.default_step_ms),
                ci95=whole.ci95,
            ),
            why="",
        )
    )


def estimate(
    blocks: Sequence[Block],
    without: int = NONE,
    flag: str = "",
    missed: float = MISSED,
) -> Estimate:
    """Return how much slower a step is with all flags than in the arm `without`, in percent."""
    differences = [block[ALL] - block[without] for block in blocks]
    figure, half = _trimmed(differences, missed)
    middle, low, high = (
        percent(math.exp(each), 1.0) for each in (figure, figure - half, figure + half)
    )
    return Estimate(cost_pct=middle, ci95=(low, high), flag=flag)


def share(blocks: Sequence[Block], without: int, flag: str) -> Estimate:
    """Return how much of the cost is that of one flag, in percent of a step without flags:
    `without` is the arm in which it is off alone."""
    found = estimate(blocks, without, flag)
    rest = math.exp(_trimmed([block[without] - block[NONE] for block in blocks])[0])
    low, high = found.ci95
    return replace(
        found, cost_pct=found.cost_pct * rest, ci95=(low * rest, high * rest)
    )


def _trimmed(values: Sequence[float], missed: float = MISSED) -> tuple[float, float]:
    """Return the trimmed mean of TURNS or more values, and half the width of its interval."""
    ordered = sorted(values)
    cut = int(len(ordered) * TRIMMED)
    core = ordered[cut : len(ordered) - cut]
    squares = variance([core[0]] * cut + core + [core[-1]] * cut) * (len(ordered) - 1)
    error = math.sqrt(squares / len(core) / (len(core) - 1))
    return fmean(core), student_t(len(core) - 1, missed) * error


def needs_another_run(blocks: Sequence[Block]) -> bool:
    """Return whether the interval of the figure is still too wide. Intervals that are narrow by
    luck miss more often, so the 99.5 % interval must be narrow before the last."""
    blocks = usual(blocks)
    return len(blocks) < TURNS or not narrow(estimate(blocks, missed=STRICT).ci95)


def usual(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks in which no turn took SLOW times the median of its arm, or more."""
    limits = [median(arm) + math.log(SLOW) for arm in zip(*blocks, strict=True)]
    return [block for block in blocks if all(map(operator.lt, block, limits))]


def untimed_blocks(size: int, warmup: int) -> int:
    """Return how many blocks of `size` steps an alternating run begins with that are not timed."""
    return max(UNTIMED, math.ceil(warmup / size))


def blocks_of(
    traces: Sequence[Trace], arms: Sequence[Settings], cycle: int, warmup: int
) -> list[Block] | str:
    """Return the timed blocks of an alternating run, or why there are none. A turn takes `cycle`
    steps. The arm of a step is what its processes have read of the flags."""
    trained = [trace for trace in traces if trace.steps]
    if any("/" in trace.key for trace in trained):
        return "several threads train, and the flags are the process's"
    for trace in trained:
        for fact in FROZEN.keys() & trace.facts:
            return FROZEN[fact]
    steps = list(zip(*(trace.steps for trace in trained), strict=False))
    behind = sum(any(mark.behind for mark in marks) for marks in steps)
    if behind > BEHIND * len(steps):
        return (
            f"all workers of a DataLoader were still at work at {behind} of {len(steps)} steps, so "
            "the loader may set the pace; this figure is of steps that do not wait for it"
        )
    names = arms[ALL].keys()
    readings = [
        [{name: read.get(name) for name in names} for read in trace.settings]
        for trace in trained
    ]
    size = cycle * len(arms)
    blocks: list[Block] = []
    untimed = untimed_blocks(size, warmup)
    for start in range(untimed * size, len(steps) - size + 1, size):
        times: list[list[float]] = [[] for _ in arms]
        for marks in steps[start : start + size]:
            read = [of[mark.flags] for of, mark in zip(readings, marks, strict=True)]
            if read[0] not in arms or any(each != read[0] for each in read):
                return SETS_FLAGS
            times[arms.index(read[0])].append(max(mark.ms for mark in marks))
        if any(len(turn) != cycle for turn in times):
            return SETS_FLAGS
        blocks.append(_logarithms([*map(fmean, times)]))
    return blocks


def cycle_of(traces: Sequence[Trace]) -> int:
    """Return after how many steps the optimizers of a training take turns anew; 0 if they have no
    fixed order."""
    for trace in traces:
        updated = {
            block.step: block.rows
            for block in trace.blocks
            if block.kind == "parameter" and 0 <= block.step < len(trace.steps)
        }
        recorded = sorted(updated)
        changes = any(rows != updated[recorded[0]] for rows in updated.values())
        if changes and recorded[-1] - recorded[0] >= len(recorded):
            return 0  # steps between were not recorded
        if updated:
            most = min(CYCLE, max(len(updated) // 3, 1))
            return next(filter(partial(_repeats, updated), range(1, most + 1)), 0)
    return 1


def _repeats(updated: Mapping[int, object], cycle: int) -> bool:
    return all(updated.get(at + cycle, rows) == rows for at, rows in updated.items())


def _of_whole_runs(on: Runs, off: Runs, warmup: int) -> Cost | None:
    """Return the cost from whole runs; None as in `measure_cost`."""
    paces_on = paces(on, warmup)
    paces_off = paces(off, warmup)
    if not (paces_on and paces_off):
        return None
    step_on = _typical(paces_on)
    step_off = _typical(paces_off)
    figure = percent(step_on, step_off)
    low, high = interval(paces_on, paces_off)
    scatter_on, scatter_off = (
        percent(max(each), min(each)) for each in (paces_on, paces_off)
    )
    timed = [step_times(run, warmup) for run in (*on, *off)]
    peaks_on, peaks_off = ([peak_bytes(run) for run in runs] for runs in (on, off))
    memory_on = max(peaks_on)
    memory_off = max(peaks_off)
    memory_ci95 = None
    # a run has only one peak, so this is the range of the pairs' costs
    if all(peaks_off):
        figures = [*map(percent, peaks_on, peaks_off)]
        memory_ci95 = min(figures), max(figures)
    return _judged(
        Cost(
            determinism_cost_pct=figure if measurable((low, high)) else None,
            ci95=(min(low, figure), max(high, figure)),
            deterministic_step_ms=step_on,
            default_step_ms=step_off,
            timed_steps=sum(len(usual_steps(times)) for times in timed[: len(on)]),
            slow_steps=sum(len(times) - len(usual_steps(times)) for times in timed),
            memory_cost_pct=percent(memory_on, memory_off) if memory_off else None,
            deterministic_peak_bytes=memory_on or None,
            default_peak_bytes=memory_off or None,
            memory_ci95=memory_ci95,
            deterministic_scatter_pct=scatter_on,
            default_scatter_pct=scatter_off,
        )
    )


def _judged(cost: Cost) -> Cost:
    """Return the cost, and why it is suspicious if its figure is beyond belief."""
    least, most = PLAUSIBLE
    figure = cost.determinism_cost_pct
    text = (
        f"outside {least:+.0f} % … {most:+.0f} %: more likely a mistake of measurement (too "
        "few steps, another load on the machine, autotuning inside the timed steps) than the cost "
        "of the flags"
    )
    is_likely = figure is None or least <= figure <= most
    return replace(cost, suspicious=None if is_likely else text)


def speed_changes(now: StepTimes, before: StepTimes) -> tuple[SpeedChange, ...]:
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


def paces(runs: Runs, warmup: int) -> tuple[float, ...]:
    """Return the pace of each run of an arm, in milliseconds. Empty if there are too few runs for a
    cost, or if a run has too few timed steps or steps of zero length."""
    timed = [step_times(run, warmup) for run in runs]
    if len(timed) < 2 or min(map(len, timed)) < FEWEST:
        return ()
    found = tuple(pace(usual_steps(times)) for times in timed)
    return found if min(found) > 0 else ()


def pace(times: Sequence[float]) -> float:
    """Return the mean step time of the fastest stretch of a run, of one step at least."""
    length = max(1, len(times) // STRETCHES)
    starts = range(0, len(times) - length + 1, length)
    return min(fmean(times[start : start + length]) for start in starts)


def interval(on: Paces, off: Paces, missed: float = MISSED) -> tuple[float, float]:
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
    error = math.sqrt(sum(squares) / freedom * (1 / len(on) + 1 / len(off)))
    figure = means[0] - means[1]
    half = student_t(freedom, missed) * error
    return percent(math.exp(figure - half), 1.0), percent(math.exp(figure + half), 1.0)


def narrow(ends: tuple[float, float]) -> bool:
    """Return whether an interval, in percent, is narrow enough."""
    low, high = ends
    figure = math.sqrt((100.0 + low) * (100.0 + high)) - 100.0
    return (high - low) / 2 <= max(NARROW, abs(figure) / 4)


def measurable(ends: tuple[float, float]) -> bool:
    """Return whether an interval, in percent, is narrow enough for a figure."""
    return ends[1] - ends[0] <= WIDEST or narrow(ends)


@cache
def student_t(freedom: int, missed: float = MISSED) -> float:
    """Return the two-sided quantile of Student's t with two or more degrees of freedom, which is
    exceeded in `missed` of cases."""
    millionths = bisect(
        range(10**9), 1 - missed, key=lambda place: _share_within(place / 1e6, freedom)
    )
    return millionths / 1e6


def _share_within(t: float, freedom: int) -> float:
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


def step_times(traces: Sequence[Trace], warmup: int) -> list[float]:
    """Return the milliseconds of each step after the warm-up. Of several processes the slowest
    counts, since the others wait for it."""
    trained = [trace.steps for trace in traces if trace.steps]
    steps = zip(*trained, strict=False)
    return [max(mark.ms for mark in marks) for marks in steps][warmup:]


def usual_steps(times: Sequence[float]) -> list[float]:
    """Return the steps that took less than SLOW times their median."""
    limit = max(SLOW * median(times), RESOLUTION)
    return [each for each in times if each < limit]


def probe_pct(runs: Runs, warmup: int) -> float:
    """Return how long the probe took at the timed steps of runs, in percent of their time."""
    marks = [mark for run in runs for trace in run for mark in trace.steps[warmup:]]
    steps = sum(mark.ms for mark in marks)
    return 100 * sum(mark.probe_ms for mark in marks) / max(steps, RESOLUTION)


def gpu_differences(states: Sequence[GpuState]) -> Iterator[str]:
    """Yield what slowed a GPU down at the end of the runs of one arm alone, and SM clocks that
    differ between the arms."""
    for gpu in dict.fromkeys(state.gpu for state in states):
        ends = [
            [it for it in states if (it.gpu, it.arm, it.when) == (gpu, arm, "after")]
            for arm in get_args(TimedArm)
        ]
        if not all(ends):
            continue
        on, off = ({reason for it in arm for reason in it.slowed} for arm in ends)
        for reason in sorted((on ^ off) - UNTOLD):
            which = "with" if reason in on else "without"
            yield f"{gpu} was slowed down after runs {which} the flags alone: {reason}"
        clocks = [
            [it.sm_mhz for it in arm if it.sm_mhz and UNTOLD.isdisjoint(it.slowed)]
            for arm in ends
        ]
        if all(clocks):
            mean, other = map(fmean, clocks)
            if abs(mean / other - 1) > CLOCK:
                yield (
                    f"the SM clock of {gpu} was {mean:.0f} MHz after runs with the flags, "
                    f"{other:.0f} MHz after runs without"
                )


def peak_bytes(traces: Sequence[Trace]) -> int:
    """Return the largest peak memory of any process of a run, in bytes."""
    return max((mark.peak_bytes for trace in traces for mark in trace.steps), default=0)


def percent(on: float, off: float) -> float:
    """Return how much more `on` is than `off`, in percent of `off`."""
    return (on / off - 1.0) * 100.0
