"""From the runs of a gate run and what was found in them to the Report: calls the analysis, the checks and the verdict."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding, Entry
from repro_gate.checks import run_checks
from repro_gate.checks.interface import CheckResult, Evidence
from repro_gate.compare.cost import measure_cost
from repro_gate.compare.distances import losses_of
from repro_gate.compare.fingerprint import fingerprint
from repro_gate.compare.model import Cost
from repro_gate.compare.noise_floor import noise_floor
from repro_gate.compare.traces import processes
from repro_gate.gate.base_policy import EffectivePolicy
from repro_gate.gate.config_hash import compare_entry, unproven
from repro_gate.gate.options import Options
from repro_gate.gate.verdict import Findings, decide
from repro_gate.report.model import Reason, Report, RunSummary, SeedResult, Subject
from repro_gate.runs.launch import Run
from repro_gate.runs.series import Series
from repro_gate.sandbox.selection import SAME_USER_REMEDY
from repro_gate.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the report is made of, besides the series."""

    judged: EffectivePolicy
    evidence: Evidence
    hashed: ConfigHash | None
    entry: Entry | None
    against: AgainstFinding | None
    before: tuple[Reason, ...] = ()  # what the preflight saw that is worth knowing


def make_report(options: Options, series: Series, found: Found, started: datetime, seconds: float) -> Report:
    """The whole report of one gate run. `seconds` is how long it took."""
    evidence, spec = found.evidence, found.evidence.spec
    comparisons = tuple(SeedResult(seed, comparison) for seed, comparison in series.comparisons.items())
    checklist = run_checks(evidence, date.today())
    pairs = series.cost_pairs()
    cost = measure_cost(pairs, spec.train.warmup) if pairs else None
    defaults = series.default_pair()
    held = None if found.judged.baseline is None or found.entry is None else compare_entry(found.judged.baseline, found.entry)
    verdict, reasons, notes = decide(_findings(options, series, found, checklist, cost, held))
    weaker = tuple(Reason("isolation/same-user", note, SAME_USER_REMEDY) for note in options.isolation.notes)
    first = next(iter(series.pair()), None)
    report = Report(
        verdict=verdict,
        tool_version=__version__,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(seconds, 3),
        subject=_subject(spec, options, evidence, series.runs),
        reasons=reasons,
        notes=(*notes, *found.before, *weaker),
        comparisons=comparisons,
        settings=_settings(first),
        non_finite=_non_finite(first),
        noise_floor=series.floor or (noise_floor(*defaults) if defaults else None),
        cost=cost,
        cost_budget_pct=spec.cost.max_percent,
        checklist=checklist,
        runs=tuple(_summary(run, series.artifact_counts.get(run.plan.name, 0)) for run in series.runs),
        fingerprint=fingerprint(first.traces, first.plan.arm.seed, _unsteady(evidence)) if first else None,
        tolerance=spec.determinism.tolerance,
        config_hash=found.hashed,
        baseline=held,
        against=found.against,
        base=found.judged.base,
    )
    return replace(report, reproduce=_reproduce(options, report))


def _findings(
    options: Options, series: Series, found: Found, checklist: tuple[CheckResult, ...], cost: Cost | None, held: BaselineFinding | None
) -> Findings:
    """What the verdict is made of. What was recorded before does not judge what is to be recorded now."""
    return Findings(
        spec=found.evidence.spec,
        comparisons=tuple(SeedResult(seed, comparison) for seed, comparison in series.comparisons.items()),
        runs=tuple(series.runs),
        checklist=checklist,
        cost=cost,
        artifact_notes=series.artifact_notes,
        interrupted=series.interrupted,
        stopped_early=series.stopped_early,
        baseline=None if options.locking else held,
        against=found.against,
        not_compared="" if options.locking else _not_held(found),
        unproven=unproven(found.hashed),
        unrecorded=series.unrecorded,
        remarks=(*found.judged.notes, *found.evidence.notes, *series.notes),
    )


def _not_held(found: Found) -> str:
    """Why the baseline says nothing, where there is one."""
    if found.judged.baseline is None or found.entry is not None:
        return ""
    why = "its runs were not compared, are not bitwise identical, or did not train the checkout's code"
    return f"cannot compare this gate run with the baseline: {why}"


def _subject(spec: Spec, options: Options, evidence: Evidence, runs: Sequence[Run]) -> Subject:
    facts = next((trace.facts for run in runs for trace in run.traces if trace.trained), {})
    shown = {name: value for name, value in facts.items() if name not in ("process", "interpreter")}
    command = spec.train.run if spec.train.run is not None else "(inline snippet)"
    return Subject(
        spec=_spec_path(spec, options, evidence),
        command=command.strip(),
        commit=evidence.commit,
        uncommitted=evidence.uncommitted,
        seeds=spec.random_state.seeds,
        versions=shown,
        isolation=options.isolation.level,
    )


def _spec_path(spec: Spec, options: Options, evidence: Evidence) -> str:
    """The spec's path in the checkout, with `/` between its parts: the same however it was named. As given where there is no checkout."""
    root = None if evidence.checkout is None else evidence.checkout.root
    path = os.path.realpath(spec.path)
    return options.spec_as_given if root is None or not Path(path).is_relative_to(root) else Path(path).relative_to(root).as_posix()


def _unsteady(evidence: Evidence) -> str:
    """The kind that no fingerprint may hold: the generators' states, where they alone differ between two runs."""
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
    return RunSummary(
        name=run.plan.name,
        arm=run.plan.arm.name,
        seed=run.plan.arm.seed,
        steps=run.steps,
        seconds=round(run.ended.seconds, 3),
        exit_code=run.ended.exit_code,
        outcome=run.outcome,
        processes=len(processes(run.traces)),
        settings=_settings(run),
        log_tail=run.ended.tail[-60:] if run.log_matters else (),
        artifacts=artifacts,
    )


def _reproduce(options: Options, report: Report) -> str:
    """One command that shows the finding again: the spec, and where runs diverge, just the seed and the steps that it takes."""
    command = ["repro-gate", "run", options.spec_as_given, *(part for item in options.overrides for part in ("--set", item))]
    item = report.determinism
    first = item.comparison.first_divergence if item else None
    if item is not None and first is not None and first.kind != "artifact" and first.step < item.comparison.steps:
        command += ["--seed", str(item.seed), "--steps", str(max(first.step, 0) + 1), "--fail-fast"]
    else:
        command += ["--seed", str(options.seed)] if options.seed is not None else []
        command += ["--steps", str(options.steps)] if options.steps is not None else []
        base = options.base
        if base is None and options.policy == "base" and report.base is not None:
            base = report.base.ref  # the job's own variable named it, and a person's machine has none
        for name, value in (("--against", options.against), ("--base", base), ("--policy", options.policy)):
            command += [name, value] if value is not None else []
    return shlex.join(command)
