"""Plans and does the runs that measure how large a change is: what they keep, and what they
measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from repro_gate.compare.change import KINDS, steps_to_keep
from repro_gate.compare.traces import processes
from repro_gate.runs import series
from repro_gate.runs.launch import Recording, RunRequest, RunResult, stems
from repro_gate.runs.order import most_steps
from repro_gate.runs.results import Results
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

Probe = Mapping[str, Any]  # a part of the probe's configuration
# How many bits of a float32 an operator loses if it computes in this type.
_LOST = {"bfloat16": 16, "float16": 13}


def explaining(run: RunResult) -> RunRequest:
    """Return the request of a further run like this one, which only explains it."""
    return replace(
        run.request,
        recording=Recording(),
        second_of="",
        varied=frozenset(),
        collect=False,
        counts="never",
    )


def explained(results: Results, run: RunResult, **changes: Any) -> RunResult:
    """Do a further run like this one, but for these changes, which only explains it."""
    request = replace(explaining(run), **changes)
    return series.run(results.spec, results.folder, request)


def keeping(spec: Spec, like: RunResult) -> Probe:
    """Return what makes a run keep its tensors, at as many steps as a run like this has room
    for."""
    steps = steps_to_keep(like.steps, spec.capture.every, most_steps(like, KINDS))
    return {"keep": {"final": False, "steps": steps, "kinds": KINDS}}


def measuring(keep: Probe, traces: Sequence[Trace]) -> Probe:
    """Return what makes a run measure its distance from the tensors that these processes kept; one
    without a counterpart takes those of the first."""
    found = stems(traces)
    first = next(iter(processes(traces)), "")
    return {"keep": {**keep["keep"], "reference": {**found, "": found.get(first, "")}}}


def lost_bits(control: RunResult | None) -> int:
    """Return the most bits of a float32 that an operator loses, by the types that the control run
    recorded."""
    traces = control.traces if control else ()
    used = {call.dtype for trace in traces for call in trace.calls}
    return max((_LOST.get(dtype, 0) for dtype in used), default=0)
