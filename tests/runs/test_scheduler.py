"""What a run under Slurm does, with programs in the place of Slurm's; `tests/cluster` has a real
one."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.runs import scheduler
from repro_gate.runs.process import Ended, supervise
from repro_gate.runs.scheduler import JOB_NAME, slurm, submits
from repro_gate.sandbox.identity import Sandbox
from tests.support.starting import OTHER, SAME, needs_own_user, open_folder

# It lists a job as long as nobody has cancelled it.
QUEUE = '[ -e "$0.cancelled" ] || cat "$0.state" 2>/dev/null || true\n'
CANCEL = 'touch "${0%scancel}squeue.cancelled"; echo "$@" >"$0.arguments"; id -u >"$0.user"\n'


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder with a `squeue` that lists what `squeue.state` holds, and a `scancel`."""
    with open_folder() as folder:
        for name, text in (("squeue", QUEUE), ("scancel", CANCEL)):
            (folder / name).write_text(f"#!/bin/sh\n{text}")
            (folder / name).chmod(0o755)
        yield folder


def run(
    programs: Path, source: str, timeout: float = 30.0, sandbox: Sandbox = SAME
) -> tuple[Ended, list[str]]:
    """How a command ended that submits jobs, and what a person was told meanwhile. Its training
    has begun when there is a file `trace`."""
    told = list[str]()
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    jobs = slurm(environment, sandbox, told.append, (programs / "trace").exists)
    command = ["/bin/sh", "-c", textwrap.dedent(source)]
    given: dict[str, Any] = {
        "env": environment,
        "timeout": timeout,
        "sandbox": sandbox,
        "slurm": jobs,
    }
    ended = supervise(command, cwd=programs, **given)
    return ended, told


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("srun -N2 python train.py", True),
        ("exec /opt/slurm/bin/srun python train.py", True),
        ("sbatch --wait job.sh", True),
        ("bash launch.sh 42", True),
        ("python train.py --run srunner", False),
        ("python my-srun.py", False),
        ("python train.py", False),
        ("bash none.sh", False),
    ],
)
def test_a_command_that_asks_slurm_for_nodes_is_known(
    command: str, is_one: bool, tmp_path: Path
) -> None:
    (tmp_path / "launch.sh").write_text("set -e\nsrun -N2 python train.py --seed $1\n")
    (tmp_path / "train.py").write_text("# to be started by srun")
    assert submits(command, tmp_path) == is_one


def test_a_job_has_the_runs_name_and_what_is_in_the_queue_is_cancelled(programs: Path) -> None:
    (programs / "squeue.state").write_text("1 RUNNING None\n")
    ended, told = run(programs, "echo $SLURM_JOB_NAME $SBATCH_JOB_NAME")
    assert (ended.exit_code, ended.tail) == (0, (f"{JOB_NAME} {JOB_NAME}",))
    assert (programs / "scancel.arguments").read_text() == f"--name={JOB_NAME}\n"
    assert told == []


@needs_own_user
def test_it_is_cancelled_by_the_trainings_own_user(programs: Path) -> None:
    programs.chmod(0o777)
    (programs / "squeue.state").write_text("1 RUNNING None\n")
    (programs / "squeue.state").chmod(0o644)
    run(programs, "true", sandbox=OTHER)
    assert (programs / "scancel.user").read_text() == f"{OTHER.uid}\n"


def test_nothing_is_cancelled_where_nothing_is_in_the_queue(programs: Path) -> None:
    run(programs, "true")
    assert not (programs / "scancel.arguments").exists()


def test_a_command_that_is_ended_gets_a_signal_that_srun_obeys(programs: Path) -> None:
    ended, _ = run(programs, "trap 'echo asked; exit 7' TERM; sleep 30 & wait", timeout=2.0)
    assert ended.timed_out
    assert ended.tail == ("asked",)


@pytest.fixture
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_ASKED_EVERY", 0.1)
    monkeypatch.setattr(scheduler.Slurm, "waited_in_all", 0.0)


WAITS = """echo "$$ PENDING Resources" >squeue.state
echo 'srun: job 7 queued and waiting for resources'"""


@pytest.mark.usefixtures("asked_often")
def test_seconds_in_the_queue_are_not_counted(programs: Path) -> None:
    source = f"{WAITS}; sleep 1.5; rm squeue.state; touch trace"
    ended, told = run(programs, source, timeout=1.0)
    assert not ended.timed_out
    assert ended.seconds < 1.0
    assert told == ["Slurm's queue: PENDING (Resources)"]


@pytest.mark.usefixtures("asked_often")
@pytest.mark.parametrize(
    "source",
    [
        f"touch trace; {WAITS}; exec sleep 30",
        f"{WAITS}; sleep 0.5; touch trace; exec sleep 30",
        f"{WAITS}; echo '1 PENDING Resources' >squeue.state; exec sleep 30",
        f'{WAITS}; echo "$$ RUNNING None" >>squeue.state; exec sleep 30',
        "echo 'srun: job 7 queued and waiting for resources'; exec sleep 30",
    ],
    ids=["has-begun", "begins", "another-session", "one-runs", "no-job"],
)
def test_a_training_does_not_postpone_its_timeout(programs: Path, source: str) -> None:
    began = time.monotonic()
    ended, _ = run(programs, source, timeout=1.0)
    assert ended.timed_out
    assert time.monotonic() - began < 20


@pytest.mark.usefixtures("asked_often")
def test_the_runs_of_a_gate_run_wait_a_day_in_sum(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_LONGEST", 1.5)
    for _ in range(2):
        began = time.monotonic()
        assert run(programs, f"{WAITS}; exec sleep 30", timeout=0.5)[0].timed_out
    assert time.monotonic() - began < 1.5


def test_a_job_that_stays_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_END", scheduler._END.replace("+ 45", "+ 0.3"))
    (programs / "scancel").write_text("#!/bin/sh\nexit 1\n")
    (programs / "squeue.state").write_text("1 RUNNING None\n")
    with pytest.raises(Inconclusive, match=JOB_NAME) as caught:
        run(programs, "true")
    assert caught.value.reason_id == "run/job-left"


def test_a_slurm_that_does_not_answer_is_no_matter_where_the_command_ended(programs: Path) -> None:
    (programs / "squeue").write_text("#!/bin/sh\nexit 1\n")
    ended, _ = run(programs, "echo 'srun: fatal: no configuration'; exit 1")
    assert ended.exit_code == 1


def test_where_there_is_no_slurm_nothing_is_named(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    assert slurm(environment, SAME, print, bool) is None
    assert environment == {"PATH": str(tmp_path)}
