"""What goes wrong on a cluster is one sentence, and never a divergence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.conftest import AT, SLURM, Site, slurm, until
from tests.cluster.test_left import ON
from tests.support.gates import LOOP, Gated

SRUN = "srun -N1 -w gpu4 python train.py {seed}"


def ended(gate: subprocess.Popen[str], site: Site) -> Gated:
    """A gate that was started, at its end."""
    out, _ = gate.communicate(timeout=60)
    return site.read(gate.returncode, out)


@contextmanager
def busy(*more: str) -> Iterator[None]:
    """All of the node is somebody else's inside."""
    job = ["srun", "-N1", "-w", "gpu4", "--exclusive", "-J", "somebody-elses", *more, "sleep", "60"]
    with subprocess.Popen(job, env={**os.environ, **SLURM}, stderr=subprocess.DEVNULL):
        until(lambda: slurm("squeue", "--noheader", "--states=R", "--name=somebody-elses"))
        yield
        slurm("scancel", "--name=somebody-elses")


def running(site: Site, steps: int = 40) -> subprocess.Popen[str]:
    """A gate whose training takes so many steps of 50 ms on the node."""
    source = ON.replace("1_000_000", str(steps))
    gate = site.start("srun -N1 -w gpu4 python train.py 1", source, train={"steps": steps})
    until(lambda: any("srun" not in line and "train.py" in line for line in site.processes()), 30)
    return gate


def restarted(*before: str) -> None:
    """The node's daemon, started again by a command that ends in it."""
    end(AT / "gpu4.pid", signal.SIGTERM)
    subprocess.run(
        [*before, "slurmd", "-N", "gpu4"], env={**os.environ, **SLURM}, check=True, timeout=30
    )
    until(
        lambda: slurm("sinfo", "--noheader", "-n", "gpu4", "-p", "train", "--format=%T") == "idle",
        40,
    )


def end(file: Path, number: signal.Signals) -> None:
    """Send a signal to the process that a file names, and wait for its end."""
    with suppress(OSError, ValueError):
        pid = int(file.read_text())
        os.kill(pid, number)
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_program_that_a_node_does_not_have(site: Site) -> None:
    gated = site.gate("srun -N1 -w gpu4 /no/such/python train.py")
    gated.must(3, "run/not-on-node")
    assert "gpu4 cannot start /no/such/python" in gated.stdout


def test_a_job_that_is_cancelled(site: Site) -> None:
    gate = running(site)
    slurm("scancel", "--nodelist=gpu4")
    gated = ended(gate, site)
    gated.must(3, "run/cancelled")
    assert gated.report["determinism"] is None


def test_waiting_in_the_queue_is_no_time_of_the_run(site: Site) -> None:
    run = "srun -N1 -w gpu4 --exclusive python train.py 1"
    with busy():
        gate = site.start(run, LOOP, train={"timeout": "8s"})
        with suppress(subprocess.TimeoutExpired):
            gate.wait(12)
    gated = ended(gate, site)
    gated.must(0)
    assert "Slurm's queue: PENDING (" in gated.stdout
    assert gated.report["runs"][0]["seconds"] < 8


def test_a_training_cannot_postpone_its_timeout(site: Site) -> None:
    """It says that it waits, and has a job that does."""
    submits = "sbatch --hold --output=/dev/null --wrap=true"
    says = "echo 'srun: job 7 queued and waiting for resources'"
    run = json.dumps(f"{submits}; {says}; exec python train.py 1")
    began = time.monotonic()
    gated = site.gate(run, ON, train={"steps": 1_000_000, "timeout": "8s"})
    gated.must(3, "run/timeout")
    assert time.monotonic() - began < 45


def test_a_queue_that_stays_full(site: Site) -> None:
    with busy():
        gated = site.gate("srun -N1 -w gpu4 --immediate=1 python train.py 1")
    gated.must(3, "run/no-nodes")
    assert "Requested nodes are busy" in gated.stdout


def test_a_job_that_is_preempted(site: Site) -> None:
    gate = running(site)
    with busy("-p", "urgent"):
        pass
    ended(gate, site).must(3, "run/preempted")


def test_a_node_that_dies(site: Site) -> None:
    gate = running(site, 1_000)  # it must not end before the node does
    try:
        job = site.queue()[0].split()[0]
        end(AT / "gpu4.pid", signal.SIGKILL)
        # Its steps' own processes first, or they would tell `srun` that their tasks were killed.
        subprocess.run(["pkill", "-KILL", "-f", rf"^slurmstepd: \[{job}\."], check=True)
        for pid, line in site.running().items():
            if "srun" not in line:
                os.kill(pid, signal.SIGKILL)
        # as slurmctld does by itself, after the time that it waits for a node
        slurm("scontrol", "update", "nodename=gpu4", "state=down", "reason=killed")
        until(lambda: not site.processes(), 30)
    finally:
        restarted()
    # its second run has waited for the node
    ended(gate, site).must(3, "run/node-failed")


def test_a_scratch_folder_that_is_not_shared(site: Site) -> None:
    """gpu4 has a file system of its own in its place."""
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    restarted("unshare", "--mount", "sh", "-c", mount, str(site.scratch))
    try:
        gated = site.gate(SRUN)
        gated.must(3, "run/scratch-not-shared")
        sentence = "the ranks on gpu4 wrote no trace: it does not see the scratch folder"
        assert sentence in gated.stdout
        assert "--scratch" in gated.stdout
        # where the script lies elsewhere, all ranks end well
        script = site.place / "alone.py"
        script.write_text(LOOP)
        gated = site.gate(f"srun -N2 -w gpu2,gpu4 --chdir=/ python {script} 1")
        gated.must(3, "run/scratch-not-shared")
        assert sentence in gated.stdout
    finally:
        restarted()
