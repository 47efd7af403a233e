"""How Slurm ended a job, by the lines that `srun` and the nodes print, as one sentence. Pure.

The log is the training's and untrusted: it can only make its own run inconclusive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from repro_gate.escape import clip

NOT_SHARED = "run/scratch-not-shared"
SHARE = "name a folder that all nodes see: `--scratch FOLDER`, or `scratch` in the spec"
_MOST = 200  # characters of what a line names
# The beginning of a line, behind the label that `srun --label` puts there.
_START = r"^(?:\d+: )?"
_STEP = _START + r"slurmstepd(?:-(?P<node>\S+?))?: error: "
_ENDED = r"\*\*\* (?:STEP|JOB) \S+ ON (?P<on>\S+) CANCELLED AT \S+"
# The gate's own `python`, a script that starts the one that it found.
_SHIM = r"^\S*/run/bin/\S+: (?:line )?\d+: (?:exec: )?"
_REFUSED = (
    _START
    + r"(?:srun|salloc|sbatch): error: (?:Unable to allocate resources|Unable to "
    r"create step[^:]*|Batch job submission failed): "
)
_UNSEEN = (
    "the ranks on {node} wrote no trace: it does not see the scratch folder ({what})"
)
_FAILED = (
    "see why (`sinfo --list-reasons`, the log of slurmctld), and run the gate again"
)
_INSTALL = (
    "install it on every node at the same path, or in a folder that all nodes see"
)
# What ended a task, by which its node is known where its daemon is not named for it.
_TASK = re.compile(_START + r"srun: error: (?P<node>\S+?): tasks? [\d,-]+: ")


class Said(NamedTuple):
    """A sentence of Slurm's: the reason's id, the problem, and its remedy."""

    reason_id: str
    problem: str
    remedy: str


# A pattern, the reason's id, the problem and its remedy. The first pattern that a line matches
# decides; the fields of the sentence are its groups.
_TABLE = rf"""
{_START}repro-gate: (?P<node>\S+) does not see (?P<what>.+)
{NOT_SHARED}
{_UNSEEN}
{SHARE}

{_STEP}couldn't chdir to `(?P<what>[^']*)'
{NOT_SHARED}
{_UNSEEN}
{SHARE}

{_STEP}execve\(\): (?P<what>.*): (?:No such file|Permission denied)
run/not-on-node
{{node}} cannot start {{what}}, which is not there, or not for this user
{_INSTALL}

{_SHIM}(?P<what>/\S+): .*(?:[Nn]ot found|No such file)
run/not-on-node
{{node}} has no Python at {{what}}, with which the gate was started
{_INSTALL}

{_START}srun: error: Node failure on (?P<node>\S+)
run/node-failed
Slurm gave {{node}} up while it trained
{_FAILED}

{_STEP}{_ENDED} DUE TO NODE FAILURE
run/node-failed
Slurm gave a node up while it trained
{_FAILED}

{_STEP}{_ENDED} DUE TO PREEMPTION
run/preempted
Slurm took the nodes away for a job of higher priority
run the gate again, in a partition or with a QOS that is not preempted

{_STEP}{_ENDED} DUE TO TIME LIMIT
run/time-limit
the time limit of its Slurm job was over
raise it (`srun --time`), or lower train.steps

{_STEP}{_ENDED}|{_START}srun: Job has been cancelled
run/cancelled
its Slurm job was cancelled (`scancel`), not by the gate
see who or what cancels jobs here, and run the gate again

{_REFUSED}(?P<what>.+)
run/no-nodes
Slurm gave it no nodes: {{what}}
see `sinfo`, and what `train.run` asks for: partition, nodes, time, memory
"""
_SENTENCES = [
    (re.compile(pattern), Said(*texts))
    for pattern, *texts in map(str.splitlines, _TABLE.strip().split("\n\n"))
]


def said_of_end(log: Sequence[str]) -> Said | None:
    """Return what Slurm said of the end of a job; None where it said nothing."""
    nodes = [found["node"] for found in map(_TASK.match, log) if found]
    for pattern, said in _SENTENCES:
        if found := next(filter(None, map(pattern.match, log)), None):
            groups = {
                name: clip(text, _MOST)
                for name, text in found.groupdict().items()
                if text
            }
            node = groups.get("node") or next(iter(nodes), "a node")
            return Said(*(text.format(**{**groups, "node": node}) for text in said))
    return None
