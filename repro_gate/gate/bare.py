"""Does one more run if the planned runs failed. If the training crashed: a run without probe and
flags, which shows whether it crashes without the gate too. If torch refused an operator: a run that
continues after each refusal, so that all refused operators are named.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace

from repro_gate.runs.arms import Arm
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.ending import CANNOT_START, NO_DETERMINISTIC
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import EARLY_ENDS, Results
from repro_gate.runs.series import run
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Refused

# Without the probe nothing stops the run at train.steps, so its time is limited: to the time until
# the crash times _TIMES, and at least to _LEAST seconds.
_LEAST = 30.0
_TIMES = 3
# Steps after the first refusal: an evaluation or another branch may call further operators later.
_BEYOND = 10


def bare_run(results: Results, watch: Watch) -> RunResult | None:
    """Return the run without the gate. None if no run crashed, if torch itself named the operator
    that it refused, if the run could not be done, or under `--fail-fast` and `--quick`."""
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
        "the training crashed: one more run, without probe and flags, shows whether it crashes "
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
    """Return the operators that torch refuses up to ten steps after the first refusal; none if no
    run ended by a refusal."""
    ended = next(
        (item for item in results.runs if item.reason_id == NO_DETERMINISTIC), None
    )
    if ended is None or results.interrupted:
        return ()
    watch.said(
        "torch refused an operator: one more run, which continues after each, names all of them"
    )
    until = ended.steps + 1 + _BEYOND
    arm = ended.arm
    steps = min(until, arm.steps or until)
    request = RunRequest(
        name="refused",
        arm=replace(arm, steps=steps),
        # Only refusals matter in this run, so no numbers are recorded.
        probe={"refused": steps, "every": steps + 1},
    )
    refused = _run(results.spec, results, request)
    return (
        tuple(item for trace in refused.traces for item in trace.refused)
        if refused
        else ()
    )


def _run(spec: Spec, results: Results, request: RunRequest) -> RunResult | None:
    """Do the run. None if it could not be done: the report is made from the other runs."""
    with suppress(*EARLY_ENDS):
        return run(spec, results.folder, request)
    return None
