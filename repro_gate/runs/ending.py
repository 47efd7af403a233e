"""Decides how a run ended from its process, its traces and the end of its log: finished, stopped,
or the problem and its remedy.

The log and the traces are untrusted, so texts from them are cut short here and escaped by whoever
prints them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from repro_gate.escape import clip, listed
from repro_gate.runs.process import Ended
from repro_gate.runs.slurm_log import NOT_SHARED, SHARE, said_of_end
from repro_gate.runs.variation import FIRST, SECOND
from repro_gate.runs.watching import Untraced
from repro_gate.spec.model import Spec
from repro_gate.trace import format as fmt
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Trace
from repro_gate.trace.notebook import place

_TASKS = "SLURM_STEP_NUM_TASKS"
_SIZES = ("WORLD_SIZE", _TASKS)
_NUMBER = re.compile(r"\d{1,5}")
_LOST = (
    "of rank {} there is no trace, though other ranks know of it: its node may not see the scratch "
    "folder, or trains with another Python than the gate's `python`"
)
PREEMPTED = "preempted"  # why a leg of a resumed training was ended
# The reason if torch ended a run because an operator has no deterministic implementation.
NO_DETERMINISTIC = "run/no-deterministic-implementation"
NOTHING_RECORDED = "run/nothing-recorded"
CANNOT_START = (126, 127)  # exit statuses of a shell
SEE_LOG = "see the log's end"
_REFUSED = re.compile(fmt.REFUSAL)
# torch cannot fill a tensor of this type, or a library writes to a new one on a stream of its own
_FILLED = re.compile("fill_empty_deterministic_|deep_ep")

_START = "Traceback (most recent call last):"
# `[rank0]: `, which torch puts before each line
_RANK = re.compile(r"^(?:\[[\w.: -]{1,40}\]:? ?)+")
_FRAME = re.compile(r'\s+File "(?P<path>[^"]{1,1000})", line (?P<line>\d{1,9})')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?:: .*)?$")
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python3|/bin/[^/]+$")
# The temporary folder may have any name.
_WORKSPACES = re.compile(f"^.*/run/(?:{FIRST.workspace}|{SECOND.workspace})/")
_MOST = 300  # characters of the exception's line


@dataclass(frozen=True)
class Ending:
    """How a run ended. `outcome` is one of the report's. If the run cannot be compared, the other
    fields hold the reason, the problem in a sentence, and the remedy."""

    outcome: str
    reason_id: str = ""
    problem: str = ""
    remedy: str = ""


def ending_of(
    spec: Spec,
    traces: Sequence[Trace],
    trace_problem: str,
    ended: Ended,
    untraced: Untraced | None,
) -> Ending:
    """Return how the run ended. If several endings apply, the most specific wins."""
    trained = [trace for trace in traces if trace.trained]
    steps_done = bool(trained) and all(trace.stopped for trace in trained)
    if ended.timed_out:
        return Ending(
            "timed-out",
            "run/timeout",
            f"it was still running after {spec.train.timeout:g} s, so the gate ended it",
            "raise train.timeout, lower train.steps, or see the log's end for what it waits for",
        )
    if ended.stopped == PREEMPTED:
        return Ending(PREEMPTED)
    if ended.stopped and ended.stopped not in ("trace", "steps"):
        return Ending("interrupted", "run/ended-early", ended.stopped)
    # If the trace is unusable, the gate itself killed the run, so this is no crash.
    crash = None if ended.stopped == "trace" else crash_of(ended)
    if crash and not steps_done and "cannot" not in trace_problem:
        return crash
    incomplete = _incomplete(traces, trace_problem, untraced)
    # `srun` ends well where a node dies
    if incomplete and (said := said_of_end(ended.tail)):
        return Ending("killed", *said)
    return incomplete or Ending("stopped" if steps_done else "finished")


def _incomplete(
    traces: Sequence[Trace], trace_problem: str, process: Untraced | None
) -> Ending | None:
    """Return why the traces of a command that ended well cannot be compared; None if they can."""
    if trace_problem:
        problem = f"its trace cannot be used: {trace_problem}"
        remedy = _trace_remedy(trace_problem)
        return Ending("untraced", "trace/unreadable", problem, remedy)
    if lost := _lost_ranks(traces):
        return Ending("untraced", NOT_SHARED, _LOST.format(lost), SHARE)
    if process:
        lines = [item for trace in traces for item in trace.spawned]
        starts = {item.pid: place(item.file, item.line) for item in lines}
        problem = (
            f"process {process.pids[0]} loaded torch but could not be traced: "
            f"{process.command}"
        )
        if started := next(filter(None, map(starts.get, process.pids)), ""):
            problem += f", started at {started}"
        remedy = (
            "start it as `python` without -I, -E and -S, with the PATH and PYTHONPATH of its "
            "parent (append to them, do not prepend)"
        )
        return Ending("untraced", "probe/untraced-process", problem, remedy)
    for identifier, message in (note for trace in traces for note in trace.notes):
        if identifier == "probe-error":
            problem = f"the probe itself failed: {message}"
            remedy = "please report this line; the training was not affected"
            return Ending("untraced", "probe/error", problem, remedy)
    if any(trace.trained and trace.end == "exception" for trace in traces):
        problem = (
            "an exception ended the training, but its command exited with status 0"
        )
        return Ending("crashed", "run/crashed", problem, SEE_LOG)
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
        "see the log's end for whether it reached its training loop; if it did, add to the "
        f'training loop{loop} `repro_gate.record("loss", loss)` and at its end '
        "`repro_gate.step()`, and `import repro_gate`; or train with a torch optimizer or "
        "backward(), or list the files that it writes under capture.artifacts"
    )
    return Ending("untraced", NOTHING_RECORDED, problem, remedy)


def _lost_ranks(traces: Sequence[Trace]) -> str:
    """Return the numbers of the ranks that Slurm started and of which no trace came, though the
    others know how many there are; empty if there are none."""
    if not any(_TASKS in trace.variables for trace in traces):
        return ""  # such as one shard of a training, which was told that there are more
    keys = {trace.key.partition("/")[0] for trace in traces}
    sizes = [trace.variables.get(name, "") for trace in traces for name in _SIZES]
    size = max((int(text) for text in sizes if _NUMBER.fullmatch(text)), default=0)
    lost = [str(rank) for rank in range(size) if f"rank{rank}" not in keys]
    # where no trace has the name of a rank, the training does not use the variable
    return listed(lost, 5) if 0 < len(lost) < size else ""


def leave_out_idle(traces: Sequence[Trace]) -> None:
    """Empty the traces of processes that took no step, unless no process took one."""
    idle = [trace for trace in traces if fmt.WHOLE_RUN in dict(trace.notes)]
    if len(idle) < sum(trace.trained for trace in traces):
        for trace in idle:
            trace.steps.clear()
            trace.blocks.clear()
            trace.notes = [note for note in trace.notes if note[0] != fmt.WHOLE_RUN]


def crash_of(ended: Ended) -> Ending | None:
    """Return the crash of the command; None if it ended well."""
    if ended.out_of_memory:
        return Ending(
            "out-of-memory",
            "run/out-of-memory",
            "the kernel killed it or one of its processes because memory ran out",
            "lower the batch size or train.steps, or use a larger machine",
        )
    if ended.exit_code and (said := said_of_end(ended.tail)):
        return Ending("killed", *said)
    if ended.signal == signal.SIGKILL:
        return Ending(
            "killed",
            "run/killed",
            "something outside the gate killed it with signal 9",
            "look for what kills processes here (a job scheduler, a time limit, a person), and "
            "see `dmesg` for whether memory ran out",
        )
    if ended.signal is not None:
        problem = f"signal {ended.signal} ended it"
        return Ending("killed", "run/killed", problem, SEE_LOG)
    if not ended.exit_code:
        return None
    if refusals := [*filter(None, map(_REFUSED.search, ended.tail))]:
        return Ending(
            "crashed",
            NO_DETERMINISTIC,
            f"`{refusals[-1][1]}` has no deterministic implementation on this device, so torch "
            "refused to run it",
            "replace the operator, or name torch.use_deterministic_algorithms under "
            "determinism.allow with a reason",
        )
    remedy = SEE_LOG
    if ended.exit_code in CANNOT_START:
        remedy = (
            "the command was not found in the workspace: git-ignored files (a .venv, say) are not "
            "copied; put its folder on PATH instead"
        )
    elif any("No module named 'torch'" in line for line in ended.tail):
        remedy = "the `python` on PATH has no torch: activate the environment that you train in"
    elif any(map(_FILLED.search, ended.tail)):
        remedy += (
            ", and try it without the memory fill: `determinism: {allow: [{flag: "
            "torch.utils.deterministic.fill_uninitialized_memory, reason: …}]}`"
        )
    problem = f"it exited with status {ended.exit_code}"
    return Ending("crashed", "run/crashed", problem, remedy)


def _trace_remedy(problem: str) -> str:
    if "too large: with" in problem:
        return "raise capture.every, or lower train.steps"
    if re.search("no space|no room|too large", problem, re.IGNORECASE):
        return "free space in the temporary folder (TMPDIR), or raise capture.every"
    return "run it again: the training must not write to, truncate or remove the trace"


@dataclass(frozen=True)
class Raised:
    """The exception that ended a training: its line in the log, and the innermost frame in the
    user's own code."""

    text: str
    location: Location | None = None

    def __str__(self) -> str:
        return self.text if self.location is None else f"{self.text} ({self.location})"


def last_exception(log: Sequence[str]) -> Raised | None:
    """Return the exception that ended a training; None if the log has no traceback. Of several
    (chained ones, those of ranks or a launcher) return the last that passes through the user's
    code."""
    raised: Raised | None = None
    location = None
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
