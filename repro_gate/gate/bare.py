"""One more run where the planned ones came to nothing: without the gate, if the training crashed
(does it crash without probe and flags too?); on behind each refusal, if torch refused an operator,
so that every operator that it refuses is named.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from repro_gate.errors import Inconclusive
from repro_gate.runs.arms import Arm
from repro_gate.runs.crashes import CANNOT_START, crashed_by_itself
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.gate_folder import site_of
from repro_gate.runs.launch import RunRequest, RunResult, launch
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.trace.model import Refused

# nobody stops a bare run at train.steps: seconds that it gets at least, and how many times what the
# crash took
_LEAST = 30.0
_TIMES = 3
# steps after that of the first refusal: what an evaluation or another branch asks for comes later
_BEYOND = 10


def bare_run(results: Results, watch: Watch) -> RunResult | None:
    """Return the run without the gate; None if no crash asks for one, torch itself says why it
    refused, or it could not be done."""
    runs = [run for run in results.runs if run.request.arm.name == "deterministic"]
    crashed = next((run for run in runs if run.log_matters), None)
    if (
        crashed is None
        or crashed.reason_id == NO_DETERMINISTIC
        or results.comparisons
        or results.interrupted
        or any(run.good for run in runs)
    ):
        return None
    ended = crashed.ended
    exited = crashed.outcome == "crashed" and ended.exit_code not in (None, 0, *CANNOT_START)
    if not exited and (ended.signal is None or not crashed_by_itself(crashed)):
        return None
    watch.said(
        "the training crashed: one more run, without probe and flags, tells whether it crashes "
        "without the gate too"
    )
    spec = results.spec
    seconds = min(spec.train.timeout, max(_LEAST, _TIMES * ended.seconds))
    limited = replace(spec, train=replace(spec.train, timeout=seconds))
    plan = RunRequest(
        name="bare",
        arm=Arm("bare", crashed.request.arm.seed),
        bare=True,
    )
    try:
        site = site_of(spec, results.folder, frozenset())
        bare = launch(limited, plan, site, lambda _: None)
    except (KeyboardInterrupt, Inconclusive, OSError):
        # what the other runs came to is told as it is
        return None
    from_outside = bare.ended.out_of_memory or bare.ended.signal == signal.SIGKILL
    return None if from_outside and not bare.ended.timed_out else bare


def refused_operators(results: Results, watch: Watch) -> tuple[Refused, ...]:
    """Return what torch refuses up to ten steps after the first refusal; nothing if no run ended by
    one."""
    ended = next((run for run in results.runs if run.reason_id == NO_DETERMINISTIC), None)
    if ended is None or results.interrupted:
        return ()
    watch.said(
        "torch refused an operator: one more run, which goes on behind each, names all of them"
    )
    until, arm = ended.steps + 1 + _BEYOND, ended.request.arm
    steps = min(until, arm.steps or until)
    plan = RunRequest(
        name="refused",
        arm=replace(arm, steps=steps),
        # its numbers are of no interest
        probe={"refused": steps, "every": steps + 1},
    )
    try:
        series = run_series(
            results.spec,
            results.folder,
            Watch(),
            (plan,),
            measure=False,
        )
    except (Inconclusive, OSError):  # the first refusal stands in the log already
        return ()
    return tuple(item for run in series.runs for trace in run.traces for item in trace.refused)
