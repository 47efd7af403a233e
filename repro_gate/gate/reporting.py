"""Makes the Report of a gate run from its evidence and results: runs the checks, measures the cost,
decides the verdict."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import replace
from datetime import date
from pathlib import Path
from time import monotonic

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import Entry
from repro_gate.baseline.status import compare_entry
from repro_gate.checks import run_checks
from repro_gate.checks.ignored import undeclared_data
from repro_gate.checks.interface import Evidence
from repro_gate.compare.distances import losses_of
from repro_gate.compare.fingerprint import fingerprint
from repro_gate.compare.model import Fingerprint
from repro_gate.compare.operators import Operators
from repro_gate.compare.traces import processes
from repro_gate.gate.options import Options
from repro_gate.gate.preflight import explains
from repro_gate.gate.prepare import Job
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.model import (
    SCHEMA_ID,
    Determinism,
    Reason,
    Report,
    RunSummary,
    Subject,
    determinism,
)
from repro_gate.runs.launch import RunResult
from repro_gate.runs.results import Results
from repro_gate.sandbox.selection import SAME_USER_REMEDY

_LOG_LINES = 60  # of a run that ended badly
_NON_FINITE = 10  # losses that are named one by one


def report_of(
    job: Job,
    evidence: Evidence,
    findings: Findings,
    entry: Entry | None,
    hashed: ConfigHash | None,
    operators: Operators | None,
    notes: tuple[Reason, ...],
) -> Report:
    """Return the report of one gate run. `findings` hold the results of the runs, `entry` is the
    baseline entry, `notes` say why operators were not measured."""
    options = job.options
    results = findings.results
    recorded = job.policy.baseline
    baseline = None
    if recorded and entry:
        baseline = compare_entry(recorded, entry, findings.baseline_change)
    is_judged = bool(recorded) and not (options.record_baseline or options.record)
    cost = results.cost()
    findings = replace(
        findings,
        checklist=run_checks(evidence, date.today()),
        cost=cost and replace(cost, max_percent=results.spec.cost.max_percent),
        undeclared=undeclared_data(evidence),
        baseline=baseline if is_judged else None,
        not_compared=is_judged and entry is None,
        remarks=(*job.policy.notes, *evidence.notes, *results.notes),
    )
    verdict, reasons, own_notes = decide(findings)
    log = [line for run in results.runs if run.log_matters for line in run.ended.tail]
    report = Report(
        schema=SCHEMA_ID,
        verdict=verdict,
        tool_version=__version__,
        started=job.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(monotonic() - job.clock, 3),
        subject=_subject(options, evidence),
        reasons=reasons,
        notes=(
            *own_notes,
            *dict.fromkeys((*job.notes, *explains(log, job.facts))),
            *notes,
            *(
                Reason("sandbox/same-user", it, SAME_USER_REMEDY)
                for it in options.sandbox.notes
            ),
        ),
        determinism=_determinism(results),
        diagnosis=findings.diagnosis,
        robust=findings.robust,
        noise_floor=results.floor,
        cost=findings.cost,
        operators=operators,
        checklist=findings.checklist,
        runs=tuple(map(_summary, (*results.runs, *results.of_cost))),
        fingerprint=_fingerprint(results),
        config_hash=hashed,
        baseline=baseline,
        against=findings.against,
        change=findings.against_change or findings.baseline_change,
        resume=findings.resumed.resumption() if findings.resumed else None,
        equivalences=findings.equivalences.found,
        base=job.policy.base,
    )
    return replace(report, reproduce=_reproduce(options, report))


def _determinism(results: Results) -> Determinism | None:
    """Return the comparison of all seeds' runs, with the flags and non-finite losses of the first
    run."""
    first = next(iter(results.pair()), None)
    answers = []
    for seed, comparison in results.comparisons.items():
        runs, failed = results.counts(seed)
        answer = Determinism(**vars(comparison), seed=seed, runs=runs, failed=failed)
        answers.append(answer)
    return determinism(
        answers,
        determinism_settings=_settings(first) if first else {},
        non_finite=_non_finite(first) if first else (),
        tolerance=results.spec.determinism.tolerance,
    )


def _fingerprint(results: Results) -> Fingerprint | None:
    """Return the fingerprint of the first run. It leaves generator states out if only these differ
    between two runs."""
    comparison = results.comparison
    rng = comparison.by_kind.get("rng") if comparison and comparison.identical else None
    unsteady = "rng" if rng and rng.differing else ""
    for first in results.pair():
        return fingerprint(first.traces, first.arm.seed, unsteady)
    return None


def _subject(options: Options, evidence: Evidence) -> Subject:
    """Return the facts about what was gated. The spec is named by its path in the checkout."""
    spec = evidence.spec
    root = evidence.root
    path = Path(os.path.realpath(spec.path))
    facts = next((trace.facts for _, trace in evidence.trained), {})
    return Subject(
        spec=path.relative_to(root).as_posix()
        if path.is_relative_to(root)
        else options.spec_as_given,
        command=(spec.train.run or "(inline snippet)").strip(),
        commit=evidence.checkout.commit,
        uncommitted=evidence.checkout.uncommitted,
        seeds=spec.random_state.seeds,
        versions={
            name: value
            for name, value in facts.items()
            if name not in ("process", "interpreter")
        },
        sandbox=options.sandbox.level,
        machine=evidence.machine,
        gpus=evidence.given_gpus,
    )


def _settings(run: RunResult) -> dict[str, object]:
    """Return the flags as read back at the last step of a run."""
    trace = next(iter(processes(run.traces).values()), None)
    return dict(trace.settings[trace.steps[-1].flags]) if trace and trace.steps else {}


def _non_finite(run: RunResult) -> tuple[tuple[int, str], ...]:
    """Return the first losses that are not finite, with their steps."""
    losses = [
        (step, str(loss))
        for trace in processes(run.traces).values()
        for step, loss in losses_of(trace).items()
        if not math.isfinite(loss)
    ]
    return tuple(losses[:_NON_FINITE])


def _summary(run: RunResult) -> RunSummary:
    """Return one run as the report lists it. Its times are those of the slowest process."""
    times = [
        (
            sum(mark.ms for mark in trace.steps),
            sum(mark.probe_ms for mark in trace.steps),
        )
        for trace in run.traces
    ]
    step_ms, probe_ms = max(times, default=(0.0, 0.0))
    return RunSummary(
        name=run.name,
        arm=run.arm.name,
        seed=run.arm.seed,
        steps=run.steps,
        seconds=round(run.ended.seconds, 3),
        exit_code=run.ended.exit_code,
        outcome=run.outcome,
        processes=len(processes(run.traces)),
        step_seconds=round(step_ms / 1e3, 3),
        probe_seconds=round(probe_ms / 1e3, 3),
        settings=_settings(run),
        log_tail=run.ended.tail[-_LOG_LINES:] if run.log_matters else (),
        artifacts=sum(item.readable for item in run.artifacts.values()),
    )


def _reproduce(options: Options, report: Report) -> str:
    """Return one command that reproduces the finding. If runs diverge, it is limited to one seed
    and the steps up to the divergence."""
    command = ["repro-gate", "run", options.spec_as_given]
    for item in options.overrides:
        command += ["--set", item]
    if report.determinism is not None and report.determinism.narrowed:
        return shlex.join((*command, *report.determinism.narrowed))
    if options.only:
        command += ["--only", options.only]
    command += ["--quick"] * options.quick + ["--record"] * options.record
    base = options.base
    if base is None and options.policy == "base" and report.base is not None:
        # A GitHub variable named the base; it is not set on a person's machine.
        base = report.base.ref
    for name, value in (
        ("--seed", options.seed),
        ("--steps", options.steps),
        ("--against", options.against),
        ("--against-env", options.against_env),
        ("--base", base),
        ("--policy", options.policy),
    ):
        command += [name, str(value)] if value is not None else []
    return shlex.join(command)
