"""Every operator that torch refuses, where it ended a run at the first: one more run goes on behind
each."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.errors import Inconclusive
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Refused

# steps after that of the first refusal: what an evaluation or another branch asks for comes later
_BEYOND = 10


def refused_operators(
    spec: Spec, folder: GateFolder, results: Results, watch: Watch
) -> tuple[Refused, ...]:
    """What torch refuses up to ten steps after the first of them; nothing where no run ended by
    that."""
    ended = next((run for run in results.runs if run.reason_id == NO_DETERMINISTIC), None)
    if ended is None or results.interrupted:
        return ()
    watch.said(
        "torch refused an operator: one more run, which goes on behind each, names all of them"
    )
    wanted = max((len(trace.steps) for trace in ended.traces), default=0) + 1 + _BEYOND
    steps = min(wanted, ended.plan.arm.steps or wanted)
    # its numbers are of no interest
    probe: dict[str, object] = {
        "refused": steps,
        "every": steps + 1,
    }
    plan = Plan(name="refused", arm=replace(ended.plan.arm, steps=steps), probe=probe)
    try:
        named = run_series(spec, folder, Watch(), (plan,), measure=False).runs
    except (Inconclusive, OSError):  # the first refusal stands in the log already
        return ()
    return tuple(item for run in named for trace in run.traces for item in trace.refused)
