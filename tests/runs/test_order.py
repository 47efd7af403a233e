"""Claims about the order of runs: interleaved arms, a control, and a pair for each further seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.model import Comparison, Divergence
from repro_gate.runs import order
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.order import further_pair, gate_runs, to_measure
from repro_gate.runs.process import Ended
from repro_gate.spec import model
from repro_gate.spec.model import CostBudget, Determinism, RandomState, Spec, Train
from tests.support.built_traces import timed, training


def spec(*seeds: int, measure: bool = True, steps: int | None = 50) -> Spec:
    return Spec(
        path=Path("/repro.yml"),
        train=Train(run="python train.py", steps=steps),
        random_state=RandomState(seeds or (42,)),
        determinism=Determinism(allow=(model.AllowedFlag("NCCL_ALGO", "one GPU"),)),
        cost=CostBudget(measure=measure),
    )


def test_the_arms_take_turns_so_that_the_machines_drift_falls_on_both() -> None:
    plans = gate_runs(spec(), 2)
    names = "deterministic-1 default-1 default-2 deterministic-2 reseeded"
    assert " ".join(plan.name for plan in plans) == names
    seconds = {plan.name: plan.second_of for plan in plans if plan.second_of}
    assert seconds == {"deterministic-2": "deterministic-1", "default-2": "default-1"}
    assert [plan.name for plan in plans if plan.observe] == ["deterministic-1"]
    assert {plan.name: plan.varied for plan in plans if plan.varied} == {
        "deterministic-2": frozenset(model.VARIED)
    }
    assert all("NCCL_ALGO" not in plan.arm.environment for plan in plans)


def timed_run(plan: RunRequest, ms: float) -> RunResult:
    """A run of this plan whose steps took `ms` milliseconds each, and all of it four seconds."""
    ended = Ended(exit_code=0, seconds=4.0)
    return RunResult(request=plan, outcome="finished", ended=ended, traces=(timed([ms] * 9),))


def series(slower: list[float], before: float = 1e9, **changes: Any) -> str:
    """The names of all runs, with a default step of 10 ms and a deterministic one that is slower by
    these shares, one after the other."""
    asked = replace(spec(), **{"train": Train(run="x", warmup=0), **changes})
    runs: list[RunResult] = []
    waiting, scatter = [*gate_runs(asked, 2)], iter(slower * 9)
    while waiting := waiting or further_pair(asked, runs, len(gate_runs(asked, 2)), before):
        plan = waiting.pop(0)
        slow = 1 + next(scatter) if plan.arm.name == "deterministic" else 1
        runs.append(timed_run(plan, 10.0 * slow))
    names = " ".join(run.request.name for run in runs)
    return names.replace("deterministic-", "on").replace("default-", "off")


FIVE = "on1 off1 off2 on2 reseeded"
NINE = f"{FIVE} on3 off3 off4 on4"
MOST = f"{NINE} on5 off5 off6 on6"


@pytest.mark.parametrize(
    ("slower", "asked", "names"),
    [
        # taking turns, up to the most that are asked for
        ([0.0, 0.5], {}, MOST),
        ([0.0, 0.5], {"cost": CostBudget(pairs=3)}, f"{FIVE} on3 off3"),
        ([0.0, 0.5], {"cost": CostBudget(pairs=2)}, FIVE),
        ([0.0, 0.5], {"cost": CostBudget(measure=False)}, "on1 on2 reseeded"),
        # a plain repeat that is done anyway counts
        ([0.0, 0.5], {"determinism": Determinism(repeat=3)}, MOST),
        # none where the interval is narrow, or the steps are too few for one
        ([0.04], {}, FIVE),
        ([0.0, 0.5], {"train": Train(run="x", warmup=7)}, FIVE),
        ([0.04, 0.02, 0.03, 0.03], {}, f"{FIVE} on3 off3"),
        # no longer than the gate took until then: eight seconds for each pair
        ([0.0, 0.5], {"before": 20.0}, NINE),
        ([0.0, 0.5], {"before": 7.9}, FIVE),
    ],
)
def test_further_pairs_are_run_while_they_help_and_as_many_as_are_asked_for(
    slower: list[float], asked: dict[str, Any], names: str
) -> None:
    assert series(slower, **asked) == names


def test_a_run_that_ended_badly_is_followed_by_no_further_pair() -> None:
    asked = replace(spec(), train=Train(run="x", warmup=0))
    runs = [timed_run(plan, 10.0 + place) for place, plan in enumerate(gate_runs(asked, 2))]
    assert further_pair(asked, runs, 5, 99.0)
    assert not further_pair(asked, [*runs[:-1], replace(runs[-1], outcome="crashed")], 5, 99.0)


def test_the_second_run_of_a_pair_gets_files_of_its_own_until_the_pair_is_identical() -> None:
    plans = {plan.name: plan for plan in gate_runs(spec(), 2)}
    second = plans["deterministic-2"]
    same = Comparison(identical=True, steps=1, tensors=1, differing=0)
    assert [plan for plan in plans.values() if not order.may_take_over(plan, None)] == [second]
    assert order.may_take_over(second, same)
    assert not order.may_take_over(second, replace(same, identical=False))


def test_each_seed_has_a_pair_and_more_deterministic_runs_are_plain_and_come_last() -> None:
    more, varied = Determinism(repeat=3), model.Robustness(("path",))
    asked = replace(spec(1, 2, measure=False), determinism=more, robustness=varied)
    plans = [(item.name, item.second_of, *item.varied) for item in gate_runs(asked, 2)]
    assert plans == [
        ("deterministic-1", ""),
        ("deterministic-2", "deterministic-1", "path"),
        ("reseeded", ""),
        ("seed2-deterministic-1", ""),
        ("seed2-deterministic-2", "seed2-deterministic-1", "path"),
        ("deterministic-3", "deterministic-1"),
        ("seed2-deterministic-3", "seed2-deterministic-1"),
    ]
    assert [plan.arm.seed for plan in gate_runs(asked, 2)][:5] == [1, 1, 2, 2, 2]


def test_the_control_takes_few_steps_and_a_replay_ends_with_the_step_that_it_keeps() -> None:
    assert [gate_runs(spec(steps=steps), 2)[-1].arm.steps for steps in (None, 50, 1)] == [2, 2, 1]
    first, second = order.replay(spec(), 42, (1, 3))
    assert (first.keep_steps, first.arm.steps, second.second_of) == ((1, 3), 4, first.name)
    assert order.replay(spec(), 42, (-1,))[0].arm.steps == 1


def diverged(step: int, steps: int = 50, **more: Any) -> Comparison:
    found = Divergence(step=step, kind="gradient", name="fc.weight", **more)
    return Comparison(identical=False, steps=steps, tensors=4, differing=1, first_divergence=found)


def run(seconds: float = 4.0, size: int = 10, tensors: int = 1) -> RunResult:
    trace = training()
    rows = tuple((f"fc{number}.weight", "float32", (size,)) for number in range(tensors))
    trace.tables = [("parameter", rows)]
    ended = Ended(exit_code=0, seconds=seconds)
    return RunResult(
        request=order.pair(spec(), 42)[0], outcome="finished", ended=ended, traces=(trace,)
    )


def test_a_divergence_is_measured_to_the_end_where_there_is_room() -> None:
    found = to_measure(spec(), diverged(3, steps=1000), run(), whole=True)
    assert found[0] == 3 and found[-1] == 999 and len(found) == 101
    assert list(found) == sorted(set(found))
    every = replace(spec(), capture=model.Capture(every=20))
    for asked, divergence, second, steps in (
        (spec(), diverged(47), run(), (47, 48, 49)),
        (spec(), diverged(3), run(size=order.KEPT // 4 // 3), (3, 26, 49)),  # room for three
        (spec(), diverged(3), run(tensors=order.MEASURED // 2), (3, 49)),
        (every, diverged(0), run(), (0, 20, 40, 49)),  # others are not recorded
        (spec(), diverged(3), run(seconds=400), (3,)),  # a long run
        (spec(), diverged(3, detail="recorded in the first run only"), run(), ()),
        (spec(), diverged(50), run(), ()),  # after the last step: an artifact
        (spec(), Comparison(identical=True, steps=50, tensors=4, differing=0), run(), ()),
    ):
        assert to_measure(asked, divergence, second, whole=True) == steps
    # another seed
    assert to_measure(spec(), diverged(3), run(), whole=False) == (3,)
    assert to_measure(spec(), diverged(3, max_abs=1.0), run(), whole=False) == ()
