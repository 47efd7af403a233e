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
from repro_gate.runs.launch import Run
from repro_gate.runs.reading import Uncompared
from repro_gate.spec.model import AllowedFlag, BaselineRule, CostBudget, Determinism, Tolerance
from tests.support.built_traces import changed, flip, place_of, run, spec, training, with_loss
from tests.support.reports import WHY

A = training()
SAME = SeedResult(42, compare_runs([A], [A]))
PARTED = SeedResult(42, compare_runs([A], [changed(A, place_of(A, 1, "gradient"), flip(0))]))
RNG = SeedResult(42, replace(SAME.comparison, by_kind={"rng": Tally(3, 0)}))
NEAR, FAR = (
    SeedResult(42, compare_runs([A], [with_loss(A, 1, 0.5 + gap)])) for gap in (1e-4, 1e-2)
)
PASSED = tuple(
    CheckResult(id=f"{name}/x", category=name, status="pass", message="") for name in CATEGORIES
)
FAILED = replace(PASSED[1], status="fail", message="wrong sum", evidence=("train.bin",))
ELSEWHERE = replace(FAILED, id="hardware/device", category="hardware")
COST = Cost(
    determinism_cost_pct=20.0,
    ci95=(15.0, 25.0),
    deterministic_step_ms=12.0,
    default_step_ms=10.0,
    timed_steps=90,
)
ALLOWED = spec(determinism=Determinism(allow=(AllowedFlag("MKL_CBWR", "slow"),)))
LOOSE = spec(determinism=Determinism(Tolerance(1e-3, 1e-3)))
BUDGET = spec(cost=CostBudget(True, 30.0))
NOTED = replace(A, notes=[("state-not-kept", "too little room")] * 2)
FIFO = Uncompared("out/fifo", "out/*", "in both runs it is a FIFO", same=True)
LOST = Uncompared("out/m.pt", "out/*", "in the second run it could not be copied", same=False)


def crashed(name: str, *traces: Any, **more: Any) -> Run:
    given = {"outcome": "crashed", "problem": "it exited", "reason_id": "run/crashed", **more}
    return run(name, *traces, **given)


CRASHED = crashed("default-1")
SECOND = crashed("deterministic-2", A)
ENDING = Divergence(step=2, kind="optimizer", name=STEPS, detail="deterministic-2 crashed")
ALONE = SeedResult(
    42, replace(SAME.comparison, identical=False, first_divergence=ENDING, unmatched=ENDING)
)
VARIED = (
    run("deterministic-1", A),
    replace(SECOND, plan=replace(SECOND.plan, varied=frozenset(["path"]))),
    run("deterministic-3", A),
)
STOPPED = {
    "comparisons": (PARTED,),
    "runs": (crashed("deterministic-2", A, outcome="interrupted", reason_id="run/ended-early"),),
    "checklist": PASSED[1:],
    "stopped_early": True,
    "cost": None,
    "spec": BUDGET,
}


def decided(**changes: Any) -> tuple[str, list[str], list[str]]:
    """(verdict, ids of the reasons, ids of the notes) of findings that pass but for these
    changes."""
    runs = (run("deterministic-1", A), run("deterministic-2", A))
    given = {"comparisons": (SAME,), "runs": runs, "cost": COST, **changes}
    verdict, reasons, notes = decide(findings(**given))
    return verdict, [item.id for item in reasons], [item.id for item in notes]


def findings(**given: Any) -> Findings:
    """Findings without runs, all checks of which passed, but for what is given."""
    return Findings(
        **{
            "spec": spec(),
            "comparisons": (),
            "runs": (),
            "checklist": PASSED,
            "cost": None,
            **given,
        }
    )


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons", "notes"),
    [
        ({}, "pass", "", ""),
        ({"comparisons": (SAME, PARTED)}, "fail", "determinism/diverged", ""),
        # what lies beside is a notice and never a failure
        ({"unrecorded": {"unrecorded/files": ("x", "")}}, "pass", "", "unrecorded/files"),
        ({"checklist": (*PASSED, FAILED)}, "fail", "data/x", ""),
        ({"checklist": (*PASSED, replace(FAILED, status="warn"))}, "pass", "", ""),
        # a run that could not be had
        ({"runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        ({"interrupted": "so"}, "inconclusive", "run/interrupted", ""),
        ({"artifact_notes": ("no file matches",)}, "inconclusive", "artifact/missing", ""),
        ({"comparisons": ()}, "inconclusive", "run/nothing-compared", ""),
        ({"comparisons": (RNG,)}, "inconclusive", "run/nothing-compared", ""),
        # a proof outranks it, and both are said
        (
            {"comparisons": (PARTED,), "runs": (CRASHED,)},
            "fail",
            "determinism/diverged run/crashed",
            "",
        ),
        ({"checklist": (FAILED,), "comparisons": (), "runs": ()}, "fail", "data/x", ""),
        # one of two that crashed alone
        (
            {"comparisons": (ALONE,), "runs": (VARIED[0], SECOND)},
            "fail",
            "determinism/crashed run/crashed",
            "",
        ),
        # a varied one, which what was varied may explain
        ({"runs": VARIED}, "inconclusive", "run/crashed", ""),
        ({"runs": VARIED, "not_robust": frozenset(["deterministic-2"])}, "pass", "", ""),
        # another device than the required one
        ({"checklist": (*PASSED, ELSEWHERE)}, "inconclusive", "hardware/device", ""),
        (
            {"checklist": (*PASSED, ELSEWHERE), "comparisons": (PARTED,)},
            "fail",
            "determinism/diverged hardware/device",
            "",
        ),
        # an artifact that was not compared is a note, unless nothing else was or its copy failed
        ({"uncompared": (FIFO,)}, "pass", "", "artifact/not-compared"),
        (
            {"uncompared": (FIFO,), "comparisons": (RNG,)},
            "inconclusive",
            "run/nothing-compared artifact/not-compared",
            "",
        ),
        ({"uncompared": (LOST,)}, "inconclusive", "artifact/not-compared", ""),
        # a category of which nothing was shown
        ({"checklist": PASSED[1:]}, "fail", "checklist/uncovered", ""),
        ({"checklist": PASSED[1:], "runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        (
            {"checklist": (*PASSED[1:], replace(PASSED[0], status="fail"))},
            "fail",
            "code/x",
            "",
        ),
        # a cost, and a budget that could not be judged
        ({"cost": None}, "pass", "", "cost/not-measured"),
        ({"cost": None, "spec": BUDGET}, "inconclusive", "cost/not-measured", ""),
        ({"spec": BUDGET, "runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        ({"cost": None, "spec": spec(cost=CostBudget(False, 30.0))}, "pass", "", ""),
        ({"spec": LOOSE}, "pass", "", ""),
        ({"spec": LOOSE, "comparisons": (NEAR,)}, "pass", "", "determinism/within-tolerance"),
        ({"spec": LOOSE, "comparisons": (FAR,)}, "fail", "determinism/outside-tolerance", ""),
        # noted once
        (
            {"runs": (run("deterministic-1", NOTED, left=2),)},
            "pass",
            "",
            "run/left-running probe/state-not-kept",
        ),
        ({"spec": ALLOWED}, "pass", "", "determinism/flag-allowed"),
        # a series that stopped at its divergence fails for that alone
        (STOPPED, "fail", "determinism/diverged", "run/fail-fast"),
    ],
)
def test_a_proof_fails_what_is_unknown_is_inconclusive_and_the_rest_passes(
    changes: dict[str, Any], verdict: str, reasons: str, notes: str
) -> None:
    assert decided(**changes) == (verdict, reasons.split(), notes.split())


def test_the_remedy_of_a_divergence_is_that_of_its_cause() -> None:
    loose = spec(determinism=Determinism(tolerance=Tolerance(0.0, 0.0)))
    apart = replace(PARTED, comparison=replace(PARTED.comparison, loss_gaps=((1, 0.5),)))
    for made, identifier in (
        (spec(), "determinism/diverged"),
        (loose, "determinism/outside-tolerance"),
    ):
        found = findings(spec=made, comparisons=(apart,))
        (plain,), (explained,) = decide(found)[1], decide(replace(found, diagnosis=WHY))[1]
        assert plain.id == explained.id == identifier and plain.message == explained.message
        assert explained.remedy.startswith(WHY.remedy) and WHY.remedy not in plain.remedy


def test_a_reason_names_the_place_the_flag_that_is_off_both_runs_and_what_was_seen_first() -> None:
    def message(**given: Any) -> str:
        (reason,) = decide(findings(**given))[1]
        return reason.message

    for divergence, says in (
        (Divergence(step=-1, kind="parameter", name="w"), "before the first step (parameter w)"),
        (Divergence(step=2, kind="artifact", name="m.pt"), "diverge in artifact m.pt"),
        (Divergence(step=2, kind="loss", name="l"), "at step 2"),
    ):
        item = SeedResult(7, replace(PARTED.comparison, first_divergence=divergence))
        found = message(comparisons=(item,))
        assert says in found and "seed 7" in found
    assert "all determinism flags on but MKL_CBWR" in message(spec=ALLOWED, comparisons=(PARTED,))
    both = (crashed("deterministic-1", A), SECOND)
    assert message(runs=both) == "runs deterministic-1 and deterministic-2: it exited"
    seen = replace(FAILED, evidence=("one", "two", "three", "four"))
    checklist = (*PASSED, seen)
    assert message(comparisons=(SAME,), checklist=checklist) == "wrong sum: one; two; three"


def test_data_that_git_ignores_is_told_of_a_crash_that_it_may_explain() -> None:
    ended = crashed("deterministic-1", A)

    def told(ignored: dict[str, str], bare: object = None) -> list[tuple[str, str]]:
        found = findings(runs=(ended,), ignored=ignored, bare=cast(Any, bare))
        return [(item.id, item.remedy) for item in decide(found)[1]]

    in_code = told({"../a b": "logger.py:3"})
    assert [identifier for identifier, _ in in_code] == ["run/crashed", "run/ignored-data"]
    assert in_code[1][1].endswith('`data: [{path: "../a b"}]`')
    assert told({"../a b": "the log of deterministic-1"})[0][0] == "run/ignored-data"
    for code, count in ((0, 1), (1, 2)):  # 0: it comes through without, in a like workspace
        bare = replace(ended, ended=replace(ended.ended, exit_code=code))
        assert len(told({"data": "train.py:3"}, bare)) == count


def test_a_crash_says_whether_it_shows_without_the_gate_too() -> None:
    ended = replace(crashed("deterministic-1", A, tail=("no luck",)), remedy="see")

    def told(**more: object) -> Reason:
        bare = replace(ended, ended=replace(ended.ended, **{"exit_code": 1, **more}))
        return decide(findings(runs=(ended,), bare=bare))[1][0]

    assert told().message.endswith("without the gate too") and told().remedy.endswith("; see")
    other = told(tail=("Traceback (most recent call last):", "KeyError: 1"))
    assert other.remedy == "it crashes without the gate too, there by KeyError: 1; see"
    for more in ({"exit_code": 0}, {"timed_out": True, "seconds": 30.0}):
        only = told(**more)
        assert only.message.endswith("only with the gate")
        assert "determinism.allow" in only.remedy and "/issues" in only.remedy
    assert told(exit_code=None, signal=11).message.endswith("without the gate too")


@pytest.mark.parametrize(
    ("most", "verdict"),
    [(None, "pass"), (30.0, "pass"), (18.0, "pass"), (15.0, "pass"), (14.9, "fail")],
)
def test_the_whole_interval_must_lie_above_the_budget(most: float | None, verdict: str) -> None:
    found = decided(cost=COST, spec=spec(cost=CostBudget(True, most)))
    assert found == (verdict, ["cost/over-budget"] if verdict == "fail" else [], [])


@pytest.mark.parametrize(
    ("status", "more", "notice", "strict"),
    [
        ("unchanged", {}, [], []),
        ("no-op", {}, [], []),
        ("changed", {}, [], ["baseline/changed"]),
        ("new-platform", {}, [], []),
        ("new-platform", {"unknown_recipe": True}, [], ["baseline/new-platform"]),
        ("drift", {}, ["baseline/drift"], ["baseline/drift"]),
    ],
)
def test_drift_always_fails_and_a_change_where_the_spec_says_so(
    status: str, more: dict[str, Any], notice: list[str], strict: list[str]
) -> None:
    finding = BaselineFinding(status=status, message="so", remedy="look", **more)
    for rule, reasons in (("notice", notice), ("fail", strict)):
        found = decided(spec=spec(baseline=BaselineRule(rule)), baseline=finding)
        assert found == ("fail" if reasons else "pass", reasons, [])


def test_a_baseline_that_cannot_be_compared_with_the_runs_is_said() -> None:
    strict, held = spec(baseline=BaselineRule("fail")), ["baseline/not-compared"]
    assert decided(not_compared="so") == ("pass", [], held)
    assert decided(spec=strict, not_compared="so") == ("inconclusive", held, [])
    diverged = decided(spec=strict, not_compared="so", comparisons=(PARTED,))
    assert diverged == ("fail", ["determinism/diverged"], [])


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
        assert decided(spec=spec(baseline=BaselineRule(rule)), against=finding)[0] == verdict
    # what is known comes first
    assert decided(against=finding, comparisons=(PARTED,))[1] == ["determinism/diverged"]


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
        for arm, more in (("deterministic", 0.0), ("default", 50.0))  # the latter has no budget
    )
    finding = AgainstFinding(ref="main", commit="a" * 40, status="no-op", message="", speed=speed)
    found = decided(spec=spec(cost=CostBudget(max_regression_percent=budget)), against=finding)
    assert found[:2] == ("fail" if reasons else "pass", reasons)
