"""The gate: `run_gate(spec) -> Report`, the whole story on one page. Called by `cli`.

A training command goes in, unmodified; it runs in fresh processes under named conditions; the traces are compared; the report says whether
the runs are the same bits, where they first part, how large the noise is without the flags, and what the flags cost.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from pathlib import Path
from time import monotonic

from repro_gate import __version__
from repro_gate.analysis.compare import compare_runs, losses_of, processes
from repro_gate.analysis.cost import measure_cost
from repro_gate.analysis.fingerprint import fingerprint
from repro_gate.analysis.model import Comparison
from repro_gate.analysis.noise import noise_floor
from repro_gate.checks import run_checks
from repro_gate.checks.interface import DataCheck, Evidence
from repro_gate.errors import Inconclusive
from repro_gate.progress import Watch
from repro_gate.report.model import Report, RunSummary, SeedResult, Subject
from repro_gate.runs.launch import Run
from repro_gate.series import Series, open_ground
from repro_gate.spec.model import Spec
from repro_gate.trace.reader import Trace
from repro_gate.verdict import Findings, decide
from repro_gate.workspace import Checkout, inspect_checkout, verify_data

CONTROL_STEPS = 2


@dataclass(frozen=True)
class Options:
    """What the caller asks for besides the spec."""

    spec_as_given: str = "repro.yml"
    overrides: tuple[str, ...] = ()  # as given on the command line, for the command that reproduces the finding
    seed: int | None = None  # likewise
    steps: int | None = None  # likewise
    fail_fast: bool = False
    keep_traces: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def run_gate(spec: Spec, options: Options, watch: Watch) -> Report:
    """Gate one spec. Raises GateError where the gate cannot even start; everything later is told by the report."""
    started, clock = datetime.now(timezone.utc), monotonic()
    checkout = inspect_checkout(spec.path.parent)
    _require_device(spec)
    data = tuple(DataCheck(item.path, item.expected, item.actual, item.size) for item in verify_data(spec.data, spec.path.parent))
    with open_ground(spec, checkout, options.environment) as ground:
        series = Series(spec, ground, watch, options.fail_fast)
        if all(item.actual is not None and item.expected in (None, item.actual) for item in data):
            series.run_all(CONTROL_STEPS)
        if options.keep_traces is not None:
            series.keep_traces(options.keep_traces)
        comparisons = tuple(SeedResult(seed, comparison) for seed, comparison in series.comparisons.items())
        evidence = Evidence(
            spec,
            checkout.commit,
            checkout.uncommitted,
            ground.snapshot.files,
            tuple(series.runs),
            series.pair(),
            series.control,
            comparisons[0].comparison if comparisons else None,
            _against_control(series),
            data,
            series.changed_data,
        )
        return _report(spec, options, checkout, series, comparisons, evidence, started, monotonic() - clock)


def _report(
    spec: Spec,
    options: Options,
    checkout: Checkout,
    series: Series,
    comparisons: tuple[SeedResult, ...],
    evidence: Evidence,
    started: datetime,
    seconds: float,
) -> Report:
    checklist = run_checks(evidence, date.today())
    pairs = series.cost_pairs()
    cost = measure_cost(pairs, spec.train.warmup) if pairs else None
    defaults = series.default_pair()
    verdict, reasons, notes = decide(
        Findings(
            spec,
            comparisons,
            tuple(series.runs),
            checklist,
            cost,
            series.artifact_notes,
            series.interrupted,
            series.stopped_early,
            tuple(series.notes),
        )
    )
    first = next(iter(series.pair()), None)
    report = Report(
        verdict,
        __version__,
        started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        round(seconds, 3),
        _subject(spec, options, checkout, series.runs),
        reasons,
        notes,
        comparisons,
        _settings(first),
        _non_finite(first),
        noise_floor(*defaults) if defaults else None,
        cost,
        spec.cost.max_percent,
        checklist,
        tuple(_summary(run, series.artifact_counts.get(run.plan.name, 0)) for run in series.runs),
        fingerprint(first.traces, first.plan.condition.seed) if first else None,
        spec.determinism.tolerance,
    )
    return replace(report, reproduce=_reproduce(options, report))


def _require_device(spec: Spec) -> None:
    """A required GPU that is not there is said before anything long. Raises Inconclusive."""
    present = any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd"))
    if spec.hardware.device == "cuda" and not present:
        raise Inconclusive(
            "hardware.device: cuda is required, and this machine shows no GPU (no /dev/nvidiactl, /dev/dxg or /dev/kfd)",
            remedy="run on a GPU machine (in a container: start it with --gpus all), or take `device: cuda` out of the spec",
            reason_id="hardware/missing-device",
        )


def _against_control(series: Series) -> Comparison | None:
    """The first deterministic run's first steps against the reseeded control."""
    if series.control is None or not series.control.good or not series.pair():
        return None
    return compare_runs([_first_steps(trace, series.control.steps) for trace in series.pair()[0].traces], series.control.traces)


def _first_steps(trace: Trace, steps: int) -> Trace:
    return replace(trace, blocks=[block for block in trace.blocks if block.step < steps], steps=trace.steps[:steps])


def _subject(spec: Spec, options: Options, checkout: Checkout, runs: Sequence[Run]) -> Subject:
    facts = next((trace.facts for run in runs for trace in run.traces if trace.trained), {})
    shown = {name: value for name, value in facts.items() if name not in ("process", "interpreter")}
    command = spec.train.run if spec.train.run is not None else "(inline snippet)"
    return Subject(options.spec_as_given, command.strip(), checkout.commit, checkout.uncommitted, spec.random_state.seeds, shown)


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
        run.plan.name,
        run.plan.condition.name,
        run.plan.condition.seed,
        run.steps,
        round(run.ended.seconds, 3),
        run.ended.exit_code,
        run.outcome,
        len(processes(run.traces)),
        _settings(run),
        run.ended.tail[-60:] if run.log_matters else (),
        artifacts,
    )


def _reproduce(options: Options, report: Report) -> str:
    """One command that shows the finding again: the spec, and where runs part, just the seed and the steps that it takes."""
    command = ["repro-gate", "run", options.spec_as_given, *(part for item in options.overrides for part in ("--set", item))]
    item = report.determinism
    first = item.comparison.first_divergence if item else None
    if item is not None and first is not None and first.kind != "artifact" and first.step < item.comparison.steps:
        command += ["--seed", str(item.seed), "--steps", str(max(first.step, 0) + 1), "--fail-fast"]
    else:
        command += ["--seed", str(options.seed)] if options.seed is not None else []
        command += ["--steps", str(options.steps)] if options.steps is not None else []
    return shlex.join(command)
