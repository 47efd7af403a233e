"""One more run if the planned ones came to nothing: without the gate, if the training crashed (does
it crash without probe and flags too?); on behind each refusal, if torch refused an operator, so
that every operator that it refuses is named.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace

from repro_gate.errors import Inconclusive
from repro_gate.runs.arms import Arm
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.ending import CANNOT_START, NO_DETERMINISTIC
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Refused

# nobody stops a bare run at train.steps: seconds that it gets at least, and how many times what the
# crash took
_LEAST = 30.0
_TIMES = 3
# steps after that of the first refusal: what an evaluation or another branch asks for comes later
_BEYOND = 10


def bare_run(results: Results, watch: Watch) -> RunResult | None:
    """Return the run without the gate; None if no crash asks for one, torch itself says why it
    refused, it could not be done, or under `--fail-fast`."""
    runs = results.deterministic
    crashed = next((item for item in runs if item.log_matters), None)
    if (
        crashed is None
        or crashed.reason_id == NO_DETERMINISTIC
        or results.comparisons
        or results.interrupted
        or results.fail_fast
        or any(item.good for item in runs)
    ):
        return None
    ended = crashed.ended
    code = ended.exit_code
    exited = crashed.outcome == "crashed" and code and code not in CANNOT_START
    if not exited and (ended.signal is None or not crashed_by_itself(crashed)):
        return None
    watch.said(
        "the training crashed: one more run, without probe and flags, tells whether it crashes "
        "without the gate too"
    )
    train = results.spec.train
    seconds = min(train.timeout, max(_LEAST, _TIMES * ended.seconds))
    limited = replace(results.spec, train=replace(train, timeout=seconds))
    request = RunRequest(name="bare", arm=Arm("bare", crashed.arm.seed), bare=True)
    bare = _run(limited, results, request)
    if bare is None or bare.ended.timed_out:
        return bare
    from_outside = bare.ended.out_of_memory or bare.ended.signal == signal.SIGKILL
    return None if from_outside else bare


def refused_operators(results: Results, watch: Watch) -> tuple[Refused, ...]:
    """Return what torch refuses up to ten steps after the first refusal; nothing if no run ended by
    one."""
    ended = next(
        (item for item in results.runs if item.reason_id == NO_DETERMINISTIC), None
    )
    if ended is None or results.interrupted:
        return ()
    watch.said(
        "torch refused an operator: one more run, which goes on behind each, names all of them"
    )
    until = ended.steps + 1 + _BEYOND
    arm = ended.arm
    steps = min(until, arm.steps or until)
    request = RunRequest(
        name="refused",
        arm=replace(arm, steps=steps),
        # its numbers are of no interest
        probe={"refused": steps, "every": steps + 1},
    )
    refused = _run(results.spec, results, request)
    return (
        tuple(item for trace in refused.traces for item in trace.refused)
        if refused
        else ()
    )


def _run(spec: Spec, results: Results, request: RunRequest) -> RunResult | None:
    """Do the run; None if it could not be done: the report tells what the others came to."""
    with suppress(KeyboardInterrupt, Inconclusive, OSError):
        return run(spec, results.folder, request)
    return None
