"""The cost is the true one, its interval holds it, and where it cannot be known there is none."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks import cost_coverage as simulated
from repro_gate.compare import cost
from repro_gate.compare.cost import (
    TOO_SHORT,
    blocks_of,
    cycle_of,
    estimate,
    measure_cost,
    needs_another_run,
    step_times,
    student_t,
)
from repro_gate.compare.model import Cost, GpuState
from repro_gate.trace.model import Trace
from tests.support.built_traces import ROWS, block, timed, training

Times = Sequence[float]


def measured(
    *pairs: tuple[Times, Times], warmup: int = 0, blocks: Any = "too few", **more: Any
) -> Cost:
    """The cost of these step times, of which there must be one. A single pair counts twice."""
    pairs = pairs if len(pairs) > 1 else pairs * 2
    on, off = ([[timed(pair[arm])] for pair in pairs] for arm in (0, 1))
    found = measure_cost(on, off, warmup, blocks, **more)
    assert found is not None
    return found


def test_a_known_ratio_is_recovered_whatever_warm_up_slow_spells_and_drift() -> None:
    found = measured(([12.0] * 20, [10.0] * 20), ([12.0] * 20, [10.0] * 20))
    assert (found.determinism_cost_pct, *found.ci95) == pytest.approx((20.0, 20.0, 20.0))
    assert [found.deterministic_step_ms, found.default_step_ms] == pytest.approx([12.0, 10.0])
    assert (found.timed_steps, found.suspicious, found.why) == (40, None, "too few")
    found = measured(([900.0, 11.0, 11.0, 11.0], [800.0, 10.0, 10.0, 10.0]), warmup=1)
    assert found.determinism_cost_pct == pytest.approx(10.0) and found.timed_steps == 6
    whole = [4.0, 20.0] * 40  # a stretch holds as many steps of either optimizer
    slowed = [*whole[:20], *(3 * step for step in whole[20:])]
    found = measured(
        ([1.25 * step for step in slowed], whole), ([1.25 * step for step in whole], slowed)
    )
    assert (found.determinism_cost_pct, *found.ci95) == pytest.approx((25.0, 25.0, 25.0))
    assert found.default_step_ms == pytest.approx(12.0)
    on, off, off_again, on_again = (
        [level * math.exp(0.01 * place)] * 9 for place, level in enumerate((11.0, 10.0, 10.0, 11.0))
    )
    assert measured((on, off), (on_again, off_again)).determinism_cost_pct == pytest.approx(10.0)


def test_too_few_steps_give_no_figure_and_one_beyond_belief_is_said_to_be() -> None:
    seven, six, none, zero = ([timed(times)] for times in ([10.0] * 7, [10.0] * 6, [], [0.0] * 7))
    assert measure_cost([seven] * 2, [seven] * 2, 4, "") is not None
    for off, warmup in (([seven] * 2, 5), ([seven, six], 4), ([seven, none], 0), ([seven], 0)):
        assert measure_cost([seven] * 2, off, warmup, "") is None
    assert measure_cost([], [], 0, "") is None
    assert measure_cost([seven] * 2, [seven, zero], 0, "") is None  # steps of no length
    for on, is_odd in ((39.9, False), (40.1, True), (4.9, True)):
        assert (measured(([on] * 9, [10.0] * 9)).suspicious is not None) is is_odd


def test_runs_that_scatter_too_much_have_no_figure() -> None:
    def pairs(scatter: float, count: int = 2) -> list[tuple[Times, Times]]:
        levels = [1 + scatter * (place % 2) for place in range(count)]
        return [([11.0 * level] * 9, [10.0 * level] * 9) for level in levels]

    found = measured(*pairs(0.31))
    assert (found.determinism_cost_pct, found.suspicious) == (None, None)
    assert (found.default_scatter_pct, found.deterministic_scatter_pct) == pytest.approx((31, 31))
    assert found.ci95[1] - found.ci95[0] > cost.WIDEST
    assert measured(*pairs(0.1)).determinism_cost_pct is None
    assert measured(*pairs(0.1, 6)).determinism_cost_pct == pytest.approx(10.0)
    # wider than 30 points, but a quarter of the figure
    slow = [([40.0 * level] * 9, [10.0] * 9) for level in (1, 1.04) * 3]
    found = measured(*slow)
    assert found.ci95[1] - found.ci95[0] > cost.WIDEST / 2 and found.determinism_cost_pct


def test_students_quantiles_are_those_of_the_tables() -> None:
    quantiles = {2: 4.30265, 3: 3.18245, 4: 2.77645, 8: 2.30600, 18: 2.10092, 38: 2.02439}
    assert {each: student_t(each) for each in quantiles} == pytest.approx(quantiles, abs=1e-5)
    assert student_t(2, 0.01) == pytest.approx(9.92484, abs=1e-5)


@pytest.mark.parametrize("scenario", simulated.SCENARIOS, ids=lambda item: item.name)
def test_alternating_intervals_hold_the_true_cost(scenario: simulated.Scenario) -> None:
    """Equal arms, planted costs, steps that follow one another, drift, a busy neighbour, stalls;
    the bar is four standard errors below 95 %."""
    figures = simulated.measure(simulated.Settings(gates=300), (scenario,))
    assert figures[0].median >= 0.90


BLOCKS = [[math.log(10.0), math.log(10.5), math.log(10.1)]] * 20
FLAGS = ("fill",)


def test_alternating_steps_decide_and_name_the_flag_that_costs() -> None:
    pair = [10.4] * 9, [10.0] * 9
    wide = ([10.4] * 9, [10.0] * 9), ([11.4] * 9, [10.5] * 9)
    found = measured(*wide, blocks=BLOCKS, flags=FLAGS)
    assert (found.determinism_cost_pct, *found.ci95) == pytest.approx((5.0, 5.0, 5.0))
    assert [found.deterministic_step_ms, found.default_step_ms] == pytest.approx([10.5, 10.0])
    assert (found.timed_steps, found.why) == (20, "") and found.other is not None
    assert found.other.ci95[0] < 5 < found.other.ci95[1]
    [fill] = found.flags
    assert (fill.flag, round(fill.cost_pct, 2)) == ("fill", 4.0)  # points of the five
    free = [[*times[:2], times[1]] for times in BLOCKS]
    assert not measured(*wide, blocks=free, flags=FLAGS).flags
    # steps that scatter tell nothing
    scattered = [
        [each + at % 4 / 2 * place for place, each in enumerate(times)]
        for at, times in enumerate(BLOCKS)
    ]
    found = measured(*wide, blocks=scattered, flags=FLAGS)
    assert found.flags == () and "scatter too much" in found.why and found.other is not None
    # whole runs that exclude the figure are the result
    found = measured(pair, blocks=BLOCKS, flags=FLAGS)
    assert found.determinism_cost_pct == pytest.approx(4.0) and "excludes" in found.why
    assert found.other is not None and found.other.cost_pct == pytest.approx(5.0)
    for few, why in ((BLOCKS[:11], TOO_SHORT), ([], "did not alternate"), ("so", "so")):
        found = measured(*wide, blocks=few)
        assert why in found.why and found.other is None


def test_steps_of_five_times_the_median_or_more_are_left_out_and_counted() -> None:
    usual = [10.0] * 300
    for stall, slow in ((50.0, 1), (49.9, 0)):
        # a fortieth of the run is seven steps: in each of them is a stall
        times = [stall if at % 7 == 3 else each for at, each in enumerate(usual)]
        found = measured((times, usual), (usual, usual))
        counted = slow * len(range(3, 300, 7))
        assert (found.slow_steps, found.timed_steps) == (counted, 600 - counted)
        one, other = ([timed(each)] for each in (times, usual))
        expected = (10.0, 10.0) if slow else (10.0 + 39.9 / 7, 10.0)
        assert cost.paces([one, other], 0) == pytest.approx(expected)
    found = measured(([10.0, 90.0, 10.0], [10.0] * 3))  # three steps are enough all the same
    assert (found.timed_steps, found.slow_steps) == (4, 2) and found.determinism_cost_pct == 0
    pair = ([10.4] * 9, [10.0] * 9), ([11.4] * 9, [10.5] * 9)
    late = math.log(5.0)
    # in one block an arm compiled, in another all arms stalled; one is just below
    stalls = ((0, 0.0, late), (1, late, late), (2, late - 1e-9, 0.0))
    blocks = [[*times] for times in BLOCKS]
    for at, without, every in stalls:
        blocks[at] = [blocks[at][0] + without, blocks[at][1] + every, blocks[at][2]]
    found = measured(*pair, blocks=blocks, flags=FLAGS)
    assert (found.timed_steps, found.slow_steps, found.why) == (18, 2, "")
    clean = measured(*pair, blocks=BLOCKS, flags=FLAGS)
    assert (clean.timed_steps, clean.slow_steps) == (20, 0)
    # an arm that is slow always is not left out; too few that are left do not decide
    slow = [[times[0], times[1] + math.log(8), times[2]] for times in BLOCKS]
    assert measured(([84.0] * 9, [10.0] * 9), blocks=slow).slow_steps == 0
    found = measured(*pair, blocks=[*BLOCKS[:11], [9.0, 2.0, 2.0]])
    assert (found.why, found.slow_steps) == (TOO_SHORT, 0)
    assert needs_another_run([*BLOCKS[:11], [9.0, 2.0, 2.0]]) and not needs_another_run(BLOCKS)


def test_the_share_of_the_probe_is_that_of_the_timed_steps() -> None:
    marks = [replacing(mark, probe_ms=1.5 * mark.step) for mark in timed([10.0] * 4).steps]
    runs = [[replace(timed([]), steps=marks)]]
    assert cost.probe_pct(runs, 0) == pytest.approx(22.5)
    assert cost.probe_pct(runs, 2) == pytest.approx(37.5)
    assert cost.probe_pct(runs, 9) == cost.probe_pct([], 0) == 0


def ended(run: str, mhz: float | None = 1980.0, *slowed: str, **more: Any) -> GpuState:
    state = {"run": run, "arm": run[:-2], "when": "after", "gpu": "GPU-1"}
    figures = {"sm_mhz": mhz, "memory_mhz": 2619.0, "celsius": 60.0, "watts": 500.0}
    return GpuState(**{**state, **figures, "slowed": slowed, **more})


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([ended("deterministic-1"), ended("default-1")], ""),
        ([ended("deterministic-1", 1980), ended("default-1", 1925)], ""),  # 2.9 %
        ([ended("deterministic-1", 1980), ended("default-1", 1920)], "1980 MHz .* 1920 MHz"),
        ([ended("deterministic-1", 1920), ended("default-1", 1980)], "1920 MHz .* 1980 MHz"),
        (
            [ended("deterministic-1", 1980, "power cap"), ended("default-1")],
            "after runs with the flags alone: power cap",
        ),
        (
            [ended("deterministic-1"), ended("default-1"), ended("default-2", 1980, "power brake")],
            "after runs without the flags alone: power brake",
        ),
        ([ended(f"{arm}-1", 1980, "power cap") for arm in ("deterministic", "default")], ""),
        # nothing ran any more, or the driver does not say whether
        ([ended("deterministic-1", 345, "idle"), ended("default-1")], ""),
        ([ended("deterministic-1", 345, "unknown"), ended("default-1")], ""),
        ([ended("deterministic-1", None), ended("default-1")], ""),
        # only ends of runs of both arms, of one GPU, are compared
        ([ended("deterministic-1", 1000, when="before"), ended("default-1")], ""),
        ([ended("deterministic-1", 1000, "power cap"), ended("default-1", gpu="GPU-2")], ""),
        ([ended("alternating-1", 1000, "power cap"), ended("default-1")], ""),
        ([], ""),
    ],
)
def test_gpus_whose_clocks_differ_between_the_arms_are_named(
    states: list[GpuState], said: str
) -> None:
    found = "; ".join(cost.gpu_differences(states))
    assert re.search(said, found) if said else not found


def test_another_run_follows_unless_the_interval_is_narrow() -> None:
    def blocks(scatter: float, slower: float) -> list[list[float]]:
        on = math.log(10 * (1 + slower))
        return [[math.log(10.0), on + scatter * (-1) ** place] for place in range(24)]

    for scatter, slower, more in (
        (0.01, 0.0, False),
        (0.04, 0.0, True),
        (0.04, 0.2, False),
        (0.04, -0.2, False),
    ):
        assert needs_another_run(blocks(scatter, slower)) is more
    assert needs_another_run(blocks(0.0, 0.0)[:11])


ARMS = ({"a": False, "b": False}, {"a": True, "b": True}, {"a": True, "b": False})


def alternating(steps: int = 60, cycle: int = 1, key: str = "main", **changes: Any) -> Trace:
    """A process whose flags alternate: 10 ms without, 12 with, 11 but for one; a cycle's last step
    takes ten times as long."""
    orders = random.Random(3)
    turns = [arm for _ in range(steps) for arm in orders.sample(range(3), 3)]
    arms = [turns[step // cycle] for step in range(steps)]
    times = [
        (10.0, 12.0, 11.0)[arm] * (10.0 if cycle > 1 and step % cycle == cycle - 1 else 1.0)
        for step, arm in enumerate(arms)
    ]
    trace = timed(times, key)
    marks = [replacing(mark, flags=arm) for mark, arm in zip(trace.steps, arms, strict=True)]
    return replace(trace, steps=marks, settings=[{**arm, "c": 1} for arm in ARMS], **changes)


def replacing(mark: Any, **changes: Any) -> Any:
    fields = {name: getattr(mark, name) for name in mark.__struct_fields__}
    return type(mark)(**{**fields, **changes})


def test_blocks_are_read_from_the_flags_as_the_processes_read_them() -> None:
    for cycle, scale in ((1, 1.0), (2, 5.5)):
        found = blocks_of([alternating(cycle=cycle)], ARMS, cycle, 5)
        assert not isinstance(found, str) and len(found) == 60 // (3 * cycle) - cost.UNTIMED
        for times in found:
            expected = [each * scale for each in (10.0, 12.0, 11.0)]
            assert [*map(math.exp, times)] == pytest.approx(expected)
    ranks = [alternating(key=key) for key in ("rank0", "rank1")]
    found = blocks_of(ranks, ARMS, 1, 30)
    assert len(found) == 10


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": "main/worker"}, "several threads"),
        ({"facts": {"cuda-graph": "captured"}}, "CUDA graph"),
        ({"facts": {"compiled": "yes"}}, "compiled model"),
        ({"settings": [ARMS[0], ARMS[1], {"a": "x"}]}, "sets the flags itself"),
        ({"settings": [ARMS[0]] * 3}, "sets the flags itself"),
    ],
)
def test_where_alternating_cannot_tell_it_says_why(change: Any, why: str) -> None:
    trace = replace(alternating(), **change)
    found = blocks_of([trace], ARMS, 1, 0)
    assert isinstance(found, str) and why in found


def test_ranks_that_disagree_on_the_arm_or_a_loader_that_is_behind_leave_it_to_whole_runs() -> None:
    other = replace(alternating(key="rank1"), settings=[ARMS[1], ARMS[0], ARMS[2]])
    assert blocks_of([alternating(key="rank0"), other], ARMS, 1, 0) == cost.SETS_FLAGS
    trace = alternating()
    for count, is_said in ((6, False), (7, True)):
        late = [replacing(mark, behind=mark.step < count) for mark in trace.steps]
        found = blocks_of([replace(trace, steps=late)], ARMS, 1, 0)
        assert isinstance(found, str) is is_said


def test_optimizers_that_take_turns_are_compared_by_whole_cycles() -> None:
    other = (("critic.weight", "float32", (2,)),)

    def updates(kinds: str) -> list[Trace]:
        rows = [other if kind == "c" else ROWS["parameter"] for kind in kinds]
        blocks = [block(step, "parameter", each) for step, each in enumerate(rows)]
        return [replace(training(len(kinds)), blocks=[block(-1, "parameter", other), *blocks])]

    for kinds, cycle in (
        ("g", 1),
        ("gggggg", 1),
        ("cgcgcgc", 2),
        ("ccccg" * 4, 5),
        ("cgccgcccgccccg", 0),
    ):
        assert cycle_of(updates(kinds)) == cycle
    assert cycle_of([timed([1.0])]) == cycle_of([]) == 1


def test_of_several_processes_the_slowest_and_the_largest_peak_count() -> None:
    ranks = [timed([1.0, 9.0, 1.0, 1.0], "rank0"), timed([5.0, 5.0, 5.0], "rank1")]
    ranks.append(timed([], "launcher"))
    for warmup, times in ((0, [5.0, 9.0, 5.0]), (2, [5.0]), (9, [])):
        assert step_times(ranks, warmup) == times
    on = [timed([1.0] * 4, peak=100), timed([1.0] * 4, "rank1", peak=150)]
    off, nothing = ([timed([1.0] * 4, peak=peak)] for peak in (120, 0))
    found, unknown = (
        measure_cost([a, a], [b, b], 0, "") for a, b in ((on, off), (nothing, nothing))
    )
    assert found is not None and unknown is not None and unknown.memory_cost_pct is None
    assert found.memory_cost_pct == pytest.approx(25.0) == (found.memory_ci95 or (0.0,))[0]
    assert (found.deterministic_peak_bytes, found.default_peak_bytes) == (150, 120)
    assert (unknown.deterministic_peak_bytes, unknown.default_peak_bytes) == (None, None)


# whole runs that scatter more have no figure
TIMES = st.lists(st.floats(10, 14), min_size=3, max_size=12)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=2, max_size=4))
@settings(max_examples=40, deadline=None)
def test_the_figure_lies_within_its_interval(pairs: list[tuple[list[float], list[float]]]) -> None:
    on, off = ([[timed(times)] for times in arm] for arm in zip(*pairs, strict=True))
    found = measure_cost(on, off, 0, "")
    assume(found is not None and found.determinism_cost_pct is not None)
    assert found.ci95[0] <= found.determinism_cost_pct <= found.ci95[1]


@given(st.lists(st.lists(st.floats(-14, 24), min_size=2, max_size=2), min_size=12, max_size=40))
@settings(max_examples=40, deadline=None)
def test_any_step_times_have_an_estimate(blocks: list[list[float]]) -> None:
    found = estimate(blocks)
    assert found.ci95[0] <= found.cost_pct <= found.ci95[1]
