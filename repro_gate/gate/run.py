"""The gate: `run_gate(spec) -> Report`, the whole story on one page.

A training command goes in, unmodified; it runs in fresh processes under named arms; the traces are
compared; the report says whether the runs are bitwise identical, where they first diverge, how
large the noise is without the flags, and what the flags cost.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from repro_gate.baseline.model import Entry
from repro_gate.checks.interface import Evidence
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.gate.against import compare_with_ref
from repro_gate.gate.bare import bare_run, refused_operators
from repro_gate.gate.diagnose import OnPair, blamed_lines, diagnosis_of
from repro_gate.gate.evidence import (
    config_hash_of_runs,
    entry_of_runs,
    first_unsound,
    gather_ahead,
    with_runs,
)
from repro_gate.gate.options import Options
from repro_gate.gate.prepare import Job, gate_folder, prepare
from repro_gate.gate.reporting import report_of
from repro_gate.gate.robustness import not_robust, robustness_of
from repro_gate.ops.lookup import cited, look_up
from repro_gate.report.model import Report
from repro_gate.runs.gate_folder import GateFolder, remove_copies
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import INTERRUPTED, Results, keep_traces
from repro_gate.runs.series import do_runs
from repro_gate.spec.model import Spec

A_MOMENT = 0.25  # seconds for which the first run waits for the declared data


@dataclass(frozen=True)
class GateResult:
    """The report, and what a baseline would record (None if two runs were not bitwise
    identical)."""

    report: Report
    entry: Entry | None


def run_gate(spec: Spec, options: Options, watch: Watch) -> Report:
    """Gate one spec. Raises GateError if the gate cannot even start; everything later is told by
    the report."""
    return gate(spec, options, watch).report


def gate(written: Spec, options: Options, watch: Watch) -> GateResult:
    """Gate one spec, as `run_gate` does: prepare, run, compare, diagnose, check, report."""
    job = prepare(written, options, watch)
    with gather_ahead(job) as ahead, gate_folder(job) as folder:
        results = _run(job, folder, ahead)
        dependence, results = robustness_of(results, watch)
        cause = diagnosis_of(results, watch)
        refused = refused_operators(results, watch)
        bare = None if options.fail_fast else bare_run(results, watch)
        evidence, control = ahead.result(), results.control
        catalog = look_up(
            control.traces if control else (), evidence.machine, options.environment
        )
        evidence = replace(
            with_runs(evidence, results),
            not_robust=not_robust(dependence),
            blamed=blamed_lines(cause),
            refused=refused,
            operators=catalog.lines,
        )
        hashed = config_hash_of_runs(evidence, results)
        # nobody else asks for an entry, and artifacts need not be read
        compared = options.record_baseline or job.policy.baseline is not None
        entry = (
            entry_of_runs(evidence, results, hashed, job.started) if compared else None
        )
        against = compare_with_ref(job, evidence, results, hashed)
        remove_copies(folder, watch.said)
        report = report_of(
            job,
            evidence,
            results,
            diagnosis=cited(cause or dependence, catalog),
            bare=bare,
            entry=entry,
            hashed=hashed,
            against=against,
            notes=catalog.notes,
        )
        return GateResult(report, entry)


def diagnose_alone(
    written: Spec,
    options: Options,
    watch: Watch,
    on_results: Callable[[Results], None],
    on_pair: OnPair,
) -> tuple[Results, Diagnosis | None]:
    """Return the deterministic runs alone, of which `on_results` is told, and if they diverge, why.
    Data is not verified, nothing is judged."""
    job = prepare(written, options, watch)
    with gate_folder(job) as folder:
        requests = gate_runs(job.spec)
        deterministic = [item for item in requests if item.arm.name == "deterministic"]
        results = do_runs(job.spec, folder, watch, deterministic)
        dependence, results = robustness_of(results, watch)
        on_results(results)
        return results, diagnosis_of(results, watch, on_pair) or dependence


def _run(job: Job, folder: GateFolder, ahead: Future[Evidence]) -> Results:
    """Run the training in every arm, the control first if the data is still being verified: hashing
    it at the same time disturbs no timed step. On unsound data no run counts."""

    def is_sound() -> bool:
        return first_unsound(ahead.result().data) is None

    is_read = bool(wait([ahead], A_MOMENT).done)
    requests = gate_runs(job.spec, control_first=not is_read)
    results = do_runs(
        job.spec,
        folder,
        job.watch,
        requests if not is_read or is_sound() else (),
        fail_fast=job.options.fail_fast,
        sound=is_sound,
    )
    if results.interrupted == INTERRUPTED and not ahead.done():
        raise KeyboardInterrupt
    target = job.options.keep_traces
    if target is not None:
        unkept = keep_traces(results.runs, target, readable=folder.sandbox.own_user)
        results.warnings = (*results.warnings, *unkept)
    return results
