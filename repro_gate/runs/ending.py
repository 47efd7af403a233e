"""How a run ended, from its process, its traces and the end of its log: finished, stopped, or the
problem and its remedy.

The log and the traces are untrusted, so what comes back is short and is escaped by whoever prints
it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from repro_gate.escape import clip
from repro_gate.runs.process import Ended
from repro_gate.runs.variation import FIRST, SECOND
from repro_gate.runs.watching import Watcher
from repro_gate.spec.model import Spec
from repro_gate.trace import format as fmt
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Trace
from repro_gate.trace.notebook import place

PREEMPTED = "preempted"  # why a leg of a resumed training was ended
# the reason of a run that torch ended for want of one
NO_DETERMINISTIC = "run/no-deterministic-implementation"
_KILLED = {  # by what the kernel's own count of out-of-memory kills on this machine says
    False: "the kernel killed nothing for want of memory meanwhile: see who else ends processes "
    "here (a job, a time limit, a person)",
    True: "the kernel killed for want of memory on this machine meanwhile, whom is in `dmesg`: "
    "lower the batch size if it was this run",
    None: "whether memory was short cannot be read here: see `dmesg` on the host, and who "
    "else ends processes there",
}
_REFUSED = re.compile(fmt.REFUSAL)

_START = "Traceback (most recent call last):"
# `[rank0]: `, which torch puts before each line
_RANK = re.compile(r"^(?:\[[\w.: -]{1,40}\]:? ?)+")
_FRAME = re.compile(r'\s+File "(?P<path>[^"]{1,1000})", line (?P<line>\d{1,9})')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?:: .*)?$")
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python3|/bin/[^/]+$")
# whatever the temporary folder is called
_WORKSPACES = re.compile(f"^.*/run/(?:{FIRST.workspace}|{SECOND.workspace})/")
_MOST = 300  # characters of the exception's line


@dataclass(frozen=True)
class Ending:
    """`outcome` is one of the report's; where the run cannot be compared, its reason, the problem
    in a sentence, and what to do."""

    outcome: str
    reason_id: str = ""
    problem: str = ""
    remedy: str = ""


def ending_of(
    spec: Spec,
    traces: Sequence[Trace],
    trace_problem: str | None,
    ended: Ended,
    watcher: Watcher,
) -> Ending:
    """Return how the run ended, from most to least specific."""
    trained = [trace for trace in traces if trace.trained]
    steps_done = bool(trained) and all(trace.stopped for trace in trained)
    if ended.timed_out:
        problem = f"it was still running after {spec.train.timeout:g} s and was ended"
        remedy = (
            "raise train.timeout, lower train.steps, or find "
            "what it waits for in the log's end"
        )
        return Ending("timed-out", "run/timeout", problem, remedy)
    if ended.stopped == PREEMPTED:
        return Ending("preempted")
    if ended.stopped and ended.stopped not in ("trace", "steps"):
        return Ending("interrupted", "run/ended-early", ended.stopped)
    # that signal was the gate's own
    crash = None if ended.stopped == "trace" else crash_of(ended)
    if crash and not steps_done and not (trace_problem and "cannot" in trace_problem):
        return crash
    return _untraced(traces, trace_problem, watcher) or Ending(
        "stopped" if steps_done else "finished"
    )


def _untraced(
    traces: Sequence[Trace], trace_problem: str | None, watcher: Watcher
) -> Ending | None:
    """Return why the traces are not whole of a command that ended well; None if they are."""
    if trace_problem:
        return Ending(
            "untraced",
            "trace/unreadable",
            f"its trace cannot be used: {trace_problem}",
            _trace_remedy(trace_problem),
        )
    if watcher.untraced:
        pid, process = next(iter(watcher.untraced.items()))
        starts = {
            item.pid: f", started at {place(item.file, item.line)}"
            for trace in traces
            for item in trace.spawned
        }
        started = next((starts[above] for above in process.pids if above in starts), "")
        problem = (
            f"process {pid} had torch loaded and could not be "
            f"traced: {process.command}{started}"
        )
        remedy = (
            "start it as `python` without -I, -E and -S, with the PATH and PYTHONPATH that its "
            "parent was given (add to their ends, not to their beginnings)"
        )
        return Ending("untraced", "probe/untraced-process", problem, remedy)
    errors = [
        message
        for trace in traces
        for identifier, message in trace.notes
        if identifier == "probe-error"
    ]
    if errors:
        remedy = "please report this line; training was not affected"
        return Ending(
            "untraced", "probe/error", f"the probe itself failed: {errors[0]}", remedy
        )
    if any(trace.end == "exception" for trace in traces if trace.trained):
        problem = "the training ended by an exception that its command did not report"
        return Ending("crashed", "run/crashed", problem, "see the log's end")
    if any(trace.steps for trace in traces):
        return None
    problem = "no Python process of it could be traced"
    if traces:
        problem = (
            "no torch optimizer took a step, no gradient was taken, and nothing was recorded "
            "through repro_gate.record and step"
        )
    loop = next((f" ({trace.loop})" for trace in traces if trace.loop), "")
    remedy = (
        "see the log's end for whether it came to its training loop; if it did, "
        f'add two lines to the training loop{loop}, `repro_gate.record("loss", loss)` and at '
        "its end `repro_gate.step()`, and "
        "`import repro_gate`; or train with a torch optimizer or backward(), or name what it "
        "writes under capture.artifacts"
    )
    return Ending("untraced", "run/nothing-recorded", problem, remedy)


def leave_out_idle(spec: Spec, traces: Sequence[Trace]) -> None:
    """Empty the traces of processes that took no step, unless no process took one and the spec
    names artifacts to compare."""
    whole = [
        trace
        for trace in traces
        if any(identifier == fmt.WHOLE_RUN for identifier, _ in trace.notes)
    ]
    if (
        len(whole) < sum(trace.trained for trace in traces)
        or not spec.capture.artifacts
    ):
        for trace in whole:
            trace.steps.clear()
            trace.blocks.clear()
            trace.notes = [note for note in trace.notes if note[0] != fmt.WHOLE_RUN]


def crash_of(ended: Ended) -> Ending | None:
    """Return how the command ended badly; None if it ended well."""
    if ended.out_of_memory:
        problem = (
            "the kernel killed it, or a process of it, for want of memory (counted in its control "
            "group)"
        )
        return Ending(
            "out-of-memory",
            "run/out-of-memory",
            problem,
            "lower the batch size or train.steps, or use a larger machine",
        )
    if ended.signal == signal.SIGKILL:
        kills = ended.machine_kills
        return Ending(
            "killed",
            "run/killed",
            "it was killed by signal 9 from outside the gate",
            _KILLED[None if kills is None else kills > 0],
        )
    memory = (
        ended.group_killed
        * "; the kernel killed a process of this control group for want of memory meanwhile, "
        "perhaps of another job"
    )
    if ended.signal is not None:
        return Ending(
            "killed",
            "run/killed",
            f"it was ended by signal {ended.signal}",
            f"see the log's end{memory}",
        )
    if not ended.exit_code:
        return None
    blocked = next(
        (
            refusal.group(1)
            for line in reversed(ended.tail)
            if (refusal := _REFUSED.search(line))
        ),
        None,
    )
    if blocked:
        problem = (
            f"`{blocked}` has no deterministic implementation on this device, so torch refused to "
            "run it"
        )
        remedy = (
            "replace the operator, or name torch.use_deterministic_algorithms under "
            "determinism.allow with a reason"
        )
        return Ending("crashed", NO_DETERMINISTIC, problem, remedy)
    remedy = "see the log's end"
    if ended.exit_code in (126, 127):
        remedy = (
            "the command was not found in the workspace: git-ignored files (a .venv, say) are not "
            "copied; put its folder on PATH instead"
        )
    elif any("No module named 'torch'" in line for line in ended.tail):
        remedy = "the `python` on PATH has no torch: activate the environment that you train in"
    return Ending(
        "crashed",
        "run/crashed",
        f"it exited with status {ended.exit_code}",
        remedy + memory,
    )


def _trace_remedy(problem: str) -> str:
    if "too large: with" in problem:
        return "raise capture.every, or lower train.steps"
    if "No space" in problem or "no room" in problem or "too large" in problem.lower():
        return "free space in the temporary folder (TMPDIR), or raise capture.every"
    return (
        "the training process must not write to, cut or remove the trace; run it again"
    )


@dataclass(frozen=True)
class Raised:
    """The exception that ended a training: its line in the log, and the innermost frame that is the
    user's own."""

    text: str
    location: Location | None = None

    def __str__(self) -> str:
        return self.text if self.location is None else f"{self.text} ({self.location})"


def last_exception(log: Sequence[str]) -> Raised | None:
    """Return the exception that ended a training; None if the log holds no traceback. Of several
    (chained, ranks, a launcher's own) the last that goes through the user's code counts."""
    raised: Raised | None = None
    location: Location | None = None
    inside = False
    for line in (_RANK.sub("", line) for line in log):
        frame = _FRAME.match(line)
        if line.strip() == _START:
            location = None
            inside = True
        elif frame is not None:
            inside = True
            if not _LIBRARY.search(frame["path"]):
                location = Location(
                    _WORKSPACES.sub("", frame["path"]), int(frame["line"])
                )
        elif inside and _EXCEPTION.match(line):
            inside = False
            if location or raised is None or raised.location is None:
                raised = Raised(clip(line, _MOST), location)
    return raised
