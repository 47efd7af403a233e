"""From what was found to the verdict: which reasons speak for `fail`, which for `inconclusive`, and
what is worth knowing besides. Pure.

Proof that training is not reproducible outranks a run that could not be had: where both stand, the
verdict is `fail` and both are said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from repro_gate._version import DOCS_URL, ISSUES_URL
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks import uncovered
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import STEPS, Cost
from repro_gate.compare.nonfinite import nonfinite
from repro_gate.compare.tolerance import alike, outside_tolerance
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.findings import remedy_of
from repro_gate.report.model import Reason, SeedResult
from repro_gate.report.wording import place_of
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.ending import last_exception
from repro_gate.runs.flags import FILL
from repro_gate.runs.launch import Run
from repro_gate.runs.reading import Uncompared
from repro_gate.runs.results import RUN_AGAIN
from repro_gate.spec.model import Spec

_OF_ALL_RUNS = ("steps", "whole-run")  # notes of the probe that say the same of every run
_SHOWN = 3  # lines of a check's evidence in its reason
REQUIRED_DEVICE = (
    "hardware/device"  # training elsewhere says nothing about the device that the spec requires
)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the verdict rests on. `interrupted` is the reason for which the series ended early,
    where it did."""

    spec: Spec
    comparisons: tuple[SeedResult, ...]
    runs: tuple[Run, ...]
    bare: Run | None = None  # of a training that crashed, without the gate
    # data that git ignores -> where a training that crashed names it
    ignored: Mapping[str, str] = field(default_factory=dict)
    # names of varied runs that differ, or fail, because of what was varied
    not_robust: frozenset[str] = frozenset()
    checklist: tuple[CheckResult, ...]
    cost: Cost | None
    artifact_notes: tuple[str, ...] = ()
    uncompared: tuple[Uncompared, ...] = ()
    interrupted: str = ""
    interrupted_by: tuple[str, str] = RUN_AGAIN
    diagnosis: Diagnosis | None = None  # why the first seed that diverged did so
    stopped_early: bool = False  # --fail-fast ended the series at a divergence
    baseline: BaselineFinding | None = None
    recording: bool = (
        False  # this gate run is to be recorded, so what was recorded before does not judge it
    )
    against: AgainstFinding | None = None
    not_compared: str = ""  # why a baseline that is there says nothing about this gate run
    # id of a notice -> message and remedy
    unrecorded: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    remarks: tuple[
        str, ...
    ] = ()  # what the workspaces do not hold, what could not be read, and why


def decide(findings: Findings) -> tuple[str, tuple[Reason, ...], tuple[Reason, ...]]:
    """(verdict, reasons, notes)."""
    failed = _failed_checks(findings.checklist)
    failing = [
        *_diverged(findings),
        *_nonfinite(findings),
        *(item for item in failed if item.id != REQUIRED_DEVICE),
        *_over_budget(findings),
        *_slower(findings),
        *_changed(findings),
    ]
    open_questions = [
        *_inconclusive(findings),
        *(item for item in failed if item.id == REQUIRED_DEVICE),
    ]
    if findings.runs and not open_questions and not findings.stopped_early:
        failing += _uncovered(findings.checklist)
    notes = tuple(dict.fromkeys(_notes(findings)))
    if failing:
        return "fail", (*failing, *open_questions), notes
    if open_questions:
        return "inconclusive", tuple(open_questions), notes
    return "pass", (), notes


def _diverged(findings: Findings) -> Iterator[Reason]:
    tolerance, off = findings.spec.determinism.tolerance, findings.spec.determinism.allow
    flags = "all determinism flags on" + (
        f" but {', '.join(item.flag for item in off)}" if off else ""
    )
    for item in findings.comparisons:
        first = item.comparison.first_divergence
        if first is not None and _by_crash(findings, item):
            message = (
                f"two runs with seed {item.seed} and {flags} ended differently: {first.detail}"
            )
            remedy = (
                "see the exception; up to it the runs are bitwise identical, so look at what it "
                f"depends on ({DOCS_URL}/causes/README.md)"
            )
            yield Reason("determinism/crashed", message, remedy)
        elif first is not None and tolerance is None:
            message = (
                f"two runs with seed {item.seed} and {flags} diverge "
                f"{place_of(first, item.comparison.steps)}"
            )
            remedy = (
                "look for an unseeded random source or a nondeterministic op there "
                f"({DOCS_URL}/causes/README.md)"
            )
            remedy = remedy if findings.diagnosis is None else remedy_of(findings.diagnosis)
            yield Reason("determinism/diverged", message, remedy)
        elif first is not None and tolerance is not None:
            for sentence in outside_tolerance(item.comparison, tolerance):
                remedy = "lower the difference, or raise the tolerance with a reason"
                remedy = remedy if findings.diagnosis is None else remedy_of(findings.diagnosis)
                yield Reason(
                    "determinism/outside-tolerance", f"seed {item.seed}: {sentence}", remedy
                )


def _by_crash(findings: Findings, item: SeedResult) -> bool:
    """Whether a crash in one of two runs, or in each at another step, is all that tells them
    apart."""
    first = item.comparison.first_divergence
    runs = (
        run
        for run in findings.runs
        if run.plan.arm.name == "deterministic" and run.plan.arm.seed == item.seed
    )
    return (
        first is not None
        and (first.kind, first.name) == ("optimizer", STEPS)
        and any(crashed_by_itself(run) for run in runs)
    )


def _nonfinite(findings: Findings) -> Iterator[Reason]:
    """Numbers that were never finite repeat whatever the training does: such a run shows
    nothing."""
    if findings.spec.determinism.allow_nonfinite:
        return
    runs = [run for run in findings.runs if run.good and run.plan.arm.name == "deterministic"]
    default = next(
        (run.traces for run in findings.runs if run.good and run.plan.arm.name == "default"), None
    )
    found = (
        sentence
        for run in runs
        for sentence in nonfinite(run.traces, default, bool(run.plan.arm.flags.get(FILL)))
    )
    remedy = (
        "initialize what is named (torch.empty only reserves memory), or allow it: `determinism: "
        "{allow-nonfinite: true}`"
    )
    for sentence in dict.fromkeys(found):
        yield Reason("determinism/nonfinite", sentence, remedy)


def _failed_checks(checklist: Sequence[CheckResult]) -> list[Reason]:
    return [
        Reason(
            item.id,
            item.message
            + (f": {'; '.join(map(str, item.evidence[:_SHOWN]))}" if item.evidence else ""),
            item.remedy,
        )
        for item in checklist
        if item.status == "fail"
    ]


def _over_budget(findings: Findings) -> Iterator[Reason]:
    cost, most = findings.cost, findings.spec.cost.max_percent
    if cost is not None and most is not None and cost.ci95[0] > most:
        low, high = cost.ci95
        message = (
            f"determinism costs {cost.determinism_cost_pct:+.1f} % (95 % interval {low:+.1f} … "
            f"{high:+.1f} %), {most:g} % is allowed"
        )
        remedy = (
            "find the flag that costs most (often fill_uninitialized_memory) and allow it with a "
            "reason, or raise cost.max-percent"
        )
        yield Reason("cost/over-budget", message, remedy)


def _slower(findings: Findings) -> Iterator[Reason]:
    """Where the change makes a step slower than it may."""
    against, most = findings.against, findings.spec.cost.max_regression_percent
    if against is None or most is None:
        return
    for item in against.speed:
        if item.arm == "deterministic" and item.ci95[0] > most:
            low, high = item.ci95
            told = (
                f"with the flags a step is slower than at {against.ref} by {item.slower_pct:.1f} %"
            )
            message = f"{told} (95 % interval {low:+.1f} … {high:+.1f} %), {most:g} % is allowed"
            remedy = "make the change cheaper, or raise cost.max-regression-percent"
            yield Reason("cost/regression", message, remedy)


def _changed(findings: Findings) -> Iterator[Reason]:
    """Where a result is not the recorded one, or not the other ref's."""
    baseline, against, strict = (
        findings.baseline,
        findings.against,
        findings.spec.baseline.on_change == "fail",
    )
    if baseline is not None and not findings.recording:
        differs = baseline.status == "changed" or baseline.unknown_recipe
        if baseline.status == "drift" or (strict and differs):
            yield Reason(f"baseline/{baseline.status}", baseline.message, baseline.remedy)
    if against is not None and against.status == "changed" and strict:
        yield Reason(
            "against/changed",
            against.message,
            "make the change a no-op, or leave `baseline.on-change` at `notice`",
        )


def _inconclusive(findings: Findings) -> list[Reason]:
    identifier, remedy = findings.interrupted_by
    reasons = [Reason(identifier, findings.interrupted, remedy)] if findings.interrupted else []
    reasons += _not_answered(findings)
    lacking = list(_ignored(findings.ignored)) if _crashes_bare(findings.bare) is not False else []
    badly = _ended_badly(findings)
    reasons += (
        [*lacking, *badly]
        if any(place.startswith("the log of") for place in findings.ignored.values())
        else [*badly, *lacking]
    )
    failed = any(item.status == "fail" for item in findings.checklist)
    if _recorded_nothing(findings):
        message = "the runs recorded nothing but generator states"
        remedy = "record what is to be the same: repro_gate.record(name, value)"
        reasons.append(Reason("run/nothing-compared", message, remedy))
    elif not reasons and not findings.comparisons and not failed:
        reasons.append(Reason("run/nothing-compared", "no two runs could be compared"))
    if not reasons and findings.runs and findings.spec.cost.max_percent is not None:
        reasons += _cost_not_measured(findings)
    remedy = (
        "correct capture.artifacts, or leave train.steps out where the file is written at the end"
    )
    reasons += (Reason("artifact/missing", note, remedy) for note in findings.artifact_notes)
    return [
        *reasons,
        *(
            _uncompared(item)
            for item in findings.uncompared
            if not item.same or _recorded_nothing(findings)
        ),
    ]


def _uncompared(item: Uncompared) -> Reason:
    message = (
        f"capture.artifacts {item.glob!r} matches {item.name}, which was not compared: {item.why}"
    )
    remedy = (
        "name files that can be read"
        if item.same
        else "see why it could not be copied, and run the gate again"
    )
    return Reason("artifact/not-compared", message, remedy)


def _ended_badly(findings: Findings) -> list[Reason]:
    """Return a reason for each way in which runs ended badly, but for those that
    `random-state/robust` tells of."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for run in findings.runs:
        if run.log_matters and run.plan.name not in findings.not_robust:
            without, remedy = _without_gate(run, findings.bare)
            raised = last_exception(run.ended.tail) if run.outcome == "crashed" else ""
            text = ": ".join(filter(None, (run.problem + without, raised)))
            key = run.reason_id, text, remedy or run.remedy
            found.setdefault(key, []).append(run.plan.name)
    return [
        Reason(identifier, f"run{'s' * (len(names) > 1)} {' and '.join(names)}: {text}", remedy)
        for (identifier, text, remedy), names in found.items()
    ]


def _ignored(found: Mapping[str, str]) -> Iterator[Reason]:
    """The likeliest cause of a crash, and the line of the spec that mends it."""
    if found:
        names = ", ".join(f"{path} (named in {place})" for path, place in found.items())
        message = (
            "no workspace has what git ignores, the likeliest cause of the crash if the training "
            f"needs it: {names}"
        )
        lines = ", ".join(f"{{path: {json.dumps(path)}}}" for path in found)
        yield Reason(
            "run/ignored-data", message, f"declare what it reads in the spec: `data: [{lines}]`"
        )


def _without_gate(run: Run, bare: Run | None) -> tuple[str, str]:
    """Whether a crash shows without the gate too, as a clause, and what to do then; empty where
    nobody knows."""
    if (
        bare is None
        or run.outcome not in ("crashed", "killed")
        or run.plan.arm.name != "deterministic"
    ):
        return "", ""
    ended = bare.ended
    if _crashes_bare(bare):
        ours, theirs = last_exception(run.ended.tail), last_exception(ended.tail)
        other = f", there by {theirs}" if theirs and ours != theirs else ""
        return ", without the gate too", f"it crashes without the gate too{other}; {run.remedy}"
    came = (
        f"it was still running after {ended.seconds:.0f} s"
        if ended.timed_out
        else "it came to its end"
    )
    remedy = (
        f"without the gate {came}: leave out one flag after another (`determinism.allow`); if it "
        "crashes with all of them left out, the probe is to blame: please report the log's end at "
        f"{ISSUES_URL}"
    )
    return ", only with the gate", remedy


def _crashes_bare(bare: Run | None) -> bool | None:
    """Whether the training crashes without the gate; None where nobody knows."""
    return (
        None
        if bare is None
        else not bare.ended.timed_out
        and (bare.ended.signal is not None or bool(bare.ended.exit_code))
    )


def _not_answered(findings: Findings) -> Iterator[Reason]:
    """What was asked about the baseline, the config hash or another ref, and could not be
    answered."""
    diverged, against = any(True for _ in _diverged(findings)), findings.against
    if findings.not_compared and findings.spec.baseline.on_change == "fail" and not diverged:
        remedy = (
            "let the baseline compare bitwise identical runs, or leave `baseline.on-change` at "
            "`notice`"
        )
        yield Reason("baseline/not-compared", findings.not_compared, remedy)
    if against is not None and against.status == "inconclusive" and not diverged:
        remedy = "that ref's own runs must be reproducible first; or drop --against"
        yield Reason("against/inconclusive", f"--against {against.ref}: {against.message}", remedy)


def _recorded_nothing(findings: Findings) -> bool:
    """Return whether the runs of a seed were compared in generator states alone, and no such states
    differ."""
    empty = [
        item
        for item in findings.comparisons
        if not any(
            tally.tensors for kind, tally in item.comparison.by_kind.items() if kind != "rng"
        )
    ]
    return bool(empty) and all(item.comparison.identical for item in empty)


def _cost_not_measured(findings: Findings) -> Iterator[Reason]:
    spec = findings.spec
    if findings.cost is None and spec.cost.measure and not findings.stopped_early:
        message = (
            f"the cost was not measured: each run needs 3 steps after the {spec.train.warmup} of "
            "its warm-up"
        )
        yield Reason("cost/not-measured", message, "raise train.steps or lower train.warmup")


def _uncovered(checklist: Sequence[CheckResult]) -> Iterator[Reason]:
    failed = {item.category for item in checklist if item.status == "fail"}
    for category in uncovered(checklist):
        if category not in failed:
            message = f"category {category} has no passing check; each needs at least one"
            yield Reason(
                "checklist/uncovered", message, "the checklist says what each of its checks needs"
            )


def _notes(findings: Findings) -> Iterator[Reason]:
    spec = findings.spec
    yield from (Reason("gate/remark", note) for note in findings.remarks)
    if not _recorded_nothing(findings):
        yield from (_uncompared(item) for item in findings.uncompared if item.same)
    if findings.not_compared and spec.baseline.on_change != "fail":
        yield Reason("baseline/not-compared", findings.not_compared)
    yield from (
        Reason(name, message, remedy) for name, (message, remedy) in findings.unrecorded.items()
    )
    for run in findings.runs:
        if run.ended.left_running:
            yield Reason(
                "run/left-running",
                f"run {run.plan.name} left {run.ended.left_running} processes running; they were "
                "ended",
            )
        for identifier, message in (note for trace in run.traces for note in trace.notes):
            about = "" if identifier in _OF_ALL_RUNS else f"run {run.plan.name}: "
            yield Reason(f"probe/{identifier}", about + message)
    tolerance = spec.determinism.tolerance
    for item in findings.comparisons:
        if (
            tolerance is not None
            and not item.comparison.identical
            and alike(item.comparison, tolerance)
        ):
            within = (
                f"within the tolerance (loss {tolerance.loss:g}, weights {tolerance.weights:g})"
            )
            yield Reason(
                "determinism/within-tolerance",
                f"seed {item.seed}: the runs are not bitwise identical, but {within}",
            )
    if findings.stopped_early:
        unmeasured = ", so the cost was not measured" if findings.cost is None else ""
        yield Reason(
            "run/fail-fast",
            f"the runs after the divergence were left out (--fail-fast){unmeasured}",
        )
    good = not findings.interrupted and all(run.good for run in findings.runs)
    if good and spec.cost.max_percent is None:
        yield from _cost_not_measured(findings)
    for flag in spec.determinism.allow:
        yield Reason("determinism/flag-allowed", f"{flag.flag} is left off: {flag.reason}")
