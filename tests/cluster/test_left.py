"""However a run or the gate ends, no job, no process and no file is left on any node."""

from __future__ import annotations

import signal
import subprocess

import pytest

from repro_gate.runs.scheduler import JOB_NAME
from tests.cluster.conftest import Site, slurm, until
from tests.support.gates import LOOP

SRUN = "srun -N1 -w gpu3 python train.py {seed}"
# of no end
ON = LOOP.replace("range(6)", "range(1_000_000)").replace("# here", "import time; time.sleep(0.05)")
ENDLESS = {"steps": 1_000_000, "timeout": "5m"}


def started(site: Site, run: str = SRUN) -> subprocess.Popen[str]:
    """A gate whose training goes on on a node."""
    gate = site.start(run, ON, train=ENDLESS)
    until(lambda: any("train.py" in line and "srun" not in line for line in site.processes()), 30)
    return gate


def test_a_run_that_times_out_leaves_nothing(site: Site) -> None:
    gated = site.gate(SRUN, ON, train={**ENDLESS, "timeout": "2s"})
    gated.must(3, "run/timeout")
    assert site.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_gate_that_is_interrupted_leaves_nothing(site: Site, number: signal.Signals) -> None:
    gate = started(site)
    gate.send_signal(number)
    out, _ = gate.communicate(timeout=30)
    assert gate.returncode == 3, out
    assert site.left() == []


def test_a_gate_that_is_killed_leaves_no_job_and_no_process(site: Site) -> None:
    gate = started(site)
    gate.kill()
    gate.communicate(timeout=30)
    until(lambda: not site.left())
    assert [*site.scratch.iterdir()] != []
    # what it could not remove, the next one removes
    site.gate(SRUN).must(0)


def test_a_batch_job_ends_with_its_run(site: Site) -> None:
    """`sbatch` ends at once without `--wait`: its job is the run's nevertheless."""
    gated = site.gate("sbatch -w gpu3 --wrap='python train.py 1'", ON, train=ENDLESS)
    assert gated.exit_code == 3, gated.said
    assert site.left() == []


def test_within_a_job_the_step_ends_and_the_job_stays(site: Site) -> None:
    slurm("salloc", "--no-shell", "-N1", "-w", "gpu3", "--job-name=the-gates-own")
    job = slurm("squeue", "--noheader", "--name=the-gates-own", "--format=%i")
    try:
        folder = site.made(SRUN, ON, train={**ENDLESS, "timeout": "2s"})
        gated = site.within(job, folder)
        gated.must(3, "run/timeout")
        assert site.processes() == []
        steps = slurm("squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i")
        assert f"{job}.0" not in steps.split()
        assert slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T") == "RUNNING"
    finally:
        slurm("scancel", job)


def test_a_training_without_slurm_pays_nothing(site: Site) -> None:
    source = LOOP.replace("# here", "import os; assert 'SLURM_JOB_NAME' not in os.environ")
    site.gate("python train.py {seed}", source).must(0)
    assert JOB_NAME.startswith("repro-gate-")
