"""The sandbox's self-test: before the first run, a program that is started as the training will be
tries every known escape.

Whatever succeeds makes the gate run inconclusive and is named; so does what the training needs and
cannot reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import and_more
from repro_gate.sandbox.confinement import barrier_to
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.start import command, end_all

ATTEMPTS = Path(__file__).resolve().with_name("escape_attempts.py")
_SECONDS = 120.0
# Interpreters of the gate's and the system's: never one that an untrusted spec could name.
_INTERPRETERS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What must be out of the training's reach, and what within."""

    unreadable: tuple[Path, ...] = ()  # neither read nor written
    unwritable: tuple[Path, ...] = ()
    sockets: tuple[Path, ...] = ()  # not connected to
    forbidden: tuple[str, ...] = ()  # environment variables that are not to arrive
    reach: tuple[Path, ...] = ()  # read: the probe, its own folders
    data: tuple[Path, ...] = ()  # read as well
    start: tuple[Path, ...] = ()  # interpreters of the training's


def prove(
    sandbox: Sandbox, exposure: Exposure, environment: Mapping[str, str], cwd: Path
) -> None:
    """Try everything, in the environment and folder of a run.

    Raise Inconclusive naming each attempt that succeeded, each thing that is out of reach, or why
    nothing could be tried.
    """
    try:
        succeeded, missing = _answer(sandbox, exposure, environment, cwd)
    finally:
        end_all(sandbox)
    if succeeded:
        raise Inconclusive(
            "sandbox self-test failed: the training user can "
            f"{'; it can '.join(succeeded[:10])} {and_more(len(succeeded) - 10)}".rstrip(),
            remedy="run the image as the workflow's documentation shows, without more capabilities "
            "or mounts; nothing was trained",
            reason_id="sandbox/breached",
        )
    if missing:
        path, why = missing[0]
        remedy = (
            "put it where every user can read it; declared data belongs in the checkout or in a "
            "folder that is open to all"
        )
        barrier = None if Path(path) in exposure.data else _barrier(sandbox, Path(path))
        if barrier is not None:
            why += (
                f"; {barrier} is closed to other users (mode "
                f"{stat.S_IMODE(os.stat(barrier).st_mode):03o}), and the gate opens nothing"
            )
            remedy = (
                "move it to where every user may go (a virtual environment in /opt, say), or "
                f"grant it yourself: `chmod o+x {barrier}`"
            )
        raise Inconclusive(
            f"the training user cannot use {path}: {why} {and_more(len(missing) - 1)}".rstrip(),
            remedy=remedy,
            reason_id="sandbox/out-of-reach",
        )


def _barrier(sandbox: Sandbox, path: Path) -> Path | None:
    """Return the folder that keeps the training's user from `path`, or from where a link at its end
    leads."""
    with contextlib.suppress(OSError):
        return barrier_to(sandbox, path.parent) or barrier_to(
            sandbox, Path(os.path.realpath(path)).parent
        )
    return None


def _answer(
    sandbox: Sandbox, exposure: Exposure, environment: Mapping[str, str], cwd: Path
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return what succeeded, and what is missing and why. Each interpreter is tried until one can
    be started by that user."""
    ids = {"uid": sandbox.uid, "gate": os.getpid()}
    question = json.dumps({**ids, **vars(exposure)}, default=os.fspath)
    why = "there is none"
    for python in filter(os.path.exists, _INTERPRETERS):
        program = [python, "-I", "-S", os.fspath(ATTEMPTS)]
        argv, env = command(sandbox, program, environment)
        try:
            done = subprocess.run(
                argv,
                cwd=cwd,
                env=env,
                input=question.encode(),
                capture_output=True,
                start_new_session=True,
                timeout=_SECONDS,
                check=False,
            )
            if done.returncode == 0:
                answer = json.loads(done.stdout)
                return answer["succeeded"], answer["missing"]
            ending = done.stderr.decode("utf-8", "replace").strip()[-300:]
            why = f"{python} ended with {done.returncode}: {ending}"
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            why = f"{python}: {error}"
    raise Inconclusive(
        "the sandbox self-test could not run: no Python of the system's can be started by its "
        f"user ({why})",
        remedy="install the gate where every user can read it (/opt, /usr/local), or a system-wide "
        "python3",
        reason_id="sandbox/not-tried",
    )
