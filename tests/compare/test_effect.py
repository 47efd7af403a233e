"""What a change does to a metric, paired by seed: the figure, how sure it is, and when there is none."""

from __future__ import annotations

import random
from statistics import fmean, stdev
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import effect as simulated
from repro_gate.compare.cost import student_t
from repro_gate.compare.effect import (
    FEWEST,
    LARGEST,
    MISSED,
    MISSED_EARLY,
    Effect,
    effect_of,
    is_settled,
)
from repro_gate.report.document import validate

BASE = (1.0, 4.0, 2.0, 7.0, 5.0)
Values = dict[int, float]


def by_seed(*values: float) -> Values:
    return dict(enumerate(values, 40))


def moved(*differences: float, **more: Any) -> Effect:
    """The effect of these differences on BASE."""
    now = (value + difference for value, difference in zip(BASE, differences, strict=False))
    return effect_of("m", by_seed(*BASE), by_seed(*now), **more)


def test_a_figure_is_the_paired_mean_with_student_s_interval() -> None:
    differences = (1.0, 1.5, 0.5, 1.25, 0.75)
    found = moved(*differences)
    assert found.ci95 is not None
    assert (found.metric, found.seeds, found.difference) == ("m", 5, 1.0)
    half = student_t(4, MISSED) * stdev(differences) / 5**0.5
    assert found.ci95 == pytest.approx((1 - half, 1 + half))
    assert found.spread == pytest.approx(stdev(BASE))
    assert found.correlation == pytest.approx(0.98999, abs=1e-5)
    assert found.why == ""


def test_only_seeds_of_both_sides_enter() -> None:
    base = {1: 1.0, 2: 2.0, 3: 3.0, 4: 9.0, 5: float("nan")}
    now = {3: 3.5, 2: 2.25, 1: 1.75, 6: float("inf")}
    found = effect_of("m", base, now)
    assert (found.seeds, found.difference, found.spread) == (3, 0.5, 1.0)


@pytest.mark.parametrize(
    ("sign", "higher", "result"),
    [(1, True, "better"), (-1, True, "worse"), (1, False, "worse"), (-1, False, "better")],
)
def test_an_effect_is_better_or_worse_by_the_metric_s_direction(
    sign: int, higher: bool, result: str
) -> None:
    differences = [sign * each for each in (3.0, 3.1, 2.9, 3.05, 2.95)]
    found = moved(*differences, higher_is_better=higher)
    assert (found.result, found.beyond, is_settled(found)) == (result, True, True)


def test_an_interval_with_zero_shows_nothing_whatever_its_middle() -> None:
    for differences in ((3.0, -1.0, 2.0, 0.5, -2.0), (-3.0, 1.0, -2.0, -0.5, 2.0)):
        found = moved(*differences)
        assert (found.result, found.beyond, is_settled(found)) == ("none-shown", False, False)


def test_an_effect_is_beyond_the_smallest_that_matters_if_its_whole_interval_is() -> None:
    differences = (3.0, 3.1, 2.9, 3.05, 2.95)
    for sign in (1, -1):
        for smallest, beyond in ((2.8, True), (2.9, False), (5.0, False)):
            found = moved(*(sign * each for each in differences), smallest=smallest)
            assert (found.result != "none-shown", found.beyond) == (True, beyond)


def test_seeds_are_enough_if_the_interval_is_narrower_than_what_matters() -> None:
    differences = (1.0, -1.0, 0.5, -0.5, 0.0)
    low, high = moved(*differences).ci95 or (0, 0)
    assert is_settled(moved(*differences, smallest=(high - low) * 1.01))
    assert not is_settled(moved(*differences, smallest=(high - low) * 0.99))
    assert not is_settled(moved(*differences))


def test_a_look_before_the_last_is_stricter() -> None:
    differences = (3.0, 2.0, 4.0, 3.5, 2.5)
    early, last = (moved(*differences, last=last) for last in (False, True))
    assert (early.result, last.result) == ("none-shown", "worse")
    halves = [(item.ci95[1] - item.ci95[0]) / 2 for item in (early, last) if item.ci95]
    assert halves[0] / halves[1] == pytest.approx(student_t(4, MISSED_EARLY) / student_t(4, MISSED))


def test_seeds_that_are_needed_grow_as_the_effect_shrinks() -> None:
    differences = (1.0, -1.0, 0.5, -0.5, 0.0)
    # 4.19 is the sum of Student's quantiles with 10 degrees of freedom: 3.31 for 0.8 % and 0.88
    assert 4.19 * stdev(differences) / 11**0.5 <= 1 < 4.19 * stdev(differences) / 10**0.5
    needed = [moved(*differences, smallest=size).needed for size in (4.0, 1.0, 0.5, 0.01)]
    assert needed == [4, 11, 34, None]
    assert moved(*differences).needed is None  # no size at all
    lifted = [each + 0.5 for each in differences]
    assert moved(*lifted).needed == 34  # the size of the difference
    assert moved(0.5, 0.5, 0.5).needed == FEWEST


def test_pairs_that_have_nothing_in_common_say_so() -> None:
    generator = random.Random(0)
    noise = [by_seed(*(generator.gauss(0, 1) for _ in range(40))) for _ in range(2)]
    assert abs(effect_of("m", *noise).correlation or 1) < 0.3
    assert effect_of("m", noise[0], {seed: 1 - x for seed, x in noise[0].items()}).correlation == (
        pytest.approx(-1)
    )


@pytest.mark.parametrize("constant", [0.1, 0.7, 0.0, 1e-200])
@pytest.mark.parametrize("count", [3, 6, 12])
def test_a_side_that_no_seed_moves_has_no_correlation(constant: float, count: int) -> None:
    same = by_seed(*[constant] * count)
    other = by_seed(*(place * 0.3 for place in range(count)))
    for sides in ((same, other), (other, same), (same, same)):
        assert effect_of("m", *sides).correlation is None


def test_a_seed_that_moves_nothing_makes_the_difference_exact() -> None:
    for change, result in ((0.25, "worse"), (-0.25, "better"), (0.0, "none-shown")):
        found = effect_of("m", by_seed(*[0.5] * 4), by_seed(*[0.5 + change] * 4))
        assert (found.difference, found.ci95) == (change, (change, change))
        assert (found.result, found.spread) == (result, 0.0)
        assert found.why == "the seed does not move it, on either side"
    found = effect_of("m", by_seed(*[0.5] * 4), by_seed(0.5, 0.5, 0.75, 0.5))
    assert (found.result, found.why) == ("none-shown", "")


def test_one_difference_for_every_seed_is_doubted() -> None:
    found = moved(*[0.5] * 5)
    assert (found.ci95, found.why) == ((0.5, 0.5), "every seed gives the same difference")


@pytest.mark.parametrize(
    ("base", "now", "seeds", "why", "settled"),
    [
        ({}, {}, 0, "the two sides have no seed in common", True),
        ({}, by_seed(1, 2, 3), 0, "the two sides have no seed in common", True),
        ({1: 1, 2: 2, 3: 3}, {4: 1, 5: 2, 6: 3}, 0, "the two sides have no seed in common", True),
        (by_seed(1), by_seed(3, 1), 1, "3 seeds of both sides are the fewest", False),
        (by_seed(1, 2), by_seed(1, 3), 2, "3 seeds of both sides are the fewest", False),
        (by_seed(1, 2, float("nan")), by_seed(1, 3, 5), 3, "the base has nan with seed 42", True),
        (by_seed(1, 2, 4), by_seed(1, float("inf"), 5), 3, "the change has inf with seed 41", True),
        (by_seed(1, -float("inf"), 4), by_seed(1, 2, 5), 3, "the base has -inf with seed 41", True),
        (by_seed(1, 2, 3), by_seed(1, 1e308, 5), 3, "the change has 1e+308 with seed 41", True),
        (by_seed(1e308, -1e308, 1), by_seed(-1e308, 1e308, 1), 3, "the base has", True),
        (by_seed(*[1e308] * 3), by_seed(*[1e308] * 3), 3, "the base has 1e+308", True),
    ],
)
def test_what_has_no_figure_says_why(
    base: Values, now: Values, seeds: int, why: str, settled: bool
) -> None:
    found = effect_of("m", base, now, smallest=0.5)
    assert why in found.why
    assert found == Effect(metric="m", seeds=seeds, smallest=0.5, why=found.why)
    assert is_settled(found) is settled


values = st.floats(-LARGEST, LARGEST) | st.floats(-1e-150, 1e-150) | st.sampled_from([0.0, 1.0])


@given(pairs=st.lists(st.tuples(values, values), min_size=3, max_size=6), last=st.booleans())
def test_any_values_make_a_record_that_its_own_schema_takes(
    pairs: list[tuple[float, float]], last: bool
) -> None:
    base, now = (by_seed(*side) for side in zip(*pairs, strict=True))
    found = effect_of("m", base, now, smallest=0.5, last=last)
    assert found.ci95 is not None and found.difference is not None
    assert found.ci95[0] <= found.difference <= found.ci95[1]
    mirrored = effect_of("m", now, base, smallest=0.5, last=last)
    assert (mirrored.needed, mirrored.beyond) == (found.needed, found.beyond)
    assert {found.result, mirrored.result} in ({"none-shown"}, {"better", "worse"})
    assert validate(msgspec.to_builtins(found), Effect, "effect") == found


@pytest.mark.parametrize("name", simulated.PROMISED)
def test_the_simulation_is_of_differences_with_mean_0_and_deviation_1(name: str) -> None:
    generator = random.Random(name)
    drawn = [simulated.PROMISED[name](generator) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(0, abs=0.03)
    assert stdev(drawn) == pytest.approx(1, abs=0.15)


def test_the_benchmark_finds_large_effects_and_few_that_are_not_there() -> None:
    generator = random.Random(5)
    draw = simulated.PROMISED["normal"]
    sized = ((0.0, "none-shown"), (3.0, "better"), (-3.0, "worse"))
    for effect, result in sized:
        changes = [simulated.simulate(generator, draw, effect, [12]) for _ in range(40)]
        answers = [change.stopped(5) for change in changes]
        assert sum(item.result == result for item in answers) >= 38
        stops_early = any(item.seeds < 12 for item in answers)
        assert stops_early is bool(effect)
