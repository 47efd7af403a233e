"""Training that Slurm starts on other machines: while its job waits for nodes the run's time stands
still, how Slurm ended it is told in a sentence, and no job outlives its run, nor the gate.

A signal to `srun` reaches the nodes only if it is one that `srun` obeys. So a small process of its
own ends the job; it waits for the gate to ask for that, or to die.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_log
from repro_gate.files import read_start
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.start import command as started_as

# Of this gate run's jobs. All its runs have the same one, since the training can read it.
JOB_NAME = f"repro-gate-{secrets.token_hex(6)}"
_SUBMITS = re.compile(rb"(?<![\w.-])(?:srun|sbatch|salloc)(?![\w.-])")
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_SCRIPT_BYTES = 1 << 16
_ASKED_EVERY = 5.0  # seconds between two questions to the queue
_WITHIN = 30.0  # seconds in which Slurm answers
_LONGEST = 86400.0  # seconds that the runs of one gate run wait in the queue, in sum
_FIELDS = "AllocSID:20,State:20,Reason:120"
# A program's arguments and its environment.
Started: TypeAlias = tuple[list[str], dict[str, str]]
# It reads how to ask the queue and to cancel, the process group of the command, and at the end one
# more line if the command has ended by itself. Else the group gets SIGTERM first, on which `srun`
# ends its tasks, those of a job that the gate itself is part of too; while it starts them it may
# miss one. What is still in the queue then is cancelled by name.
_END = """
import json, os, signal, subprocess, sys, time
queue, cancel, group, *ended = map(json.loads, sys.stdin.read().splitlines())
def answer(command):
    try:
        argv, env = command
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return b"?"
    return b"?" if done.returncode else done.stdout.strip()
def lives():
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _, its = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its) == group and state not in "ZX":
            return True
    return False
def send(number):
    try:
        os.killpg(group, number)
    except OSError:
        pass
if not ended:
    until = time.monotonic() + 8
    while lives() and time.monotonic() < until:
        send(signal.SIGTERM)
        time.sleep(0.2)
    send(signal.SIGKILL)
left = answer(queue)
if ended and left == b"?":
    sys.exit()  # what the command got to hear of Slurm is in its log
until = time.monotonic() + 45
while left and time.monotonic() < until:
    answer(cancel)
    time.sleep(0.2)
    left = answer(queue)
sys.exit(bool(left))
"""


@dataclass
class Slurm:
    """The jobs that one command submits, while it runs. `queue` lists them, `cancel` ends them;
    `has_begun` says whether the training has written a trace."""

    queue: Started
    cancel: Started
    tell: Callable[[str], None]
    has_begun: Callable[[], bool]
    waited_in_all: ClassVar[float] = 0.0  # seconds, of all runs

    def __post_init__(self) -> None:
        self._state = self._session = ""
        self._looked = time.monotonic()
        self._asked = self._waited = 0.0
        self._ender = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _END],
            env={},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def follow(self, group: int) -> None:
        """Name the process group that is to be ended with the gate, which is a session too."""
        self._session = str(group)
        pipe = self._ender.stdin
        if pipe is not None:
            lines = map(json.dumps, (self.queue, self.cancel, group))
            with suppress(OSError):
                pipe.write("\n".join(lines).encode())
                pipe.flush()

    def waited(self) -> float:
        """Return the seconds that the command has waited in the queue so far. Called a few times a
        second.

        The training cannot postpone its timeout: what it prints does not count, nor does a job that
        was submitted elsewhere than in the command's session, and nothing does once it has begun.
        """
        now = time.monotonic()
        if self.has_begun() or Slurm.waited_in_all > _LONGEST:
            return self._waited
        is_asked = now - self._asked > _ASKED_EVERY
        if is_asked:
            self._asked = now
            self._ask()
        if self._state.startswith("PENDING"):
            self._waited += now - self._looked
            Slurm.waited_in_all += now - self._looked
        elif not is_asked:
            return self._waited  # it may have been submitted since the last answer
        self._looked = now
        return self._waited

    def _ask(self) -> None:
        """Ask the queue, and tell the state of the command's job where it is new."""
        argv, environment = self.queue
        before = self._state
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                argv, env=environment, capture_output=True, timeout=_WITHIN, check=False
            )
            self._state = state_of(
                done.stdout.decode("utf-8", "replace"), self._session
            )
        if self._state not in ("", before):
            self.tell(f"Slurm's queue: {for_log(self._state)}")

    def end(self, *, by_itself: bool) -> None:
        """End what is left of the jobs; `by_itself`: the command has ended. Raise Inconclusive
        where a job stays."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self._ender.communicate(b"\n1" * by_itself, timeout=3 * _WITHIN)
        self._ender.kill()
        if self._ender.wait():
            raise Inconclusive(
                f"the run's job {JOB_NAME} cannot be ended: it is still in Slurm's queue, or Slurm "
                "does not answer",
                remedy=f"see `squeue --name={JOB_NAME}`, and end it: `scancel --name={JOB_NAME}`",
                reason_id="run/job-left",
            )


def state_of(listing: str, session: str) -> str:
    """Return the state of the jobs that were submitted in a session, and Slurm's reason for it, by
    lines of session, state and reason; empty where there is none, or where one is not pending."""
    jobs = [
        line.split(None, 2)[1:]
        for line in listing.splitlines()
        if line.split()[:1] == [session]
    ]
    states = [f"{state} ({' '.join(reason).strip()})" for state, *reason in jobs]
    state = max(states, key=lambda state: not state.startswith("PENDING"), default="")
    return state[:200]


def submits(text: str, folder: Path) -> bool:
    """Return whether a command asks Slurm for nodes, itself or in a shell script that it names."""
    if _SUBMITS.search(text.encode()):
        return True
    for word in text.split():
        if not word.endswith(_SCRIPTS):
            continue
        with suppress(OSError, ValueError):
            if _SUBMITS.search(read_start(folder / word, _SCRIPT_BYTES)):
                return True
    return False


def slurm(
    environment: dict[str, str],
    sandbox: Sandbox,
    tell: Callable[[str], None],
    has_begun: Callable[[], bool],
) -> Slurm | None:
    """Name the jobs of a command in its environment, and return what follows them; None where there
    is no Slurm."""
    queue, cancel = (
        shutil.which(name, path=environment["PATH"]) for name in ("squeue", "scancel")
    )
    if not queue or not cancel:
        return None
    environment |= dict.fromkeys(("SLURM_JOB_NAME", "SBATCH_JOB_NAME"), JOB_NAME)
    name = f"--name={JOB_NAME}"
    return Slurm(
        started_as(
            sandbox, [queue, name, "--noheader", f"--Format={_FIELDS}"], environment
        ),
        started_as(sandbox, [cancel, name], environment),
        tell,
        has_begun,
    )
