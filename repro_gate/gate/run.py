"""The gate: `run_gate(spec) -> Report`, the whole story on one page.

A training command goes in, unmodified; it runs in fresh processes under named arms; the traces are compared; the report says whether
the runs are bitwise identical, where they first diverge, how large the noise is without the flags, and what the flags cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic, time

from repro_gate.baseline.model import Entry
from repro_gate.checkout.inspection import Checkout, inspect_checkout
from repro_gate.checks.opened import unsound
from repro_gate.compare.model import Comparison
from repro_gate.compare.traces import compare_runs
from repro_gate.errors import obeyed
from repro_gate.gate.against import Other, compare_with_ref, other_ref
from repro_gate.gate.base_policy import judging
from repro_gate.gate.config_hash import config_hash_of_series, record_of
from repro_gate.gate.evidence import gather
from repro_gate.gate.options import Options
from repro_gate.gate.preflight import Facts, Finding, explains, look, notes, preflight, require
from repro_gate.gate.reporting import Found, make_report
from repro_gate.install.install import environments_root, installed
from repro_gate.report.model import Reason, Report
from repro_gate.runs.gate_folder import GateFolder, open_gate_folder
from repro_gate.runs.launch import Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.series import Series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

CONTROL_STEPS = 2


@dataclass(frozen=True)
class GateResult:
    """What came of it: the report, and what a baseline would record of it (None where two runs were not bitwise identical)."""

    report: Report
    entry: Entry | None


def run_gate(spec: Spec, options: Options, watch: Watch) -> Report:
    """Gate one spec. Raises GateError where the gate cannot even start; everything later is told by the report."""
    return gate(spec, options, watch).report


def gate(spec: Spec, options: Options, watch: Watch) -> GateResult:
    """As `run_gate`, with what a baseline would record."""
    started, clock = datetime.now(timezone.utc), monotonic()
    checkout = inspect_checkout(spec.path.parent)
    judged = judging(spec, checkout, options)
    facts = look(options.environment)
    found_before = preflight(judged.spec, options.environment, facts)
    require(found_before)
    evidence = gather(judged.spec, checkout, watch, options.environment, cached=options.cache)
    spec = evidence.spec
    other = other_ref(spec, checkout, options)
    with _ground(spec, other, checkout, options, watch) as ground, obeyed():
        series = Series(spec, ground, watch, options.fail_fast)
        if all(item.actual is not None and item.matches is not False for item in evidence.data):
            series.run_all(CONTROL_STEPS)
        if options.keep_traces is not None:
            series.keep_traces(options.keep_traces)
        evidence = replace(
            evidence,
            files=ground.snapshot.files,
            runs=tuple(series.runs),
            pair=series.pair(),
            control=series.control,
            comparison=series.comparisons.get(spec.random_state.seeds[0]),
            control_comparison=_against_control(series),
            changed_data=series.changed_data,
            gpu_processes=series.gpu_processes,
        )
        hashed = config_hash_of_series(evidence, series)
        sound = not unsound(evidence, series.runs)
        recorded = sound and (options.locking or judged.baseline is not None)  # else nobody asks for it, and artifacts need not be read
        entry = record_of(series, hashed, evidence.machine, started) if hashed is not None and recorded else None
        against = None if other is None else compare_with_ref(other, checkout, evidence, series, hashed, options)
        found = Found(
            judged=judged,
            evidence=evidence,
            hashed=hashed,
            entry=entry,
            against=against,
            before=_worth_knowing(found_before, facts, series.runs),
        )
        return GateResult(make_report(options, series, found, started, monotonic() - clock), entry)


@contextlib.contextmanager
def _ground(spec: Spec, other: Other | None, checkout: Checkout, options: Options, watch: Watch) -> Iterator[GateFolder]:
    """Where the runs take place, with what the baseline pins installed where the spec asks for it: pip runs untrusted code as well."""
    installs = spec.env.install or (other is not None and other.spec.env.install)
    reach = [environments_root(options.environment, options.cache_root, options.isolation)] if installs else []
    with (
        open_gate_folder(spec, checkout, options.environment, options.isolation, reach, watch.said) as ground,
        installed(spec, checkout.root, options.environment, options.isolation, cache_root=options.cache_root, tell=watch.said) as outer,
    ):
        yield replace(ground, outer=outer, began=time())


def _worth_knowing(found: Sequence[Finding], facts: Facts, runs: Sequence[Run]) -> tuple[Reason, ...]:
    """What the preflight saw that ended nothing, and where it explains how a run ended."""
    explained = (explains(run.ended.tail, facts) for run in runs if run.log_matters)
    return notes(tuple(dict.fromkeys([*found, *(replace(item, required=False) for item in explained if item is not None)])))


def _against_control(series: Series) -> Comparison | None:
    """The first deterministic run's first steps against the reseeded control."""
    if series.control is None or not series.control.good or not series.pair():
        return None
    steps = series.control.steps
    first, control = series.pair()[0].traces, series.control.traces
    return compare_runs([_first_steps(trace, steps) for trace in first], [_first_steps(trace, steps) for trace in control])


def _first_steps(trace: Trace, steps: int) -> Trace:
    return replace(trace, blocks=[block for block in trace.blocks if block.step < steps], steps=trace.steps[:steps])
