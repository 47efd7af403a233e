"""Claims about which run comes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.model import Comparison, Divergence, GpuState
from repro_gate.runs import flags, order
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.order import coming, gate_runs, next_run, to_measure
from repro_gate.runs.process import Ended
from repro_gate.runs.results import Results
from repro_gate.spec import model
from repro_gate.spec.model import CostBudget, Determinism, RandomState, Spec, Train
from repro_gate.trace.model import StepMark, Trace, Undone
from tests.support.built_traces import changed, flip, place_of, results, training


def spec(*seeds: int, measure: bool = True, steps: int | None = 50, **changes: Any) -> Spec:
    asked = Spec(
        path=Path("/repro.yml"),
        train=Train(run="python train.py", steps=steps, warmup=0),
        random_state=RandomState(seeds or (42,)),
        determinism=Determinism(allow=(model.AllowedFlag("NCCL_ALGO", "one GPU"),)),
        cost=CostBudget(measure=measure),
    )
    return replace(asked, **changes)


def done(
    request: RunRequest, *traces: Trace, outcome: str = "finished", code: int = 0
) -> RunResult:
    """What came of a request, in four seconds."""
    ended = Ended(exit_code=code, seconds=4.0)
    reason = "" if outcome in ("finished", "stopped") else f"run/{outcome}"
    return RunResult(request=request, outcome=outcome, ended=ended, traces=traces, reason_id=reason)


def crashes(request: RunRequest, reason: str = "run/crashed") -> RunResult:
    return replace(done(request, outcome="crashed", code=1), reason_id=reason)


SAME = training(4)
OTHER = changed(SAME, place_of(SAME, 2, "gradient"), flip(0))
Does = Callable[[RunRequest], RunResult]


def series(asked: Spec, does: dict[str, Does], *, fail_fast: bool = False) -> Results:
    """A gate run in which these runs, by their names, do something else than the others."""
    found = results(spec=asked, fail_fast=fail_fast)
    requests = gate_runs(asked)
    while request := next_run(requests, found):
        found.add(does.get(request.name, lambda item: done(item, SAME))(request))
    return found


def names(found: Results) -> str:
    text = " ".join(run.request.name for run in (*found.runs, *found.auxiliary))
    return text.replace("deterministic-", "on").replace("default-", "off")


def test_the_arms_take_turns_each_seed_has_a_pair_and_further_runs_are_plain_and_come_last() -> (
    None
):
    requests = gate_runs(spec())
    expected = "deterministic-1 default-1 default-2 deterministic-2 reseeded"
    assert " ".join(item.name for item in requests) == expected
    assert [item.name for item in requests if item.recording.distributions] == ["deterministic-1"]
    assert requests[3].varied == frozenset(model.VARIED) and requests[2].second_of == "default-1"
    assert all("NCCL_ALGO" not in item.arm.environment for item in requests)
    more, varied = Determinism(repeat=3), model.Robustness(("path",))
    requests = gate_runs(spec(1, 2, measure=False, determinism=more, robustness=varied))
    assert [(item.name, item.second_of, item.arm.seed, *item.varied) for item in requests] == [
        ("deterministic-1", "", 1),
        ("deterministic-2", "deterministic-1", 1, "path"),
        ("reseeded", "", 2),
        ("seed2-deterministic-1", "", 2),
        ("seed2-deterministic-2", "seed2-deterministic-1", 2, "path"),
        ("deterministic-3", "deterministic-1", 1),
        ("seed2-deterministic-3", "seed2-deterministic-1", 2),
    ]


def test_what_is_coming_is_told_in_trainings() -> None:
    tail, more = "coming, together about as long as", "; up to 7 more for the cost"
    assert coming(gate_runs(spec())) == f"5 runs are {tail} 4 trainings of 50 steps{more}"
    one = spec(steps=None, determinism=Determinism(repeat=1))
    assert coming(gate_runs(one)) == f"1 run is {tail} 1 training"


FIVE = "on1 off1 off2 on2 reseeded"
ALL = f"{FIVE} seed7-on1 seed7-on2"
THIRD = ALL.replace("on2 r", "on2 on3 r")
REPLAY = "replay-1-seed42 replay-2-seed42"


def differs(request: RunRequest) -> RunResult:
    return done(request, OTHER)


def refused(request: RunRequest) -> RunResult:
    return crashes(request, NO_DETERMINISTIC)


def killed(request: RunRequest) -> RunResult:
    return done(request, outcome="killed", code=137)


DIVERGES: dict[str, Does] = {"deterministic-2": differs, "deterministic-3": differs}


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        ({}, ALL),
        # a crash completes only its own pair, unless it says nothing about the training
        ({"deterministic-1": crashes}, "on1 on2"),
        ({"default-1": crashes}, "on1 off1 on2"),
        ({"default-2": crashes, "deterministic-2": crashes}, "on1 off1 off2 on2"),
        ({"seed7-deterministic-1": crashes}, ALL),
        ({"deterministic-1": refused}, "on1"),
        ({"default-1": killed}, "on1 off1"),
        # the control ends nothing, and is done again without its note
        ({"reseeded": crashes}, f"{ALL} reseeded"),
        # a varied run that differs, or crashes, asks for its plain repeat
        ({"deterministic-2": differs}, THIRD),
        ({"deterministic-2": crashes}, THIRD),
        ({"deterministic-2": crashes, "deterministic-3": crashes}, "on1 off1 off2 on2 on3"),
        # a divergence asks for two runs that measure it
        (DIVERGES, f"{THIRD} {REPLAY}"),
        ({**DIVERGES, "replay-1-seed42": crashes}, f"{THIRD} replay-1-seed42"),
    ],
)
def test_what_a_run_came_to_decides_which_is_next(does: dict[str, Does], expected: str) -> None:
    assert names(series(spec(42, 7), does)) == expected


def test_a_recording_is_one_run_whatever_comes_of_it() -> None:
    alone = spec(1, 2, determinism=Determinism(repeat=1))
    assert [item.name for item in gate_runs(alone)] == ["deterministic-1"]
    assert names(series(alone, {})) == names(series(alone, {"deterministic-1": crashes})) == "on1"


def test_after_a_crash_the_second_run_is_plain_and_a_plain_repeat_that_was_due_counts() -> None:
    found = series(spec(), {"deterministic-1": crashes})
    assert [run.request.varied for run in found.runs] == [frozenset(), frozenset()]
    again = series(spec(determinism=Determinism(repeat=3)), {"deterministic-2": differs})
    assert names(again) == "on1 off1 off2 on2 on3 reseeded"
    assert "deterministic-3 repeats" in again.runs[4].request.announcement


def test_fail_fast_ends_at_a_divergence_and_measures_nothing() -> None:
    found = series(spec(42, 7), DIVERGES, fail_fast=True)
    assert names(found) == "on1 off1 off2 on2 on3" and found.stopped_early
    assert not series(spec(), {"deterministic-2": differs}, fail_fast=True).stopped_early


def test_on_unsound_data_no_run_follows_and_the_control_is_repeated_without_its_note() -> None:
    assert next_run(gate_runs(spec()), results(spec=spec(), unsound=True)) is None
    found = series(spec(measure=False), {"reseeded": crashes})
    assert names(found) == "on1 on2 reseeded reseeded"
    [first], again = found.auxiliary, found.control
    assert again is not None and first.request.probe and not again.request.probe


def alternates(
    scatter: float, steps: int = 60, cost: float = 0.05, probe_ms: float = 0.1, **changes: Any
) -> Results:
    """Runs of a training whose step takes 10 ms without the flags, and more by `cost` with them;
    in alternating runs it scatters by this share."""
    asked, found = spec(**changes), results(spec=spec(**changes))

    def does(request: RunRequest) -> RunResult:
        if request.name in found.by_name or not request.probe.get("alternating"):
            on = float(request.arm.name != "default")
            ms = (10 + on * 10 * cost) * (1.02 if request.name.endswith("2") else 1)
            trace = training(steps, times=[ms] * steps, settings=read(on))
            marks = [StepMark(it.step, it.ms, probe_ms, 0, 0) for it in trace.steps]
            return done(request, replace(trace, steps=marks))
        taken = [10 * (1 + scatter * (-1) ** (step // 3)) for step in range(steps)]
        trace = training(request.arm.steps or 0, times=taken)
        arms_of, marks = request.probe["alternating"]["arms"], []
        for mark in trace.steps:
            arm = mark.step % len(arms_of)
            ms = mark.ms * (1 + cost) if arm else 10.0
            marks.append(StepMark(mark.step, ms, 0.0, 0, arm))
        return done(request, replace(trace, steps=marks, settings=list(arms_of)))

    def read(on: float) -> dict[str, Any]:
        return {**dict.fromkeys(flags.SWITCHED, bool(on)), flags.FILL: True}

    planned = gate_runs(asked)
    while request := next_run(planned, found):
        found.add(does(request))
    return found


@pytest.mark.parametrize(
    ("scatter", "asked", "expected"),
    [
        (0.005, {}, "alternating-1"),
        (0.01, {}, "alternating-1 alternating-2"),
        (0.2, {}, "alternating-1 alternating-2 alternating-3"),
        (0.01, {"steps": 11}, ""),  # too few for twelve steps of each arm
        (0.2, {"steps": 12}, "alternating-1 alternating-2 alternating-3"),
    ],
)
def test_a_run_in_which_flags_alternate_follows_and_others_while_its_interval_is_wide(
    scatter: float, asked: dict[str, Any], expected: str
) -> None:
    found = alternates(scatter, **asked)
    assert names(found) == f"{FIVE} {expected}".strip()
    for number, run in enumerate(found.alternating, 1):
        request = run.request
        plan = request.probe["alternating"]
        assert plan["seed"] == f"42 {number}" and plan["cycle"] == 1
        assert request.probe["every"] > (request.arm.steps or 0), "nothing is digested"
        assert not request.arm.flags.keys() & plan["arms"][0].keys()
        assert request.arm.environment == found.runs[0].arm.environment
    assert bool(found.alternating) is bool(isinstance(found.blocks, list) and found.blocks)


TIMED = [f"undigested-{run}" for run in ("on1", "off1", "off2", "on2")]


def digested(probe_ms: float, steps: int = 40, **does: Does) -> Results:
    """A training that sets the flags itself, so that whole runs decide: the probe takes this of its
    steps of 10 ms, 15 with the flags, and next to nothing of those without digests, which take 11 and
    10."""

    def times(request: RunRequest) -> RunResult:
        anew = request.name.startswith("undigested")
        ms = 10.0 if request.arm.name == "default" else 11.0 if anew else 15.0
        taken = request.arm.steps or steps
        trace = training(min(taken, steps), times=[ms] * steps)
        own = 0.01 if anew else probe_ms
        marks = [StepMark(mark.step, mark.ms, own, 1, 0) for mark in trace.steps]
        return done(request, replace(trace, steps=marks, undone=UNDONE))

    asked = spec(steps=None)
    usual = dict.fromkeys([*ANEW, *(run.name for run in gate_runs(asked))], times)
    return series(asked, {**usual, **does})


UNDONE = [Undone(flag=flags.ALGORITHMS, value="False", file="train.py", line=1, step=0)]
ANEW = [f"undigested-{arm}-{number}" for arm in ("deterministic", "default") for number in (1, 2)]


def test_where_the_probe_takes_much_of_a_step_whole_runs_are_timed_without_digests() -> None:
    found = digested(1.6)
    assert names(found) == " ".join([FIVE, *TIMED])
    for run in found.of_cost:
        request = run.request
        assert request.probe == {"every": 40} and request.arm.steps == 40
        assert request.recording == order.Recording() and not request.second_of
        assert request.arm == replace(found.by_name[request.name[11:]].arm, steps=40)
    cost = found.cost()
    assert cost is not None and cost.undigested and cost.determinism_cost_pct == pytest.approx(10.0)
    assert cost.probe_pct == pytest.approx(160 / 12.5) and "sets the flags itself" in cost.why
    # what a baseline and another ref are compared with are the compared runs
    assert found.step_times()["deterministic"] == (15.0, 15.0)


def test_otherwise_the_compared_runs_are_the_whole_runs() -> None:
    for probe_ms, steps in ((1.2, 40), (1.6, 11)):  # 9.6 %; too few steps to show a cost
        found = digested(probe_ms, steps)
        assert names(found) == FIVE
        cost = found.cost()
        assert cost is not None and not cost.undigested
        assert cost.determinism_cost_pct == pytest.approx(50.0)
    # steps that alternate are not digested anyway
    found = alternates(0.005, probe_ms=5.0)
    assert names(found) == f"{FIVE} alternating-1"
    cost = found.cost()
    assert cost is not None and cost.probe_pct > 40 and not cost.why
    # one that ends badly is the last, and the compared runs decide
    found = digested(1.6, **{"undigested-default-1": crashes})
    assert names(found) == " ".join([FIVE, *TIMED[:2]])
    cost = found.cost()
    assert cost is not None and not cost.undigested and cost.probe_pct > 10
    assert names(digested(1.6, **{"deterministic-2": differs, "deterministic-3": differs})) == (
        f"{FIVE.replace('on2 r', 'on2 on3 r')} {REPLAY}"
    )
    assert [run.request.arm.steps for run in digested(1.6, 500).of_cost] == [100] * 4


def test_only_gpus_that_were_trained_on_are_in_the_cost() -> None:
    state = {"run": "x", "arm": "default", "when": "after", "slowed": ()}
    state |= dict.fromkeys(("sm_mhz", "memory_mhz", "celsius", "watts"))
    gpus = tuple(GpuState(gpu=gpu, **state) for gpu in ("GPU-1", "GPU-2"))

    def known(**facts: str) -> list[str]:
        def does(request: RunRequest) -> RunResult:
            seen = gpus if request.arm.name == "default" else ()
            return replace(done(request, training(4, facts=facts)), gpus=seen)

        found = series(spec(), {run.name: does for run in gate_runs(spec())}).cost()
        assert found is not None
        return [item.gpu for item in found.gpus]

    assert known(device="cpu: AVX2") == []
    assert known(**{"gpu-model": "H100", "gpu-uuid": "GPU-2"}) == ["GPU-2"] * 2
    # torch before 2.6 does not say which, and a part of a GPU has a name of its own
    both = ["GPU-1", "GPU-2"] * 2
    assert known(**{"gpu-model": "H100"}) == known(**{"gpu-model": "x", "gpu-uuid": "y"}) == both


def test_an_alternating_run_that_ends_badly_is_the_last_and_told() -> None:
    found = series(spec(), {"alternating-1": crashes})
    assert names(found) == FIVE, "four steps are too few"
    assert names(series(spec(measure=False), {})) == "on1 on2 reseeded"
    good = alternates(0.005)
    [run] = good.alternating
    good.auxiliary = (crashes(run.request),)
    assert isinstance(good.blocks, str) and "alternating-1 ended badly" in good.blocks
    assert next_run(gate_runs(good.spec), good) is None


def test_the_control_takes_few_steps_and_a_replay_ends_with_the_step_that_it_keeps() -> None:
    assert [gate_runs(spec(steps=steps))[-1].arm.steps for steps in (None, 50, 1)] == [2, 2, 1]
    first, second = order.replay(spec(), 42, (1, 3))
    assert (first.recording.steps, first.arm.steps, second.second_of) == ((1, 3), 4, first.name)
    assert order.replay(spec(), 42, (-1,))[0].arm.steps == 1


def diverged(step: int, steps: int = 50, **more: Any) -> Comparison:
    found = Divergence(step=step, kind="gradient", name="fc.weight", **more)
    return Comparison(identical=False, steps=steps, tensors=4, differing=1, first_divergence=found)


def run(seconds: float = 4.0, size: int = 10, tensors: int = 1) -> RunResult:
    rows = tuple((f"fc{number}.weight", "float32", (size,)) for number in range(tensors))
    trace = replace(training(), tables=[("parameter", rows)])
    found = done(order.pair(spec(), 42)[0], trace)
    return replace(found, ended=replace(found.ended, seconds=seconds))


def test_a_divergence_is_measured_to_the_end_where_there_is_room() -> None:
    found = to_measure(spec(), diverged(3, steps=1000), run(), whole=True)
    assert found[0] == 3 and found[-1] == 999 and len(found) == 101
    assert list(found) == sorted(set(found))
    every = spec(capture=model.Capture(every=20))
    for asked, divergence, second, steps in (
        (spec(), diverged(47), run(), (47, 48, 49)),
        (spec(), diverged(3), run(size=order.KEPT_BYTES // 4 // 3), (3, 26, 49)),  # room for three
        (spec(), diverged(3), run(tensors=order.MEASURED_DISTANCES // 2), (3, 49)),
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
