"""The gate: `run_gate(spec) -> Report`, the whole story on one page.

A training command goes in, unmodified; it runs in fresh processes under named arms; the traces are
compared; the report says whether the runs are bitwise identical, where they first diverge, how
large the noise is without the flags, and what the flags cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from math import inf
from time import monotonic, time

from repro_gate.baseline.model import Entry
from repro_gate.checkout.inspection import Checkout, inspect_checkout
from repro_gate.checks.opened import unsound
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.errors import obeyed
from repro_gate.gate.against import Other, compare_with_ref, other_ref
from repro_gate.gate.bare import bare_run, refused_operators
from repro_gate.gate.base_policy import effective_policy
from repro_gate.gate.diagnose import Seen, blamed, diagnosis_of
from repro_gate.gate.evidence import (
    config_hash_of_runs,
    data_is_sound,
    entry_of_runs,
    gather,
    gathering,
    with_runs,
)
from repro_gate.gate.options import Options
from repro_gate.gate.preflight import explains, look, preflight
from repro_gate.gate.reporting import findings_of, make_report
from repro_gate.gate.robustness import robustness_of, told
from repro_gate.install.install import environments_root, installed
from repro_gate.ops.lookup import cited, look_up
from repro_gate.report.model import Report
from repro_gate.runs.gate_folder import GateFolder, open_gate_folder, remove_copies
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import INTERRUPTED, Results, keep_traces
from repro_gate.runs.series import run_series
from repro_gate.spec.model import CostBudget, Spec

CONTROL_STEPS = 2
A_MOMENT = 0.25  # seconds for which the first run waits for the declared data


@dataclass(frozen=True)
class GateResult:
    """What came of it: the report, and what a baseline would record of it (None where two runs were
    not bitwise identical)."""

    report: Report
    entry: Entry | None


def run_gate(spec: Spec, options: Options, watch: Watch) -> Report:
    """Gate one spec. Raises GateError where the gate cannot even start; everything later is told by
    the report."""
    return gate(spec, options, watch).report


def gate(given: Spec, options: Options, watch: Watch) -> GateResult:
    """As `run_gate`, with what a baseline would record."""
    started, clock = datetime.now(timezone.utc), monotonic()
    checkout = inspect_checkout(given.path.parent)
    policy = effective_policy(given, checkout, options)
    spec = policy.spec
    facts = look(options.environment)
    before = preflight(spec, options.environment, facts)
    other = other_ref(spec, checkout, options)
    with (
        gathering(
            lambda told: gather(
                spec, policy.problems, checkout, told, options.environment, cached=options.cache
            ),
            watch,
        ) as gathered,
        _gate_folder(spec, other, checkout, options, watch) as folder,
        obeyed(),
    ):
        soon = not wait(
            [gathered], A_MOMENT
        ).not_done  # else the control goes first: what is read beside it makes no timed step longer
        plans = gate_runs(spec, CONTROL_STEPS, control_first=not soon)
        if soon and not data_is_sound(gathered.result()):
            plans = ()
        results = run_series(
            spec,
            folder,
            watch,
            plans,
            fail_fast=options.fail_fast,
            started=clock,
            sound=lambda: data_is_sound(gathered.result()),
        )
        if results.interrupted == INTERRUPTED and not gathered.done():
            raise KeyboardInterrupt
        evidence = gathered.result()
        if options.keep_traces is not None:
            unkept = keep_traces(
                results.runs, options.keep_traces, readable=folder.sandbox.own_user
            )
            results = replace(results, said=(*results.said, *unkept))
        fragile, results = robustness_of(spec, folder, results, watch)
        noted = () if results.control is None else results.control.traces
        known = look_up(noted, evidence.machine, options.environment)
        found = diagnosis_of(spec, folder, results, watch)
        diagnosis = cited(found or fragile, known)
        refused = refused_operators(spec, folder, results, watch)
        bare = None if options.fail_fast else bare_run(spec, folder, results, watch)
        evidence = replace(
            with_runs(evidence, results),
            not_robust=told(fragile),
            blamed=blamed(found),
            refused=refused,
            operators=known.lines,
        )
        hashed = config_hash_of_runs(evidence, results)
        # Else nobody asks for the entry, and artifacts need not be read.
        asked = options.locking or policy.baseline is not None
        entry = (
            entry_of_runs(results, hashed, evidence.machine, started)
            if hashed is not None and asked and not unsound(evidence, results.runs)
            else None
        )
        against = (
            None
            if other is None
            else compare_with_ref(other, evidence, results, hashed, options, watch)
        )
        findings = findings_of(
            options,
            evidence,
            results,
            policy=policy,
            diagnosis=diagnosis,
            entry=entry,
            against=against,
            bare=bare,
        )
        remove_copies(folder, watch.said)
        explained = (explains(run.ended.tail, facts) for run in results.runs if run.log_matters)
        before = tuple(dict.fromkeys((*before, *chain.from_iterable(explained))))
        report = make_report(
            options,
            evidence,
            results,
            findings,
            hashed=hashed,
            base=policy.base,
            before=(*before, *known.notes),
            started=started,
            seconds=monotonic() - clock,
        )
        return GateResult(report, entry)


def diagnose_alone(
    given: Spec, options: Options, watch: Watch, compared: Callable[[Results], None], seen: Seen
) -> tuple[Results, Diagnosis | None]:
    """The deterministic runs alone, of which `compared` is told, and where they diverge, why. Data
    is not verified, nothing is judged."""
    with prepared(given, options, watch) as (spec, folder):
        plans = [
            plan for plan in gate_runs(spec, CONTROL_STEPS) if plan.arm.name == "deterministic"
        ]
        results = run_series(spec, folder, watch, plans)
        # to know is what is asked for here
        patient = replace(spec, robustness=replace(spec.robustness, search=inf))
        fragile, results = robustness_of(patient, folder, results, watch)
        compared(results)
        return results, diagnosis_of(spec, folder, results, watch, seen) or fragile


@contextlib.contextmanager
def prepared(given: Spec, options: Options, watch: Watch) -> Iterator[tuple[Spec, GateFolder]]:
    """The effective spec without its cost, and where its runs take place, for commands that do runs
    and gate nothing."""
    checkout = inspect_checkout(given.path.parent)
    spec = replace(effective_policy(given, checkout, options).spec, cost=CostBudget(measure=False))
    preflight(spec, options.environment, look(options.environment))
    with _gate_folder(spec, None, checkout, options, watch) as folder, obeyed():
        yield spec, folder


@contextlib.contextmanager
def _gate_folder(
    spec: Spec, other: Other | None, checkout: Checkout, options: Options, watch: Watch
) -> Iterator[GateFolder]:
    """Where the runs take place, with what the lockfile pins installed where the spec asks for it:
    that runs untrusted code as well."""
    installs = spec.env.install or (other is not None and other.spec.env.install)
    reach = (
        [environments_root(options.environment, options.cache_root, options.sandbox)]
        if installs
        else []
    )
    with (
        open_gate_folder(
            spec, checkout, options.environment, options.sandbox, reach, watch.said
        ) as folder,
        installed(
            spec,
            checkout.root,
            options.environment,
            options.sandbox,
            cache_root=options.cache_root,
            tell=watch.said,
        ) as outer,
    ):
        yield replace(folder, outer=outer, began=time())
