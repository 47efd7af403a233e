"""Measures the operators of the training, from the calls that the control run recorded: all of them
if the spec asks for it, or the one that a diagnosis names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from repro_gate.compare.operators import Operators
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.errors import Inconclusive
from repro_gate.escape import counted, for_terminal
from repro_gate.ops.measure import of_training
from repro_gate.report.model import Reason
from repro_gate.report.operators import arm
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, INTERRUPTED, Results
from repro_gate.trace.fields import Call
from repro_gate.trace.model import Trace

_MOST_THREADS = 1_024
_CITED_SECONDS = 5.0  # for the one call of a diagnosis
_NONE = Reason(
    "ops/none",
    "the operators were not measured: the control run recorded none",
    "the training needs a second step with torch, and nothing compiled before it",
)


def operators_of(
    results: Results, watch: Watch
) -> tuple[Operators | None, tuple[Reason, ...]]:
    """Return what was measured of the operators, or notes on why nothing was; nothing of both if
    the spec does not ask for it."""
    budget = results.spec.operators
    if budget is None or results.interrupted:
        return None, ()
    calls = _recorded(results)
    if not calls:
        return None, (_NONE,)
    number = counted(len(calls), "distinct call")
    watch.said(f"operators: {number}, within about {budget.seconds:g} s")
    try:
        found = _measured(results, calls, budget.seconds)
    except EARLY_ENDS as error:
        return None, (_note(error, results),)
    if cost := results.cost():
        pct = cost.determinism_cost_pct
        found = replace(found, step_ms=cost.default_step_ms, cost_pct=pct)
    return found, ()


def cited(diagnosis: Diagnosis | None, results: Results) -> Diagnosis | None:
    """Return the diagnosis with what a measurement says of the call that it names, if the control
    recorded that: best the one of the same line."""
    calls = [
        call for call in _recorded(results) if diagnosis and call.op == diagnosis.op
    ]
    if diagnosis is None or not calls or results.interrupted == INTERRUPTED:
        return diagnosis
    place = diagnosis.file, diagnosis.line
    calls.sort(key=lambda call: place not in call.sites)
    with suppress(*EARLY_ENDS):
        for call in _measured(results, calls[:1], _CITED_SECONDS).calls:
            off, on = (for_terminal(arm(each), 300) for each in (call.off, call.on))
            line = f"measured on this machine with inputs of its form: without the flags it {off}; "
            # in front: without a line that says so, the last one is the proof
            evidence = (f"{line}with them it {on}", *diagnosis.evidence)
            return replace(diagnosis, evidence=evidence)
    return diagnosis


def _note(error: BaseException, results: Results) -> Reason:
    """Return why the measuring ended early."""
    if isinstance(error, Inconclusive):
        return Reason(error.reason_id, error.message, error.remedy)
    if isinstance(error, KeyboardInterrupt):
        results.interrupt(error)
        problem, remedy = "it was interrupted", "run again and let it finish"
    else:
        problem = for_terminal(str(getattr(error, "strerror", None) or error), 300)
        remedy = "mend what the system says of the gate's folder, then run again"
    return Reason(
        "ops/ended-early", f"the operators were not measured: {problem}", remedy
    )


def _recorded(results: Results) -> Sequence[Call]:
    """Return the calls of the first process that recorded any: others of one training make the
    same."""
    return next((trace.calls for trace in _control(results) if trace.calls), ())


def _measured(results: Results, calls: Sequence[Call], seconds: float) -> Operators:
    # with as many threads as torch computed with in the control, if it says so
    read = (reading for trace in _control(results) for reading in trace.settings)
    threads = next(read, {}).get("torch.get_num_threads")
    if not (isinstance(threads, int) and 0 < threads <= _MOST_THREADS):
        threads = None
    folder = results.folder
    return of_training(
        results.spec, calls, folder.outer, folder.sandbox, seconds, threads
    )


def _control(results: Results) -> Sequence[Trace]:
    return results.control.traces if results.control else ()
