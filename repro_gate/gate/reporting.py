"""Makes the Report of a gate run from its evidence and results: runs the checks, measures the cost,
asks for the verdict."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, Entry
from repro_gate.baseline.status import compare_entry
from repro_gate.checks import run_checks
from repro_gate.checks.ignored import ignored_data
from repro_gate.checks.interface import Evidence
from repro_gate.compare.cost import measure_cost
from repro_gate.compare.distances import losses_of
from repro_gate.compare.fingerprint import fingerprint
from repro_gate.compare.traces import processes
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.gate.base_policy import EffectivePolicy
from repro_gate.gate.options import Options
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.model import (
    BaseFinding,
    Reason,
    Report,
    RunSummary,
    SeedResult,
    Subject,
    determinism,
)
from repro_gate.runs.launch import Run
from repro_gate.runs.results import Results
from repro_gate.sandbox.selection import SAME_USER_REMEDY

_NOT_COMPARED = (
    "cannot compare this gate run with the baseline: its runs were not compared, are not bitwise "
    "identical, or did not train the checkout's code"
)


def findings_of(
    options: Options,
    evidence: Evidence,
    results: Results,
    *,
    policy: EffectivePolicy,
    diagnosis: Diagnosis | None,
    entry: Entry | None,
    against: AgainstFinding | None,
    bare: Run | None,
) -> Findings:
    """What the verdict rests on. `entry` is what a baseline would record, `bare` the run without
    the gate. What was recorded before does not judge what is to be recorded now."""
    on, off = results.timed_runs()
    compared = (
        None if policy.baseline is None or entry is None else compare_entry(policy.baseline, entry)
    )
    return Findings(
        spec=results.spec,
        comparisons=tuple(
            SeedResult(seed, comparison, results.compared(seed), results.failed(seed))
            for seed, comparison in results.comparisons.items()
        ),
        runs=results.runs,
        bare=bare,
        ignored=_ignored(evidence),
        not_robust=results.fragile,
        checklist=run_checks(evidence, date.today()),
        cost=measure_cost(on, off, results.spec.train.warmup),
        artifact_notes=results.artifact_notes,
        uncompared=results.uncompared,
        interrupted=results.interrupted,
        interrupted_by=results.interrupted_by,
        diagnosis=diagnosis,
        stopped_early=results.stopped_early,
        baseline=compared,
        recording=options.locking,
        against=against,
        not_compared=_NOT_COMPARED
        if policy.baseline is not None and entry is None and not options.locking
        else "",
        unrecorded=results.unrecorded,
        remarks=(*policy.notes, *evidence.notes, *results.notes),
    )


def make_report(
    options: Options,
    evidence: Evidence,
    results: Results,
    findings: Findings,
    *,
    hashed: ConfigHash | None,
    base: BaseFinding | None,
    before: tuple[Reason, ...],
    started: datetime,
    seconds: float,
) -> Report:
    """The whole report of one gate run. `before` is what the preflight saw that is worth knowing;
    `seconds` is how long it took."""
    verdict, reasons, notes = decide(findings)
    first = next(iter(results.pair()), None)
    report = Report(
        verdict=verdict,
        tool_version=__version__,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(seconds, 3),
        subject=_subject(options, evidence),
        reasons=reasons,
        notes=(
            *notes,
            *before,
            *(
                Reason("sandbox/same-user", note, SAME_USER_REMEDY)
                for note in options.sandbox.notes
            ),
        ),
        determinism=determinism(
            findings.comparisons,
            determinism_settings=_settings(first),
            non_finite=_non_finite(first),
            tolerance=results.spec.determinism.tolerance,
        ),
        diagnosis=findings.diagnosis,
        noise_floor=results.floor,
        cost=findings.cost and replace(findings.cost, max_percent=results.spec.cost.max_percent),
        checklist=findings.checklist,
        runs=tuple(
            _summary(
                run,
                sum(item.readable for item in results.artifacts.get(run.plan.name, {}).values()),
            )
            for run in results.runs
        ),
        fingerprint=fingerprint(first.traces, first.plan.arm.seed, _unsteady(evidence))
        if first
        else None,
        config_hash=hashed,
        baseline=findings.baseline,
        against=findings.against,
        base=base,
    )
    return replace(report, reproduce=_reproduce(options, report))


def _ignored(evidence: Evidence) -> dict[str, str]:
    """What `ignored_data` finds, by paths from the spec's folder, as `data:` has them."""
    return {
        os.path.relpath(evidence.root / path, evidence.folder): place
        for path, place in ignored_data(evidence).items()
    }


def _subject(options: Options, evidence: Evidence) -> Subject:
    spec = evidence.spec
    facts = next((trace.facts for _, trace in evidence.trained), {})
    return Subject(
        spec=_spec_path(options, evidence),
        command=(spec.train.run if spec.train.run is not None else "(inline snippet)").strip(),
        commit=evidence.commit,
        uncommitted=evidence.uncommitted,
        seeds=spec.random_state.seeds,
        versions={
            name: value for name, value in facts.items() if name not in ("process", "interpreter")
        },
        sandbox=options.sandbox.level,
    )


def _spec_path(options: Options, evidence: Evidence) -> str:
    """The spec's path in the checkout, with `/` between its parts: the same however it was named.
    As given where there is no checkout."""
    root = None if evidence.checkout is None else evidence.checkout.root
    path = os.path.realpath(evidence.spec.path)
    return (
        options.spec_as_given
        if root is None or not Path(path).is_relative_to(root)
        else Path(path).relative_to(root).as_posix()
    )


def _unsteady(evidence: Evidence) -> str:
    """The kind that no fingerprint may hold: the generators' states, where they alone differ
    between two runs."""
    comparison = evidence.comparison
    rng = comparison.by_kind.get("rng") if comparison is not None and comparison.identical else None
    return "rng" if rng is not None and rng.differing else ""


def _settings(run: Run | None) -> dict[str, object]:
    trace = next(iter(processes(run.traces).values()), None) if run else None
    return dict(trace.settings[trace.steps[-1].flags]) if trace and trace.steps else {}


def _non_finite(run: Run | None) -> tuple[tuple[int, str], ...]:
    found = [
        (step, str(loss))
        for trace in (processes(run.traces).values() if run else ())
        for step, loss in losses_of(trace).items()
        if not math.isfinite(loss)
    ]
    return tuple(found[:10])


def _summary(run: Run, artifacts: int) -> RunSummary:
    marks = max(
        (trace.steps for trace in run.traces),
        key=lambda steps: sum(mark.ms for mark in steps),
        default=[],
    )
    return RunSummary(
        name=run.plan.name,
        arm=run.plan.arm.name,
        seed=run.plan.arm.seed,
        steps=run.steps,
        seconds=round(run.ended.seconds, 3),
        exit_code=run.ended.exit_code,
        outcome=run.outcome,
        processes=len(processes(run.traces)),
        step_seconds=round(sum(mark.ms for mark in marks) / 1e3, 3),
        probe_seconds=round(sum(mark.probe_ms for mark in marks) / 1e3, 3),
        settings=_settings(run),
        log_tail=run.ended.tail[-60:] if run.log_matters else (),
        artifacts=artifacts,
    )


def _reproduce(options: Options, report: Report) -> str:
    """One command that shows the finding again: the spec, and where runs diverge, just the seed and
    the steps that it takes."""
    command = [
        "repro-gate",
        "run",
        options.spec_as_given,
        *(part for item in options.overrides for part in ("--set", item)),
    ]
    if report.determinism is not None and report.determinism.narrowed:
        command += report.determinism.narrowed
    else:
        command += ["--seed", str(options.seed)] if options.seed is not None else []
        command += ["--steps", str(options.steps)] if options.steps is not None else []
        base = options.base
        if base is None and options.policy == "base" and report.base is not None:
            # the job's own variable named it, and a person's machine has none
            base = report.base.ref
        for name, value in (
            ("--against", options.against),
            ("--base", base),
            ("--policy", options.policy),
        ):
            command += [name, value] if value is not None else []
    return shlex.join(command)
