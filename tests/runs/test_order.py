"""Claims about the order of runs: interleaved arms, a control, and a pair for each further seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.compare.model import Comparison, Divergence
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.order import (
    KEPT,
    MEASURED,
    further_pair,
    gate_runs,
    may_take_over,
    pair,
    replay,
    to_measure,
)
from repro_gate.runs.process import Ended
from repro_gate.spec.model import (
    VARIED,
    AllowedFlag,
    Capture,
    CostBudget,
    Determinism,
    RandomState,
    Robustness,
    Spec,
    Train,
)
from tests.support.built_traces import timed, training


def spec(*seeds: int, measure: bool = True, steps: int | None = 50) -> Spec:
    return Spec(
        path=Path("/repro.yml"),
        train=Train(run="python train.py", steps=steps),
        random_state=RandomState(seeds or (42,)),
        determinism=Determinism(allow=(AllowedFlag("NCCL_ALGO", "one GPU"),)),
        cost=CostBudget(measure=measure),
    )


def test_the_arms_take_turns_so_that_the_machines_drift_falls_on_both() -> None:
    plans = gate_runs(spec(), 2)
    assert [plan.name for plan in plans] == [
        "deterministic-1",
        "default-1",
        "default-2",
        "deterministic-2",
        "reseeded",
    ]
    assert {plan.name: plan.second_of for plan in plans if plan.second_of} == {
        "deterministic-2": "deterministic-1",
        "default-2": "default-1",
    }
    assert [plan.name for plan in plans if plan.observe] == ["deterministic-1"]
    assert {plan.name: plan.varied for plan in plans if plan.varied} == {
        "deterministic-2": frozenset(VARIED)
    }
    assert all("NCCL_ALGO" not in plan.arm.environment for plan in plans)


def timed_run(plan: Plan, ms: float, seconds: float = 4.0) -> Run:
    """A run of this plan whose steps took `ms` milliseconds each."""
    ended = Ended(
        exit_code=0,
        signal=None,
        timed_out=False,
        stopped="",
        seconds=seconds,
        tail=(),
        left_running=0,
        out_of_memory=False,
    )
    return Run(plan=plan, outcome="finished", ended=ended, traces=(timed([ms] * 9),))


def series(asked: Spec, slower: list[float], before: float = 1e9) -> list[str]:
    """The names of all runs, with a default step of 10 ms and a deterministic one that is slower by
    these shares, one after the other."""
    runs: list[Run] = []
    waiting, scatter = [*gate_runs(asked, 2)], iter(slower * 9)
    while waiting := waiting or further_pair(asked, runs, len(gate_runs(asked, 2)), before):
        plan = waiting.pop(0)
        runs.append(
            timed_run(
                plan, 10.0 * (1 + next(scatter)) if plan.arm.name == "deterministic" else 10.0
            )
        )
    return [
        run.plan.name.replace("deterministic-", "on").replace("default-", "off") for run in runs
    ]


FIVE = ["on1", "off1", "off2", "on2", "reseeded"]


def test_further_pairs_go_on_taking_turns_up_to_the_most_that_are_asked_for() -> None:
    asked = replace(spec(), train=Train(run="x", warmup=0))
    assert series(asked, [0.0, 0.5]) == [
        *FIVE,
        "on3",
        "off3",
        "off4",
        "on4",
        "on5",
        "off5",
        "off6",
        "on6",
    ]
    assert series(replace(asked, cost=CostBudget(pairs=3)), [0.0, 0.5]) == [*FIVE, "on3", "off3"]
    assert series(replace(asked, cost=CostBudget(pairs=2)), [0.0, 0.5]) == FIVE
    assert series(replace(asked, cost=CostBudget(measure=False)), [0.0, 0.5]) == [
        "on1",
        "on2",
        "reseeded",
    ]


def test_no_further_pair_is_run_where_the_interval_is_narrow_or_the_steps_are_too_few_for_one() -> (
    None
):
    asked = replace(spec(), train=Train(run="x", warmup=0))
    assert series(asked, [0.04]) == FIVE
    assert series(replace(asked, train=Train(run="x", warmup=7)), [0.0, 0.5]) == FIVE
    assert series(asked, [0.04, 0.02, 0.03, 0.03]) == [*FIVE, "on3", "off3"]


def test_further_pairs_take_no_longer_than_the_gate_took_until_then() -> None:
    asked = replace(spec(), train=Train(run="x", warmup=0))
    # eight seconds for each pair
    assert series(asked, [0.0, 0.5], before=20.0) == [
        *FIVE,
        "on3",
        "off3",
        "off4",
        "on4",
    ]
    assert series(asked, [0.0, 0.5], before=7.9) == FIVE


def test_a_plain_repeat_that_is_done_anyway_counts() -> None:
    asked = replace(
        spec(),
        train=Train(run="x", warmup=0),
        determinism=Determinism(repeat=3),
    )
    assert series(asked, [0.0, 0.5]) == [
        *FIVE,
        "on3",
        "off3",
        "off4",
        "on4",
        "on5",
        "off5",
        "off6",
        "on6",
    ]


def test_a_run_that_ended_badly_is_followed_by_no_further_pair() -> None:
    asked = replace(spec(), train=Train(run="x", warmup=0))
    runs = [timed_run(plan, 10.0 + place) for place, plan in enumerate(gate_runs(asked, 2))]
    assert [plan.name for plan in further_pair(asked, runs, 5, 99.0)] == [
        "deterministic-3",
        "default-3",
    ]
    assert further_pair(asked, [*runs[:-1], replace(runs[-1], outcome="crashed")], 5, 99.0) == []


def test_the_second_run_of_a_pair_gets_files_of_its_own_until_the_pair_is_identical() -> None:
    plans = {plan.name: plan for plan in gate_runs(spec(), 2)}
    same = Comparison(identical=True, steps=1, tensors=1, differing=0)
    assert [name for name, plan in plans.items() if not may_take_over(plan, None)] == [
        "deterministic-2"
    ]
    assert may_take_over(plans["deterministic-2"], same) and not may_take_over(
        plans["deterministic-2"], replace(same, identical=False)
    )


def test_without_a_cost_there_are_no_default_runs_and_each_seed_has_a_pair() -> None:
    plans = gate_runs(spec(1, 2, measure=False), 2)
    assert [(plan.name, plan.arm.seed) for plan in plans] == [
        ("deterministic-1", 1),
        ("deterministic-2", 1),
        ("reseeded", 2),
        ("seed2-deterministic-1", 2),
        ("seed2-deterministic-2", 2),
    ]


def test_more_deterministic_runs_are_plain_and_come_last() -> None:
    plans = gate_runs(
        replace(
            spec(1, 2, measure=False),
            determinism=Determinism(repeat=3),
            robustness=Robustness(("path",)),
        ),
        2,
    )
    assert [
        (plan.name, plan.second_of, set(plan.varied))
        for plan in plans
        if plan.arm.name == "deterministic"
    ] == [
        ("deterministic-1", "", set()),
        ("deterministic-2", "deterministic-1", {"path"}),
        ("seed2-deterministic-1", "", set()),
        ("seed2-deterministic-2", "seed2-deterministic-1", {"path"}),
        ("deterministic-3", "deterministic-1", set()),
        ("seed2-deterministic-3", "seed2-deterministic-1", set()),
    ]


def test_the_control_takes_few_steps_and_no_more_than_the_training() -> None:
    assert [gate_runs(spec(steps=steps), 2)[-1].arm.steps for steps in (None, 50, 1)] == [2, 2, 1]


def test_a_replay_ends_with_the_step_that_it_keeps() -> None:
    first, second = replay(spec(), 42, (1, 3))
    assert (first.keep_steps, first.arm.steps, second.second_of) == ((1, 3), 4, first.name)
    assert replay(spec(), 42, (-1,))[0].arm.steps == 1


def diverged(step: int, steps: int = 50, **more: Any) -> Comparison:
    found = Divergence(step=step, kind="gradient", name="fc.weight", **more)
    return Comparison(identical=False, steps=steps, tensors=4, differing=1, first_divergence=found)


def run(seconds: float = 4.0, size: int = 10, tensors: int = 1) -> Run:
    trace = training()
    trace.tables = [
        (
            "parameter",
            tuple((f"fc{number}.weight", "float32", (size,)) for number in range(tensors)),
        )
    ]
    ended = Ended(
        exit_code=0,
        signal=None,
        timed_out=False,
        stopped="",
        seconds=seconds,
        tail=(),
        left_running=0,
        out_of_memory=False,
    )
    return Run(plan=pair(spec(), 42)[0], outcome="finished", ended=ended, traces=(trace,))


def test_a_divergence_is_measured_to_the_end_where_there_is_room() -> None:
    assert to_measure(spec(), diverged(47), run(), whole=True) == (47, 48, 49)
    found = to_measure(spec(), diverged(3, steps=1000), run(), whole=True)
    assert (
        found[0] == 3
        and found[-1] == 999
        and len(found) == 101
        and list(found) == sorted(set(found))
    )
    # room for three steps
    assert to_measure(spec(), diverged(3), run(size=KEPT // 4 // 3), whole=True) == (
        3,
        26,
        49,
    )
    assert to_measure(spec(), diverged(3), run(tensors=MEASURED // 2), whole=True) == (3, 49)


def test_steps_that_are_not_recorded_are_not_measured() -> None:
    every = replace(spec(), capture=Capture(every=20))
    assert to_measure(every, diverged(0), run(), whole=True) == (0, 20, 40, 49)


def test_a_long_run_or_another_seed_is_measured_where_it_diverges_or_not_at_all() -> None:
    assert to_measure(spec(), diverged(3), run(seconds=400), whole=True) == (3,)
    assert to_measure(spec(), diverged(3), run(), whole=False) == (3,)
    assert to_measure(spec(), diverged(3, max_abs=1.0), run(), whole=False) == ()
    assert (
        to_measure(spec(), diverged(3, detail="recorded in the first run only"), run(), whole=True)
        == ()
    )
    # after the last step: an artifact
    assert to_measure(spec(), diverged(50), run(), whole=True) == ()
    assert (
        to_measure(
            spec(), Comparison(identical=True, steps=50, tensors=4, differing=0), run(), whole=True
        )
        == ()
    )
