"""Training that Slurm starts on other machines: while its job waits for nodes the run's time stands
still, how Slurm ended it is told in a sentence, and no job outlives its run, nor the gate.

A signal to `srun` reaches the nodes only if it is one that `srun` obeys. So a small process of its
own ends the job; it waits for the gate to ask for that, or to die.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_log
from repro_gate.files import read_start
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.start import command as started_as

# Of this gate run's jobs. All its runs have the same one, since the training can read it.
JOB_NAME = f"repro-gate-{secrets.token_hex(6)}"
_SUBMITS = re.compile(rb"(?<![\w.-])(?:srun|sbatch|salloc)(?![\w.-])")
_SCRIPT_BYTES = 1 << 16
_QUEUED = "queued and waiting for resources"
_ALLOCATED = "has been allocated resources"
_ASKED_EVERY = (
    1.0,
    30.0,
)  # seconds between two questions to the queue, at first and later
_ANSWERS_WITHIN = 20.0
_ENDS_WITHIN = 90.0
# It reads the process group of the command, and `ended` if that has ended by itself. Of the rest
# of the group it asks first, since `srun` ends its tasks on SIGTERM only, those of a job that the
# gate itself is part of too. Then it cancels by name what is still in the queue.
_END = """
import json, os, signal, subprocess, sys, time
queue, cancel, within = json.loads(sys.argv[1])
group, _, ended = sys.stdin.read().partition(" ")
def answer(command):
    try:
        argv, env = command
        done = subprocess.run(argv, env=env, stdin=-3, capture_output=True, timeout=within)
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
        if its == group and state not in "ZX":
            return True
    return False
def send(number):
    try:
        os.killpg(int(group), number)
    except OSError:
        pass
if group and not ended:
    send(signal.SIGTERM)
    until = time.monotonic() + 8
    while lives() and time.monotonic() < until:
        time.sleep(0.05)
    send(signal.SIGKILL)
until = time.monotonic() + 45
while (left := answer(queue)) and time.monotonic() < until:
    answer(cancel)
    time.sleep(0.2)
sys.exit(bool(left))
"""


class Slurm:
    """The jobs that one command submits, while it runs."""

    def __init__(
        self,
        programs: Sequence[str],
        environment: Mapping[str, str],
        sandbox: Sandbox,
        tell: Callable[[str], None],
    ) -> None:
        queue, cancel = programs
        asked = [queue, "--noheader", f"--name={JOB_NAME}", "--format=%T (%r)"]
        self._queue = started_as(sandbox, asked, environment)
        cancelled = started_as(sandbox, [cancel, f"--name={JOB_NAME}"], environment)
        request = json.dumps([self._queue, cancelled, _ANSWERS_WITHIN])
        self._tell = tell
        self._state = ""
        self._every, self._longest = _ASKED_EVERY
        self._next = 0.0
        self._looked = time.monotonic()
        self._waited = 0.0
        self._ender = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _END, request],
            env={},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def follow(self, group: int) -> None:
        """Name the process group that is to be ended with the gate."""
        assert self._ender.stdin is not None
        self._ender.stdin.write(str(group).encode())
        self._ender.stdin.flush()

    def waited(self, log: Callable[[], str]) -> float:
        """Return the seconds that the command has waited in the queue so far, by its log and by the
        queue itself. Called a few times a second."""
        now = time.monotonic()
        if self._is_pending(log(), now):
            self._waited += now - self._looked
        self._looked = now
        return self._waited

    def _is_pending(self, log: str, now: float) -> bool:
        """Return whether the job waits; tell its state where that is new."""
        if log.rfind(_QUEUED) <= log.rfind(_ALLOCATED):
            return False
        if now >= self._next:
            self._every = min(2 * self._every, self._longest)
            self._next = now + self._every
            argv, environment = self._queue
            before = self._state
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                answer = subprocess.run(
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_ANSWERS_WITHIN,
                    check=False,
                )
                self._state = answer.stdout.decode("utf-8", "replace").strip()[:200]
            if self._state not in ("", before):
                self._tell(f"Slurm's queue: {for_log(self._state)}")
        return self._state.startswith("PENDING")

    def end(self, *, by_itself: bool) -> None:
        """End what is left of the jobs; `by_itself`: the command has ended. Raise Inconclusive
        where a job stays."""
        left = True
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._ender.communicate(b" ended" * by_itself, timeout=_ENDS_WITHIN)
            left = self._ender.returncode != 0
        if left:
            self._ender.kill()
            self._ender.wait()
            raise Inconclusive(
                f"the run's job {JOB_NAME} cannot be ended: it is still in Slurm's queue, or Slurm "
                "does not answer",
                remedy=f"see `squeue --name={JOB_NAME}`, and end it: `scancel --name={JOB_NAME}`",
                reason_id="run/job-left",
            )


def submits(text: str, folder: Path) -> bool:
    """Return whether a command asks Slurm for nodes, itself or in a script that it names."""
    if _SUBMITS.search(text.encode()):
        return True
    for word in text.split()[:20]:
        with contextlib.suppress(OSError, ValueError):
            if _SUBMITS.search(read_start(folder / word, _SCRIPT_BYTES)):
                return True
    return False


def slurm(
    environment: dict[str, str], sandbox: Sandbox, tell: Callable[[str], None]
) -> Slurm | None:
    """Name the jobs of a command in its environment, and return what follows them; None where there
    is no Slurm."""
    path = environment["PATH"]
    programs = [shutil.which(name, path=path) for name in ("squeue", "scancel")]
    found = list(filter(None, programs))
    if len(found) < len(programs):
        return None
    environment |= dict.fromkeys(("SLURM_JOB_NAME", "SBATCH_JOB_NAME"), JOB_NAME)
    return Slurm(found, environment, sandbox, tell)
