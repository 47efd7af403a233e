"""The gate: `run_gate(spec) -> Report`, the whole story on one page.

A training command goes in, unmodified; it runs in fresh processes under named arms; the traces are
compared; the report says whether the runs are bitwise identical, where they first diverge, how
large the noise is without the flags, and what the flags cost.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from repro_gate.baseline.model import FILE_NAME, Entry
from repro_gate.baseline.status import common, nearest_entry
from repro_gate.compare.change import Change
from repro_gate.gate.against import compare_with_ref
from repro_gate.gate.bare import bare_run, refused_operators
from repro_gate.gate.change import change_since, sketches_of
from repro_gate.gate.diagnose import blamed_lines, diagnosis_of
from repro_gate.gate.effect import Side, seeds_of, with_effects
from repro_gate.gate.equivalence import equivalences_of
from repro_gate.gate.evidence import (
    Ahead,
    config_hash_of_runs,
    entry_of_runs,
    gather_ahead,
    with_runs,
)
from repro_gate.gate.operators import cited, operators_of
from repro_gate.gate.options import Options
from repro_gate.gate.prepare import Job, gate_folder, prepare
from repro_gate.gate.reporting import report_of
from repro_gate.gate.resume import resumed
from repro_gate.gate.robustness import is_robust, not_robust, robustness_of
from repro_gate.gate.verdict import Findings
from repro_gate.report.model import Report
from repro_gate.runs.gate_folder import remove_copies
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, INTERRUPTED, Results, keep_traces
from repro_gate.runs.series import do_runs
from repro_gate.runs.workspaces import GateFolder
from repro_gate.spec.model import Spec


def run_gate(spec: Spec, options: Options, watch: Watch) -> Report:
    """Gate one spec. Raises GateError if the gate cannot even start; the rest is in the report."""
    return gate(spec, options, watch)[0]


def gate(written: Spec, options: Options, watch: Watch) -> tuple[Report, Entry | None]:
    """Gate one spec: prepare, run, compare, diagnose, check, report. Return also the baseline
    entry, if the runs are bitwise identical."""
    job = prepare(written, options, watch)
    with gather_ahead(job) as ahead, gate_folder(job) as folder:
        results = _run(job, folder, ahead)
        dependence, results = robustness_of(results, watch)
        cause = diagnosis_of(results, watch)
        resumption = resumed(results, watch)
        equivalences = equivalences_of(results, watch)
        refused = refused_operators(results, watch)
        bare = bare_run(results, watch)
        evidence = replace(
            with_runs(ahead.evidence(), results),
            not_robust=not_robust(dependence, results.spec.robustness.on_dependence),
            blamed=blamed_lines(cause),
            refused=refused,
        )
        hashed = config_hash_of_runs(evidence, results)
        entry = entry_of_runs(job, evidence, results, hashed)
        now = Side("this change", results)
        entry, since = _beside_baseline(job, results, entry, now)
        against, change = compare_with_ref(job, evidence, results, hashed, now)
        operators, notes = operators_of(results, watch)
        remove_copies(folder)
        findings = Findings(
            results=results,
            bare=bare,
            diagnosis=cited(cause or dependence, results),
            robust=is_robust(results, dependence),
            against=against,
            against_change=change,
            baseline_change=since,
            resumed=resumption,
            equivalences=equivalences,
        )
        return report_of(
            job, evidence, findings, entry, hashed, operators, notes
        ), entry


def _beside_baseline(
    job: Job, results: Results, entry: Entry | None, now: Side
) -> tuple[Entry | None, Change | None]:
    """Return the entry with what a baseline needs, if one is to be recorded; else how large the
    change is since the baseline's entry was recorded, if there is one."""
    rule = results.spec.effect
    if entry is None or results.interrupted:
        return entry, None
    try:
        if job.options.record_baseline:
            side = Side("baseline", results)
            if rule:
                for seed in seeds_of(results.spec, max(rule.at_most or 0, rule.seeds)):
                    side.has(seed, rule, job.watch)
            sketches = sketches_of(results, job.watch)
            outcomes = tuple(
                structs.replace(item, sketches=sketches)
                if item.seed == results.spec.seed
                else item
                for item in entry.outcomes
            )
            seeds = tuple(side.found.values())
            return structs.replace(entry, outcomes=outcomes, seeds=seeds), None
        if job.policy.baseline and not job.options.record:
            old = nearest_entry(job.policy.baseline, entry)
            is_same = (
                entry.platform in job.policy.baseline or old.recipe == entry.recipe
            )
            if is_same and common(old, entry):
                change = change_since(old, entry, results, job.watch)
                base = Side(FILE_NAME, None, {item.seed: item for item in old.seeds})
                if base.found:
                    change = with_effects(change, base, now, job.watch)
                return entry, replace(change, beside=FILE_NAME)
    except EARLY_ENDS as error:
        results.interrupt(error)
    return entry, None


def _run(job: Job, folder: GateFolder, ahead: Ahead) -> Results:
    """Do the planned runs. While declared data is still being hashed, begin with the control, which
    is not timed, so that hashing cannot slow a timed step."""
    results = do_runs(
        job.spec,
        folder,
        job.watch,
        gate_runs(job.spec, control_first=not ahead.is_ready()),
        fail_fast=job.options.fail_fast or job.options.quick,
        sound=ahead.is_sound,
    )
    # Ctrl-C before the data is verified ends at once: a report would have to wait for the data.
    if results.interrupted == INTERRUPTED and not ahead.is_ready():
        raise KeyboardInterrupt
    if job.options.keep_traces:
        keep_traces(results, job.options.keep_traces)
    return results
