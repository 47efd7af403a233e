"""What Slurm prints at the end of a job is one sentence. The lines are those of Slurm 22.05."""

from __future__ import annotations

import pytest

from repro_gate.runs.ending import crash_of
from repro_gate.runs.process import Ended
from repro_gate.runs.slurm_log import said_of_end

LOGS = {
    "scratch that is not shared": (
        "run/scratch-not-shared",
        "the ranks on gpu2 wrote no trace: it does not see the scratch folder (/scratch/run/code)",
        [
            "slurmstepd-gpu2: error: couldn't chdir to `/scratch/run/code': No such file or directory: going to /tmp instead",
            "slurmstepd-gpu2: error: execve(): python: No such file or directory",
            "srun: error: gpu2: task 1: Exited with exit code 2",
        ],
    ),
    "a rank that is not traced": (
        "run/scratch-not-shared",
        "the ranks on gpu4 wrote no trace: it does not see the scratch folder (/s/run/probe.json)",
        [
            "slurmstepd-gpu4: error: Unable to create TMPDIR [/s/run/tmp]: No such file or directory",
            "repro-gate: gpu4 does not see /s/run/probe.json",
        ],
    ),
    "no such program": (
        "run/not-on-node",
        "gpu2 cannot start /opt/venv/bin/torchrun",
        [
            "slurmstepd: error: execve(): /opt/venv/bin/torchrun: No such file or directory",
            "srun: error: gpu2: task 0: Exited with exit code 2",
        ],
    ),
    "no such interpreter": (
        "run/not-on-node",
        "gpu3 has no Python at /opt/venv/bin/python",
        [
            "/scratch/repro-gate-0-vm-0/run/bin/python: 4: exec: /opt/venv/bin/python: not found",
            "srun: error: gpu3: task 0: Exited with exit code 127",
        ],
    ),
    "the same, by bash": (
        "run/not-on-node",
        "a node has no Python at /opt/python",
        ["/s/run/bin/python: line 4: /opt/python: No such file or directory"],
    ),
    "a node that died": (
        "run/node-failed",
        "Slurm gave gpu2 up",
        [
            "srun: error: Node failure on gpu2",
            "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.",
            "slurmstepd-gpu1: error: *** STEP 38.0 ON gpu1 CANCELLED AT 2026-11-26T12:59:09 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            "srun: error: gpu2: task 1: Terminated",
        ],
    ),
    "preempted": (
        "run/preempted",
        "higher priority",
        [
            "slurmstepd: error: *** STEP 33.0 ON gpu1 CANCELLED AT 2026-11-26T12:58:33 DUE TO PREEMPTION ***"
        ],
    ),
    "time limit": (
        "run/time-limit",
        "time limit",
        [
            "1: slurmstepd: error: *** STEP 23.0 ON gpu1 CANCELLED AT 2026-11-26T12:57:17 DUE TO TIME LIMIT ***"
        ],
    ),
    "scancel": (
        "run/cancelled",
        "was cancelled",
        ["slurmstepd-gpu1: error: *** STEP 29.0 ON gpu1 CANCELLED AT 2026-11-26T12:58:25 ***"],
    ),
    "scancel in the queue": (
        "run/cancelled",
        "was cancelled",
        [
            "srun: job 32 queued and waiting for resources",
            "srun: Job has been cancelled",
            "srun: error: Unable to allocate resources: Job/step already completing or completed",
        ],
    ),
    "--immediate": (
        "run/no-nodes",
        "Requested nodes are busy",
        [
            "srun: job 28 queued and waiting for resources",
            "srun: error: Unable to allocate resources: Requested nodes are busy",
        ],
    ),
    "a partition that is not there": (
        "run/no-nodes",
        "Invalid partition name specified",
        [
            "srun: error: invalid partition specified: nope",
            "srun: error: Unable to allocate resources: Invalid partition name specified",
        ],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_end_of_a_job_is_one_sentence(name: str) -> None:
    reason, sentence, lines = LOGS[name]
    log = ("loss 0.5", *lines, "the last line")
    ending = crash_of(Ended(exit_code=1, tail=log))
    assert ending is not None
    assert (ending.reason_id, ending.outcome) == (reason, "killed")
    assert sentence in ending.problem
    assert ending.remedy
    assert "{" not in ending.problem + ending.remedy


def test_what_a_crash_of_the_training_prints_is_none_of_slurms() -> None:
    lines = ["srun: error: gpu1: task 0: Exited with exit code 1", "ValueError: a NaN"]
    assert said_of_end(lines) is None
    ending = crash_of(Ended(exit_code=1, tail=tuple(lines)))
    assert ending is not None
    assert ending.reason_id == "run/crashed"


def test_a_line_names_at_most_200_characters() -> None:
    said = said_of_end([f"slurmstepd: error: execve(): /{'x' * 5000}: No such file"])
    assert said is not None
    assert len(said.problem) < 300
