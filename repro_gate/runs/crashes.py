"""Compares two runs of one seed of which at least one crashed: their traces up to the crash, and
whether they ended differently. Pure.

A crash that the machine caused (memory, disk, a GPU, the network, a signal from outside) says
nothing about the training.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from repro_gate.compare.model import Comparison, Divergence
from repro_gate.compare.traces import (
    blocks_of_common_steps,
    compare_runs,
    processes,
    unequal_length,
    with_valid_distances,
)
from repro_gate.escape import counted
from repro_gate.runs.ending import CANNOT_START, NO_DETERMINISTIC
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace

# signals that a process causes itself
_OWN_SIGNALS = (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
)
_MACHINE = re.compile(
    r"out of memory|cannot allocate memory|MemoryError|no space left|disk quota|too many open "
    r"files|address already in use"
    r"|input/output error|bus error|shared memory|uncorrectable|GPU (?:is lost|has "
    r"fallen)|CUDA-capable|CUDA driver|busy or unavailable"
    r"|NCCL error|SIGKILL|signal: killed|exitcode\s*:? ?-9|connection|name resolution|name or "
    r"service not known|timed? ?out",
    re.IGNORECASE,
)
_LOG_END = 5  # lines that show a crash without a traceback


def crashed_by_itself(run: RunResult) -> bool:
    """Return whether the training's own code crashed the run, as a race or an unseeded draw can in
    one run and not in another."""
    if run.reason_id == "run/killed":
        return run.ended.signal in _OWN_SIGNALS
    if (
        run.reason_id not in ("run/crashed", NO_DETERMINISTIC)
        or run.ended.exit_code in CANNOT_START
    ):
        return False
    return not _MACHINE.search(str(run.raised or "\n".join(run.ended.tail[-_LOG_END:])))


def compare_crashed(first: RunResult, second: RunResult) -> Comparison | None:
    """Compare two runs of one seed of which at least one ended badly: their traces up to there, and
    how they ended. None if neither shows that the training is not reproducible."""
    a, b = _up_to_crash(first.traces, second.traces)
    found = compare_runs(a, b)
    ending = _ending(first, second)
    if found.first_divergence is None and ending is None:
        return None
    return replace(
        found,
        identical=False,
        first_divergence=found.first_divergence or ending,
        unmatched=found.unmatched or ending,
    )


def _ending(first: RunResult, second: RunResult) -> Divergence | None:
    """Return how the runs ended differently; None if the training itself did not cause that."""
    if not all(run.good or crashed_by_itself(run) for run in (first, second)):
        return None
    a = _last(first)
    b = _last(second)
    if first.good == second.good and a == b:
        return None
    return replace(
        unequal_length(a, b), detail=f"{_ended(first, a)}, {_ended(second, b)}"
    )


def _ended(run: RunResult, steps: int) -> str:
    how = "ended well" if run.good else "crashed"
    return f"{run.name} {how} after {counted(steps, 'step')}"


def _last(run: RunResult) -> int:
    """Return the steps that the run made. Of several processes, only those that an exception ended
    count: a launcher may end the others at any time."""
    trained = [trace for trace in run.traces if trace.trained]
    raised = [len(trace.steps) for trace in trained if trace.end == "exception"]
    return min(raised) if raised else run.steps


def _up_to_crash(
    first: Sequence[Trace], second: Sequence[Trace]
) -> tuple[list[Trace], list[Trace]]:
    """Return the traces of the processes that trained in both runs, up to the step in which the
    shorter run ended; in that step, only what both recorded."""
    ours = processes(first)
    theirs = with_valid_distances(ours, processes(second))
    a = list[Trace]()
    b = list[Trace]()
    for label in ours.keys() & theirs.keys():
        pair = ours[label], theirs[label]
        common = min(len(trace.steps) for trace in pair)
        for trace, blocks, cut in zip(
            pair, blocks_of_common_steps(*pair), (a, b), strict=True
        ):
            cut.append(replace(trace, steps=trace.steps[:common], blocks=blocks))
    return a, b
