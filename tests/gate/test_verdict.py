"""The verdict: proof that training is not reproducible outranks what could not be known, and
nothing unknown passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.model import STEPS, Cost, Divergence, SpeedChange, Tally
from repro_gate.compare.traces import compare_runs
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.model import Reason, SeedResult
from repro_gate.runs.reading import Uncompared
from repro_gate.spec.model import AllowedFlag, BaselineRule, CostBudget, Determinism, Tolerance
from tests.support.built_traces import changed, flip, place_of, run, spec, training, with_loss
from tests.support.reports import WHY

A = training()
SAME = SeedResult(42, compare_runs([A], [A]))
PARTED = SeedResult(42, compare_runs([A], [changed(A, place_of(A, 1, "gradient"), flip(0))]))
PASSED = tuple(
    CheckResult(id=f"{name}/x", category=name, status="pass", message="") for name in CATEGORIES
)
FAILED = replace(PASSED[1], status="fail", message="wrong sum", evidence=("train.bin",))
CRASHED = run(
    "default-1", outcome="crashed", problem="it exited with status 1", reason_id="run/crashed"
)
COST = Cost(
    determinism_cost_pct=20.0,
    ci95=(15.0, 25.0),
    deterministic_step_ms=12.0,
    default_step_ms=10.0,
    timed_steps=90,
)


def decided(**changes: Any) -> tuple[str, list[str], list[str]]:
    """(verdict, ids of the reasons, ids of the notes) of findings that pass but for these
    changes."""
    runs = (run("deterministic-1", A), run("deterministic-2", A))
    verdict, reasons, notes = decide(
        replace(
            Findings(spec=spec(), comparisons=(SAME,), runs=runs, checklist=PASSED, cost=COST),
            **changes,
        )
    )
    return verdict, [item.id for item in reasons], [item.id for item in notes]


def test_equal_runs_and_checks_that_pass_are_a_pass() -> None:
    assert decided() == ("pass", [], [])


def test_runs_that_diverge_are_a_fail_that_says_where() -> None:
    assert decided(comparisons=(SAME, PARTED)) == ("fail", ["determinism/diverged"], [])
    for divergence, says in (
        (
            Divergence(step=-1, kind="parameter", name="w"),
            "diverge before the first step (parameter w)",
        ),
        (Divergence(step=2, kind="artifact", name="m.pt"), "diverge in artifact m.pt"),
        (Divergence(step=2, kind="loss", name="l"), "at step 2"),
    ):
        item = SeedResult(7, replace(PARTED.comparison, first_divergence=divergence))
        (reason,) = decide(
            Findings(spec=spec(), comparisons=(item,), runs=(), checklist=PASSED, cost=None)
        )[1]
        assert says in reason.message
        assert "seed 7" in reason.message


def test_the_remedy_of_a_divergence_is_that_of_its_cause() -> None:
    loose = spec(determinism=Determinism(tolerance=Tolerance(0.0, 0.0)))
    for made, identifier in (
        (spec(), "determinism/diverged"),
        (loose, "determinism/outside-tolerance"),
    ):
        apart = replace(PARTED, comparison=replace(PARTED.comparison, loss_gaps=((1, 0.5),)))
        findings = Findings(spec=made, comparisons=(apart,), runs=(), checklist=PASSED, cost=None)
        (plain,), (explained,) = decide(findings)[1], decide(replace(findings, diagnosis=WHY))[1]
        assert plain.id == explained.id == identifier and plain.message == explained.message
        assert explained.remedy.startswith(WHY.remedy) and explained.remedy.endswith(
            "/docs/causes/unseeded-rng.md)"
        )
        assert WHY.remedy not in plain.remedy


def test_a_flag_that_is_left_off_is_named_where_the_others_are_on() -> None:
    allowed = spec(determinism=Determinism(allow=(AllowedFlag("MKL_CBWR", "slow"),)))
    (reason,) = decide(
        Findings(spec=allowed, comparisons=(PARTED,), runs=(), checklist=PASSED, cost=None)
    )[1]
    assert "seed 42 and all determinism flags on but MKL_CBWR diverge" in reason.message


def test_a_cost_that_could_not_be_measured_is_said() -> None:
    assert decided(cost=None) == ("pass", [], ["cost/not-measured"])


def test_what_lies_beside_is_a_notice_and_never_a_failure() -> None:
    unrecorded = {
        "unrecorded/files": ("1 file that the runs wrote differs", "declare it"),
        "unrecorded/log": ("a printed number differs", ""),
    }
    assert decided(unrecorded=unrecorded) == ("pass", [], ["unrecorded/files", "unrecorded/log"])


def test_a_check_that_failed_is_a_fail() -> None:
    assert decided(checklist=(*PASSED, FAILED)) == ("fail", ["data/x"], [])
    assert decided(checklist=(*PASSED, replace(FAILED, status="warn"))) == ("pass", [], [])


def test_a_run_that_could_not_be_had_is_inconclusive() -> None:
    assert decided(runs=(CRASHED,)) == ("inconclusive", ["run/crashed"], [])
    assert decided(interrupted="the gate was interrupted") == (
        "inconclusive",
        ["run/interrupted"],
        [],
    )
    assert decided(artifact_notes=("no file matches",)) == (
        "inconclusive",
        ["artifact/missing"],
        [],
    )
    assert decided(comparisons=()) == ("inconclusive", ["run/nothing-compared"], [])


def test_a_proof_outranks_a_run_that_could_not_be_had_and_both_are_said() -> None:
    assert decided(comparisons=(PARTED,), runs=(CRASHED,)) == (
        "fail",
        ["determinism/diverged", "run/crashed"],
        [],
    )
    assert decided(checklist=(FAILED,), comparisons=(), runs=()) == ("fail", ["data/x"], [])


def test_a_crash_in_one_run_alone_is_a_fail_and_one_in_both_is_one_reason() -> None:
    crashed = replace(
        run(
            "deterministic-2",
            A,
            outcome="crashed",
            problem="it exited with status 1",
            reason_id="run/crashed",
        )
    )
    ending = Divergence(
        step=2, kind="optimizer", name=STEPS, detail="deterministic-2 crashed after 2 steps"
    )
    alone = SeedResult(
        42, replace(SAME.comparison, identical=False, first_divergence=ending, unmatched=ending)
    )
    runs = (run("deterministic-1", A), crashed)
    assert decided(comparisons=(alone,), runs=runs) == (
        "fail",
        ["determinism/crashed", "run/crashed"],
        [],
    )
    assert decided(comparisons=(PARTED,), runs=runs)[:2] == (
        "fail",
        ["determinism/diverged", "run/crashed"],
    )
    both = replace(crashed, plan=replace(crashed.plan, name="deterministic-1")), crashed
    (reason,) = decide(
        Findings(spec=spec(), comparisons=(), runs=both, checklist=PASSED, cost=None)
    )[1]
    assert reason.message == "runs deterministic-1 and deterministic-2: it exited with status 1"


def test_data_that_git_ignores_is_told_of_a_crash_that_it_may_explain() -> None:
    crashed = run(
        "deterministic-1", A, outcome="crashed", problem="it exited", reason_id="run/crashed"
    )

    def told(ignored: dict[str, str], bare: object = None) -> list[str]:
        found = Findings(
            spec=spec(),
            comparisons=(),
            runs=(crashed,),
            checklist=PASSED,
            cost=None,
            ignored=ignored,
            bare=cast(Any, bare),
        )
        return [
            f"{item.id} {item.remedy}" if item.id == "run/ignored-data" else item.id
            for item in decide(found)[1]
        ]

    line = 'run/ignored-data declare what it reads in the spec: `data: [{path: "../a b"}]`'
    assert told({"../a b": "logger.py:3"}) == ["run/crashed", line]
    assert told({"../a b": "the log of deterministic-1"}) == [line, "run/crashed"]
    bare = replace(crashed, ended=replace(crashed.ended, exit_code=0))
    assert "run/ignored-data" not in " ".join(told({"data": "train.py:3"}, bare)), (
        "it comes through without, in a like workspace"
    )
    bare = replace(crashed, ended=replace(crashed.ended, exit_code=1))
    assert "run/ignored-data" in " ".join(told({"data": "train.py:3"}, bare))


def test_a_crash_says_whether_it_shows_without_the_gate_too() -> None:
    crashed = run(
        "deterministic-1",
        A,
        outcome="crashed",
        problem="it exited",
        reason_id="run/crashed",
        tail=("no luck",),
    )
    crashed = replace(crashed, remedy="see")

    def told(**ended: object) -> Reason:
        bare = replace(crashed, ended=replace(crashed.ended, **{"exit_code": 1, **ended}))
        return decide(
            Findings(
                spec=spec(), comparisons=(), runs=(crashed,), checklist=PASSED, cost=None, bare=bare
            )
        )[1][0]

    assert (told().message, told().remedy) == (
        "run deterministic-1: it exited, without the gate too",
        "it crashes without the gate too; see",
    )
    other = told(tail=("Traceback (most recent call last):", "KeyError: 1"))
    assert other.remedy == "it crashes without the gate too, there by KeyError: 1; see"
    for ended, came in (
        ({"exit_code": 0}, "came to its end"),
        ({"timed_out": True, "seconds": 30.0}, "was still running after 30 s"),
    ):
        only = told(**ended)
        assert (
            only.message == "run deterministic-1: it exited, only with the gate"
            and f"it {came}" in only.remedy
        )
        assert "determinism.allow" in only.remedy and "/issues" in only.remedy
    assert told(exit_code=None, signal=11).message.endswith("without the gate too")


def test_training_on_another_device_than_the_required_one_is_inconclusive() -> None:
    elsewhere = replace(FAILED, id="hardware/device", category="hardware")
    assert decided(checklist=(*PASSED, elsewhere)) == ("inconclusive", ["hardware/device"], [])
    assert decided(comparisons=(PARTED,), checklist=(*PASSED, elsewhere))[0] == "fail"


def test_runs_that_recorded_nothing_but_generator_states_are_inconclusive() -> None:
    bare = replace(
        SAME.comparison, by_kind={"rng": SAME.comparison.by_kind.get("rng", Tally(3, 0))}
    )
    assert decided(comparisons=(SeedResult(42, bare),)) == (
        "inconclusive",
        ["run/nothing-compared"],
        [],
    )


def test_an_artifact_that_was_not_compared_is_a_note_unless_nothing_else_was_or_its_copy_failed() -> (
    None
):
    fifo = Uncompared("out/fifo", "out/*", "in both runs it is a FIFO", same=True)
    assert decided(uncompared=(fifo,)) == ("pass", [], ["artifact/not-compared"])
    bare = replace(SAME.comparison, by_kind={"rng": Tally(3, 0)})
    found = decided(uncompared=(fifo,), comparisons=(SeedResult(42, bare),))
    assert found == ("inconclusive", ["run/nothing-compared", "artifact/not-compared"], [])
    lost = Uncompared(
        "out/m.pt",
        "out/*",
        "in the second run it could not be copied: No space left on device",
        same=False,
    )
    assert decided(uncompared=(lost,)) == ("inconclusive", ["artifact/not-compared"], [])
    (reason,) = decide(
        Findings(
            spec=spec(),
            comparisons=(SAME,),
            runs=(run("a", A),),
            checklist=PASSED,
            cost=COST,
            uncompared=(lost,),
        )
    )[1]
    assert reason.message.startswith(
        "capture.artifacts 'out/*' matches out/m.pt, which was not compared: in the second run it"
    )


def test_a_varied_run_that_ended_badly_counts_unless_what_was_varied_explains_it() -> None:
    crashed = run(
        "deterministic-2",
        A,
        outcome="crashed",
        problem="it exited with status 1",
        reason_id="run/crashed",
    )
    varied = replace(crashed, plan=replace(crashed.plan, varied=frozenset(["path"])))
    runs = (run("deterministic-1", A), varied, run("deterministic-3", A))
    assert decided(runs=runs) == ("inconclusive", ["run/crashed"], [])
    assert decided(runs=runs, not_robust=frozenset(["deterministic-2"])) == ("pass", [], [])


def test_a_category_of_which_nothing_was_shown_is_a_fail_unless_runs_are_missing() -> None:
    assert decided(checklist=PASSED[1:]) == ("fail", ["checklist/uncovered"], [])
    assert decided(checklist=PASSED[1:], runs=(CRASHED,)) == ("inconclusive", ["run/crashed"], [])
    assert decided(checklist=(*PASSED[1:], replace(PASSED[0], status="fail"))) == (
        "fail",
        ["code/x"],
        [],
    )


@pytest.mark.parametrize(
    ("most", "verdict"),
    [(None, "pass"), (30.0, "pass"), (18.0, "pass"), (15.0, "pass"), (14.9, "fail")],
)
def test_the_whole_interval_must_lie_above_the_budget(most: float | None, verdict: str) -> None:
    found = decided(cost=COST, spec=spec(cost=CostBudget(True, most)))
    assert found == (verdict, ["cost/over-budget"] if verdict == "fail" else [], [])


def test_a_budget_that_could_not_be_judged_is_inconclusive() -> None:
    budget = spec(cost=CostBudget(True, 30.0))
    assert decided(cost=None, spec=budget) == ("inconclusive", ["cost/not-measured"], [])
    assert decided(spec=budget, runs=(CRASHED,))[1] == ["run/crashed"]
    assert decided(cost=None, spec=spec(cost=CostBudget(False, 30.0))) == ("pass", [], [])
    assert decided(spec=spec()) == ("pass", [], [])


def test_a_tolerance_decides_where_one_is_asked_for() -> None:
    loose = spec(determinism=Determinism(Tolerance(1e-3, 1e-3)))
    near, far = (
        SeedResult(42, compare_runs([A], [with_loss(A, 1, 0.5 + gap)])) for gap in (1e-4, 1e-2)
    )
    assert decided(spec=loose) == ("pass", [], [])
    assert decided(spec=loose, comparisons=(near,)) == (
        "pass",
        [],
        ["determinism/within-tolerance"],
    )
    assert decided(spec=loose, comparisons=(far,)) == (
        "fail",
        ["determinism/outside-tolerance"],
        [],
    )


def test_what_is_worth_knowing_is_noted_once() -> None:
    noted = replace(A, notes=[("state-not-kept", "too little room")] * 2)
    assert decided(runs=(run("deterministic-1", noted, left=2),))[2] == [
        "run/left-running",
        "probe/state-not-kept",
    ]
    assert decided(spec=spec(determinism=Determinism(allow=(AllowedFlag("MKL_CBWR", "slow"),))))[
        2
    ] == ["determinism/flag-allowed"]


def test_a_series_that_stopped_at_its_divergence_fails_for_that_alone() -> None:
    ended = run(
        "deterministic-2",
        A,
        outcome="interrupted",
        problem="it had diverged",
        reason_id="run/ended-early",
    )
    found = decided(
        comparisons=(PARTED,),
        runs=(ended,),
        checklist=PASSED[1:],
        stopped_early=True,
        cost=None,
        spec=spec(cost=CostBudget(True, 30.0)),
    )
    assert found == ("fail", ["determinism/diverged"], ["run/fail-fast"])


def held(status: str, **more: Any) -> BaselineFinding:
    """What the baseline says, with one status."""
    return BaselineFinding(status=status, message=f"it is {status}", remedy="look", **more)


@pytest.mark.parametrize(
    ("finding", "notice", "strict"),
    [
        (held("unchanged"), [], []),
        (held("no-op"), [], []),
        (held("changed"), [], ["baseline/changed"]),
        (held("new-platform"), [], []),
        (held("new-platform", unknown_recipe=True), [], ["baseline/new-platform"]),
        (held("drift"), ["baseline/drift"], ["baseline/drift"]),
    ],
)
def test_drift_always_fails_and_a_change_where_the_spec_says_so(
    finding: BaselineFinding, notice: list[str], strict: list[str]
) -> None:
    for rule, reasons in (("notice", notice), ("fail", strict)):
        assert decided(spec=replace(spec(), baseline=BaselineRule(rule)), baseline=finding) == (
            "fail" if reasons else "pass",
            reasons,
            [],
        )


def test_a_baseline_that_cannot_be_compared_with_the_runs_is_said() -> None:
    assert decided(not_compared="the runs are not the same bits") == (
        "pass",
        [],
        ["baseline/not-compared"],
    )
    strict = replace(spec(), baseline=BaselineRule("fail"))
    assert decided(spec=strict, not_compared="the runs are not the same bits") == (
        "inconclusive",
        ["baseline/not-compared"],
        [],
    )
    assert decided(spec=strict, not_compared="so", comparisons=(PARTED,)) == (
        "fail",
        ["determinism/diverged"],
        [],
    )


@pytest.mark.parametrize(
    ("status", "notice", "strict"),
    [
        ("unchanged", "pass", "pass"),
        ("no-op", "pass", "pass"),
        ("changed", "pass", "fail"),
        ("inconclusive", "inconclusive", "inconclusive"),
    ],
)
def test_another_refs_bits(status: str, notice: str, strict: str) -> None:
    finding = AgainstFinding(ref="main", commit="a" * 40, status=status, message="as it is")
    for rule, verdict in (("notice", notice), ("fail", strict)):
        assert (
            decided(spec=replace(spec(), baseline=BaselineRule(rule)), against=finding)[0]
            == verdict
        )
    assert decided(against=finding, comparisons=(PARTED,))[1] == ["determinism/diverged"], (
        "what is known comes first"
    )


@pytest.mark.parametrize(
    ("bounds", "budget", "reasons"),
    [
        ((5.5, 9.0), 5, ["cost/regression"]),
        ((4.0, 9.0), 5, []),
        ((-2.0, 1.0), 0, []),
        ((5.5, 9.0), None, []),
    ],
)
def test_a_change_is_too_slow_only_where_the_whole_interval_is(
    bounds: tuple[float, float], budget: float | None, reasons: list[str]
) -> None:
    speed = tuple(
        SpeedChange(arm=arm, slower_pct=7.0, ci95=(bounds[0] + more, bounds[1] + more), runs=2)
        for arm, more in ARMS.items()
    )
    finding = AgainstFinding(
        ref="main", commit="a" * 40, status="no-op", message="as it is", speed=speed
    )
    found = decided(
        spec=replace(spec(), cost=CostBudget(max_regression_percent=budget)), against=finding
    )
    assert found[:2] == ("fail" if reasons else "pass", reasons)


ARMS = {"deterministic": 0.0, "default": 50.0}  # the default arm has no budget


def test_a_reason_shows_the_first_of_what_was_seen() -> None:
    item = replace(FAILED, evidence=("one", "two", "three", "four"))
    (reason,) = decide(
        Findings(spec=spec(), comparisons=(SAME,), runs=(), checklist=(*PASSED, item), cost=COST)
    )[1]
    assert reason.message == "wrong sum: one; two; three"
