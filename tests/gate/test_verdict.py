"""The verdict: proof that training is not reproducible outranks what could not be known, and
nothing unknown passes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.ignored import Undeclared
from repro_gate.checks.interface import CATEGORIES, CheckResult, EvidenceLine
from repro_gate.commands import init
from repro_gate.compare.model import STEPS, Cost, Divergence, SpeedChange, Tally
from repro_gate.compare.traces import compare_runs
from repro_gate.gate.verdict import STEPS_OF_INIT, Findings, decide
from repro_gate.report.model import Reason
from repro_gate.runs.launch import RunResult
from repro_gate.runs.reading import Uncompared
from repro_gate.runs.results import Varied
from repro_gate.spec.model import (
    AllowedFlag,
    BaselineRule,
    CostBudget,
    DataItem,
    Determinism,
    Tolerance,
    Train,
)
from repro_gate.trace.fields import Location
from tests.support.built_traces import (
    changed,
    flip,
    place_of,
    results,
    run,
    spec,
    training,
    with_loss,
)
from tests.support.reports import WHY

A = training()
EMPTY = replace(A, blocks=[block for block in A.blocks if block.kind == "rng"])
SAME = compare_runs([A], [A])
APART = compare_runs([A], [changed(A, place_of(A, 1, "gradient"), flip(0))])
DIVERGED = {42: APART}
RECORDING = spec(determinism=Determinism(repeat=1), cost=CostBudget(measure=False))
ALONE = {"spec": RECORDING, "runs": (run("deterministic-1", A),), "comparisons": {}}
ONLY_RNG = {42: replace(SAME, by_kind={"rng": Tally(3, 0)})}
NEAR, FAR = ({42: compare_runs([A], [with_loss(A, 1, 0.5 + gap)])} for gap in (1e-4, 1e-2))
PASSED = tuple(
    CheckResult(id=f"{name}/x", category=name, status="pass", message="") for name in CATEGORIES
)
FAILED = replace(PASSED[1], status="fail", message="wrong sum")
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
FIRST = run("deterministic-1", A)
NOTED = replace(A, notes=[("state-not-kept", "too little room")] * 2)
FIFO = Uncompared("out/fifo", "out/*", "in both runs it is a FIFO", no_file=True)
LOST = Uncompared("out/m.pt", "out/*", "in the second run it could not be copied", no_file=False)


def crashed(name: str, *traces: Any, **more: Any) -> RunResult:
    given = {"outcome": "crashed", "problem": "it exited", "reason_id": "run/crashed", **more}
    return run(name, *traces, **given)


CRASHED = crashed("default-1")
SECOND = crashed("deterministic-2", A)
KILLED = replace(SECOND, reason_id="run/out-of-memory")  # by the machine, not by the training
ENDING = Divergence(step=2, kind="optimizer", name=STEPS, detail="deterministic-2 crashed")
ENDED_ALONE = {42: replace(SAME, identical=False, first_divergence=ENDING, unmatched=ENDING)}
VARIED = (FIRST, SECOND, run("deterministic-3", A))
STOPPED = {
    "comparisons": DIVERGED,
    "runs": (crashed("deterministic-2", A, outcome="interrupted", reason_id="run/ended-early"),),
    "checklist": PASSED[1:],
    "fail_fast": True,
    "cost": None,
    "spec": BUDGET,
}


def findings(*runs: RunResult, **changes: Any) -> Findings:
    """Findings of these runs that pass but for the changes."""
    own = {field.name for field in fields(Findings)} & changes.keys()
    return Findings(
        results=results(
            *runs, **{name: value for name, value in changes.items() if name not in own}
        ),
        **{"checklist": PASSED, **{name: changes[name] for name in own}},
    )


def decided(**changes: Any) -> tuple[str, list[str], list[str]]:
    """(verdict, ids of the reasons, ids of the notes) of a gate run that passes but for these
    changes."""
    runs = changes.pop("runs", (FIRST, run("deterministic-2", A)))
    verdict, reasons, notes = decide(
        findings(*runs, **{"comparisons": {42: SAME}, "cost": COST, **changes})
    )
    return verdict, [item.id for item in reasons], [item.id for item in notes]


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons", "notes"),
    [
        ({}, "pass", "", ""),
        ({"comparisons": {42: SAME, 7: APART}}, "fail", "determinism/diverged", ""),
        # what no optimizer moves is a notice and never a failure
        ({"unrecorded": {"unrecorded/files": ("x", "")}}, "pass", "", "unrecorded/files"),
        ({"checklist": (*PASSED, FAILED)}, "fail", "data/x", ""),
        ({"checklist": (*PASSED, replace(FAILED, status="warn"))}, "pass", "", ""),
        # a run that could not be had
        ({"runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        ({"interrupted": "so"}, "inconclusive", "run/interrupted", ""),
        ({"runs": (replace(FIRST, unmatched=("out/*",)), run("deterministic-2", A))}, "inconclusive", "artifact/missing", ""),
        ({"comparisons": {}}, "inconclusive", "run/nothing-compared", ""),
        ({"comparisons": ONLY_RNG}, "inconclusive", "run/nothing-compared", ""),
        # a proof outranks it, and both are said
        ({"comparisons": DIVERGED, "runs": (CRASHED,)}, "fail", "determinism/diverged run/crashed", ""),
        ({"checklist": (FAILED,), "comparisons": {}, "runs": ()}, "fail", "data/x", ""),
        # one of two that crashed alone, by itself or by the machine
        ({"comparisons": ENDED_ALONE, "runs": (FIRST, SECOND)}, "fail", "determinism/crashed run/crashed", ""),
        ({"comparisons": ENDED_ALONE, "runs": (FIRST, KILLED)}, "fail", "determinism/diverged run/out-of-memory", ""),
        # a varied one, which what was varied may explain
        ({"runs": VARIED}, "inconclusive", "run/crashed", ""),
        ({"runs": VARIED, "varied": {42: Varied(SECOND, None, same=False)}}, "pass", "", ""),
        # another device than the required one
        ({"checklist": (*PASSED, ELSEWHERE)}, "inconclusive", "hardware/device", ""),
        ({"checklist": (*PASSED, ELSEWHERE), "comparisons": DIVERGED}, "fail", "determinism/diverged hardware/device", ""),
        # an artifact that was not compared is a note, unless nothing else was or its copy failed
        ({"uncompared": (FIFO,)}, "pass", "", "artifact/not-compared"),
        ({"uncompared": (FIFO,), "comparisons": ONLY_RNG}, "inconclusive", "run/nothing-compared artifact/not-compared", ""),
        ({"uncompared": (LOST,)}, "inconclusive", "artifact/not-compared", ""),
        # a recording compares nothing and covers nothing, and what is wrong is wrong
        (ALONE, "recorded", "", ""),
        ({**ALONE, "checklist": ()}, "recorded", "", ""),
        ({**ALONE, "runs": (run("deterministic-1", EMPTY),)}, "inconclusive", "run/nothing-compared", ""),
        ({**ALONE, "runs": (crashed("deterministic-1"),)}, "inconclusive", "run/crashed", ""),
        ({**ALONE, "checklist": (*PASSED, FAILED)}, "fail", "data/x", ""),
        # a category of which nothing was shown
        ({"checklist": PASSED[1:]}, "fail", "checklist/uncovered", ""),
        ({"checklist": PASSED[1:], "runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        ({"checklist": (*PASSED[1:], replace(PASSED[0], status="fail"))}, "fail", "code/x", ""),
        # a cost, and a budget that could not be judged
        ({"cost": None}, "pass", "", "cost/not-measured"),
        ({"cost": None, "spec": BUDGET}, "inconclusive", "cost/not-measured", ""),
        ({"spec": BUDGET, "runs": (CRASHED,)}, "inconclusive", "run/crashed", ""),
        ({"cost": None, "spec": spec(cost=CostBudget(False, 30.0))}, "pass", "", ""),
        ({"spec": LOOSE}, "pass", "", ""),
        ({"spec": LOOSE, "comparisons": NEAR}, "pass", "", "determinism/within-tolerance"),
        ({"spec": LOOSE, "comparisons": FAR}, "fail", "determinism/outside-tolerance", ""),
        # noted once
        ({"runs": (run("deterministic-1", NOTED, left=2),)}, "pass", "", "run/left-running probe/state-not-kept"),
        ({"spec": ALLOWED}, "pass", "", "determinism/flag-allowed"),
        ({"remarks": ("x",)}, "pass", "", "gate/remark"),
        ({"spec": replace(spec(), train=Train(run="x", steps=len(A.steps) + 1))}, "pass", "", "run/fewer-steps"),
        ({"spec": replace(spec(), train=Train(run="x", steps=len(A.steps)))}, "pass", "", ""),
        ({"comparisons": {42: replace(SAME, steps=1)}}, "pass", "", "run/one-step"),
        # nobody asked for as many steps as `init` writes
        ({"spec": replace(spec(), train=Train(run="x", steps=STEPS_OF_INIT))}, "pass", "", ""),
        # a series that stopped at its divergence fails for that alone
        (STOPPED, "fail", "determinism/diverged", "run/fail-fast"),
        # a baseline that cannot be compared with the runs
        ({"not_compared": True}, "pass", "", "baseline/not-compared"),
        ({"not_compared": True, "spec": spec(baseline=BaselineRule("fail"))}, "inconclusive", "baseline/not-compared", ""),
        ({"not_compared": True, "spec": spec(baseline=BaselineRule("fail")), "comparisons": DIVERGED}, "fail", "determinism/diverged", ""),
    ],
)  # fmt: skip
def test_a_proof_fails_what_is_unknown_is_inconclusive_and_the_rest_passes(
    changes: dict[str, Any], verdict: str, reasons: str, notes: str
) -> None:
    assert decided(**changes) == (verdict, reasons.split(), notes.split())


def test_the_remedy_of_a_divergence_is_that_of_its_cause_and_a_reason_names_its_place() -> None:
    for tolerance, identifier in (
        (None, "determinism/diverged"),
        (Tolerance(0.0, 0.0), "determinism/outside-tolerance"),
    ):
        apart = replace(APART, loss_gaps=((1, 0.5),))
        found = findings(spec=spec(determinism=Determinism(tolerance)), comparisons={42: apart})
        (plain,), (explained,) = decide(found)[1], decide(replace(found, diagnosis=WHY))[1]
        assert plain.id == explained.id == identifier and plain.message == explained.message
        assert explained.remedy.startswith(WHY.remedy) and WHY.remedy not in plain.remedy
    for first, place in (
        (Divergence(step=-1, kind="parameter", name="w"), "parameter w"),
        (Divergence(step=2, kind="artifact", name="m.pt"), "m.pt"),
        (Divergence(step=2, kind="loss", name="l"), "step 2"),
    ):
        message = only_reason(comparisons={7: replace(APART, first_divergence=first)}).message
        assert place in message and "seed 7" in message and "MKL_CBWR" not in message
    assert "MKL_CBWR" in only_reason(spec=ALLOWED, comparisons=DIVERGED).message
    message = only_reason(crashed("deterministic-1", A), SECOND).message
    assert "deterministic-1" in message and "deterministic-2" in message
    at = Location("train.py", 7)
    lines = (EvidenceLine("one"), EvidenceLine("two", at), *map(EvidenceLine, ("three", "four")))
    reason = only_reason(checklist=(*PASSED, replace(FAILED, evidence=lines)))
    assert reason.locations == (at,) and "three" in reason.message and "four" not in reason.message
    assert only_reason(checklist=(*PASSED, FAILED)).locations == ()


def only_reason(*runs: RunResult, **changes: Any) -> Reason:
    (reason,) = decide(findings(*runs, **changes))[1]
    return reason


def test_a_crash_says_what_may_explain_it_and_whether_it_shows_without_the_gate_too() -> None:
    for undeclared, bare_exit, ids in (
        (DATA, None, ["data/undeclared", "run/crashed"]),
        # it comes through without the gate, in a workspace that lacks the same
        (DATA, 0, ["run/crashed"]),
        (DATA, 1, ["data/undeclared", "run/crashed"]),
        ((), None, ["run/crashed"]),
    ):
        ended = crashed("deterministic-1", A)
        bare = replace(ended, ended=replace(ended.ended, exit_code=bare_exit))
        found = findings(ended, undeclared=undeclared, bare=None if bare_exit is None else bare)
        verdict, reasons, _ = decide(found)
        assert verdict == "inconclusive" and [item.id for item in reasons] == ids
        # the run without the gate lacks the data too, so it says nothing of the user's checkout
        assert len(ids) == 1 or "without the gate" not in str(reasons)
    for ending, message, remedy in (
        ({"exit_code": 1}, "without the gate too", "too; see"),
        ({"exit_code": 1, "tail": KEY_ERROR}, "without the gate too", "but with KeyError: 1; see"),
        ({"exit_code": -11}, "without the gate too", "too; see"),
        ({"exit_code": 0}, "only with the gate", "determinism.allow"),
        ({"exit_code": 1, "timed_out": True}, "only with the gate", "determinism.allow"),
    ):
        ended = replace(crashed("deterministic-1", A, tail=("no luck",)), remedy="see")
        bare = replace(ended, ended=replace(ended.ended, **ending))
        reason = only_reason(ended, bare=bare)
        assert reason.message.endswith(f"{message}: no luck") and remedy in reason.remedy
        # the control has another seed than the run without the gate
        control = replace(crashed("reseeded", A, tail=("no luck",)), remedy="see")
        assert message not in only_reason(control, bare=bare).message


DATA = (
    Undeclared("data/mnist/", 3, 9, Location("t.py", 2)),
    Undeclared("../a b"),
    Undeclared("1/", 10_001),
)


def test_undeclared_data_is_named_whole_with_a_block_for_the_spec() -> None:
    named = "`data/mnist/` (3 files), `../a b`, `1/` (more than 10,000 files)"
    reason = decide(findings(crashed("deterministic-1", A), undeclared=DATA))[1][0]
    assert reason.message == f"the training needs files that git ignores: {named}"
    assert '`data: [{path: data/mnist}, {path: ../a b}, {path: "1"}]`' in reason.remedy
    assert reason.locations == (Location("t.py", 2),)
    has_data = replace(spec(), data=(DataItem("x"),))
    reason = decide(findings(crashed("deterministic-1", A), undeclared=DATA, spec=has_data))[1][0]
    assert "add to `data:`" in reason.remedy and "{path: data/mnist}, {path" in reason.remedy
    # a run that came to its end is not judged for it
    assert decided(undeclared=DATA) == ("pass", [], ["data/undeclared"])


def test_a_crash_without_an_exception_quotes_what_its_log_ends_with() -> None:
    tail = ("usage: t.py", "t.py: error: --data is required", "/tmp/logs/t.log")
    reason = only_reason(crashed("deterministic-1", A, tail=tail))
    assert reason.message.endswith(": t.py: error: --data is required")


KEY_ERROR = ("Traceback (most recent call last):", "KeyError: 1")


def test_drift_always_fails_and_a_change_or_another_refs_where_the_spec_says_so() -> None:
    for status, more, notice, strict in (
        ("unchanged", {}, [], []),
        ("no-op", {}, [], []),
        ("changed", {}, [], ["baseline/changed"]),
        ("new-platform", {}, [], []),
        ("new-platform", {"unknown_recipe": True}, [], ["baseline/new-platform"]),
        ("drift", {}, ["baseline/drift"], ["baseline/drift"]),
    ):
        finding = BaselineFinding(status=status, message="so", remedy="look", **more)
        for rule, reasons in (("notice", notice), ("fail", strict)):
            judged = spec(baseline=BaselineRule(rule))
            found = decided(spec=judged, baseline=finding)
            assert found == ("fail" if reasons else "pass", reasons, [])
    for status, notice, strict in (
        ("unchanged", "pass", "pass"),
        ("no-op", "pass", "pass"),
        ("changed", "pass", "fail"),
        ("inconclusive", "inconclusive", "inconclusive"),
    ):
        finding = AgainstFinding(ref="main", commit="a" * 40, status=status, message="as it is")
        for rule, verdict in (("notice", notice), ("fail", strict)):
            assert decided(spec=spec(baseline=BaselineRule(rule)), against=finding)[0] == verdict
        # what is known comes first
        assert decided(against=finding, comparisons=DIVERGED)[1] == ["determinism/diverged"]


def test_the_steps_that_nobody_asked_for_are_those_of_init() -> None:
    assert f"\n  steps: {STEPS_OF_INIT}\n" in init._TEXT


def test_only_an_interval_that_lies_above_a_limit_as_a_whole_fails() -> None:
    for low, limit, over in (
        (5.1, 5.0, True),
        (5.0, 5.0, False),
        (4.9, 5.0, False),
        (-2.0, 0.0, False),
        (5.1, None, False),
    ):
        cost = replace(COST, ci95=(low, 9.0))
        found = decided(cost=cost, spec=spec(cost=CostBudget(True, limit)))
        assert found == (("fail", ["cost/over-budget"], []) if over else ("pass", [], []))
        cost = replace(cost, determinism_cost_pct=None)
        assert found == decided(cost=cost, spec=spec(cost=CostBudget(True, limit)))
        speed = tuple(
            SpeedChange(arm=arm, slower_pct=7.0, ci95=(low + more, 9.0 + more), runs=2)
            for arm, more in (("deterministic", 0.0), ("default", 50.0))  # the latter has no budget
        )
        against = AgainstFinding(
            ref="main", commit="a" * 40, status="no-op", message="", speed=speed
        )
        found = decided(against=against, spec=spec(cost=CostBudget(max_regression_percent=limit)))
        assert found == (("fail", ["cost/regression"], []) if over else ("pass", [], []))
