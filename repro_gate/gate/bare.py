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
from repro_gate.runs.gate_folder import GateFolder, site_of
from repro_gate.runs.launch import Plan, Run, launch
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Refused

# nobody stops it at train.steps: seconds that it gets at least, and how many times what the crash
# took
_LEAST = 30.0
_TIMES = 3


def bare_run(spec: Spec, folder: GateFolder, results: Results, watch: Watch) -> Run | None:
    """The run without the gate; None where no crash asks for one, torch itself says why it refused,
    or it could not be done."""
    crashed = next((run for run in results.runs if run.log_matters and _deterministic(run)), None)
    lost = (
        not results.comparisons
        and not results.interrupted
        and not any(run.good for run in results.runs if _deterministic(run))
    )
    if crashed is None or not lost or crashed.reason_id == NO_DETERMINISTIC:
        return None
    code = crashed.ended.exit_code
    exited = crashed.outcome == "crashed" and code not in (None, 0, *CANNOT_START)
    if not exited and (crashed.ended.signal is None or not crashed_by_itself(crashed)):
        return None
    watch.said(
        "the training crashed: one more run, without probe and flags, tells whether it crashes "
        "without the gate too"
    )
    seconds = min(spec.train.timeout, max(_LEAST, _TIMES * crashed.ended.seconds))
    plan = Plan(name="bare", arm=Arm("bare", crashed.plan.arm.seed), bare=True)
    limited = replace(spec, train=replace(spec.train, timeout=seconds))
    try:
        bare = launch(limited, plan, site_of(spec, folder, frozenset()), lambda _: None)
    except (KeyboardInterrupt, Inconclusive, OSError):
        # what the other runs came to is told as it is
        return None
    from_outside = bare.ended.out_of_memory or bare.ended.signal == signal.SIGKILL
    return None if from_outside and not bare.ended.timed_out else bare


def _deterministic(run: Run) -> bool:
    return run.plan.arm.name == "deterministic"


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
