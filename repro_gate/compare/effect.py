"""Measures what a change of a training does to a metric, from runs of both sides that are paired by
seed. Pure.

The interval is Student's of the paired differences (1908). With a few seeds it misses too often
where the differences are skewed: that of 99.2 % holds what 95 % promises, down to exponential
differences. Looks before the last seed use 99.99 %, so that the last hardly pays for them
(Haybittle 1971, Peto et al. 1976). Both levels were found by simulation: `benchmarks/effect.py`
shows what they cover.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from statistics import StatisticsError, correlation, fmean, stdev
from typing import Annotated

from repro_gate.compare.cost import student_t
from repro_gate.compare.model import Count, Interval, Number, about, one_of, reported

FEWEST = 3  # pairs of which an interval can be given
MISSED = 0.008  # by the last interval, if differences are normal
MISSED_EARLY = 0.0001  # by one that may end the adding of seeds
UNSHOWN = 0.2  # how often an effect is not shown by the seeds that are needed
LARGEST = 1e50  # a value of which squares can still be multiplied
_MOST_NEEDED = 1_000  # seeds; more is no advice
RESULTS = ("better", "worse", "none-shown", "")

Values = Mapping[int, float]  # of a metric, by seed


@reported
class Effect:
    """What a change does to one metric.

    metric: Its name. Untrusted text.
    seeds: Pairs of runs that entered.
    difference: Mean of the change's value minus that of the base; null where there is no figure.
    ci95: 95 % interval of `difference`: low, high; null where there is none.
    spread: Standard deviation of the base over seeds.
    correlation: Of the two sides over seeds; null where a side has one value only.
    smallest: The smallest effect that matters, as the spec has it; 0: any.
    needed: Seeds that would show, four times in five, an effect of `smallest`, or as large as
        `difference`; null where that is none, or 1,000 or more.
    beyond: Whether the whole interval is farther from zero than `smallest`.
    why: Why there is no figure, or a doubt. May be empty.
    """

    metric: str
    seeds: Count
    difference: Number | None = None
    ci95: Interval | None = None
    spread: Number | None = None
    correlation: Number | None = None
    smallest: Number = 0.0
    needed: Count | None = None
    beyond: bool = False
    result: Annotated[str, about("Empty: there is no figure.", **one_of(RESULTS))] = ""
    why: str = ""


def effect_of(
    metric: str,
    base: Values,
    change: Values,
    *,
    higher_is_better: bool = False,
    smallest: float = 0.0,
    last: bool = True,
) -> Effect:
    """Return the effect on a metric, by the seeds that both sides have. `last`: no seed is added
    after these."""
    seeds = sorted(base.keys() & change.keys())
    found = Effect(metric=metric, seeds=len(seeds), smallest=smallest)
    lost = sorted(
        f"{side} has {values[seed]:g} with seed {seed}"
        for side, values in (("the base", base), ("the change", change))
        for seed in seeds
        if not abs(values[seed]) <= LARGEST  # nan, too
    )
    if lost:
        return replace(found, why=f"no figure: {lost[0]}")
    if not seeds:
        return replace(found, why="the two sides have no seed in common")
    if len(seeds) < FEWEST:
        return replace(
            found, why=f"{FEWEST} seeds of both sides are the fewest for an interval"
        )
    ours = [base[seed] for seed in seeds]
    theirs = [change[seed] for seed in seeds]
    differences = [b - a for a, b in zip(ours, theirs, strict=True)]
    middle = fmean(differences)
    scatter = stdev(differences)
    half = student_t(len(seeds) - 1, MISSED if last else MISSED_EARLY)
    half *= scatter / math.sqrt(len(seeds))
    low, high = middle - half, middle + half
    result = "none-shown"
    if low > 0 or high < 0:
        result = "better" if (low > 0) == higher_is_better else "worse"
    why = ""
    if len({*ours}) == len({*theirs}) == 1:
        why = "the seed does not move it, on either side"
    elif not scatter:
        why = "every seed gives the same difference"
    return replace(
        found,
        difference=middle,
        ci95=(low, high),
        spread=stdev(ours),
        correlation=_correlation(ours, theirs),
        needed=_needed(scatter, smallest or abs(middle)),
        beyond=result != "none-shown" and min(abs(low), abs(high)) > smallest,
        result=result,
        why=why,
    )


def is_settled(found: Effect) -> bool:
    """Return whether no further seed can add anything: an effect is shown, the interval is narrower
    than the smallest effect that matters, or no figure is possible."""
    if found.ci95 is None:
        return found.seeds not in range(1, FEWEST)
    low, high = found.ci95
    return found.result != "none-shown" or high - low < found.smallest


def _correlation(ours: list[float], theirs: list[float]) -> float | None:
    if 1 in (len({*ours}), len({*theirs})):
        return None  # rounding would make a figure of it
    with suppress(StatisticsError):  # differences too small to be squared
        return correlation(ours, theirs)
    return None


def _needed(scatter: float, target: float) -> int | None:
    """Return how many seeds show an effect as large as `target`, but for a share UNSHOWN of
    cases."""

    def is_enough(number: int) -> bool:
        both = student_t(number - 1, MISSED) + student_t(number - 1, 2 * UNSHOWN)
        return both * scatter <= target * math.sqrt(number)

    numbers = range(_MOST_NEEDED)
    found = bisect_left(numbers, True, lo=FEWEST, key=is_enough)
    return found if target and found in numbers else None
