"""Who the training is to run as on this machine.

The image sets `REPRO_GATE_SANDBOX=own-user`; elsewhere gate and training are one user. Whoever asks
for a user of its own gets that or an error, never quietly less.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import listed
from repro_gate.sandbox.identity import OWN_USER, SAME_USER, UID, Sandbox
from repro_gate.sandbox.reexec import TAKEN_OUT
from repro_gate.sandbox.start import command, status_of

VARIABLE = "REPRO_GATE_SANDBOX"
SAME_USER_REMEDY = (
    "use repro-gate/repro-gate, where training has a user of its own, or keep everything out of "
    "this job that its user must not have"
)
# linux/capability.h: to enter the user and its group, drop the bounding set, give it its files,
# read and close what belongs to the runner's user, and end its processes. Docker grants all of them
# by default.
_NEEDED = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
}
_OWN_USER = Sandbox(UID)


def choose(environment: Mapping[str, str]) -> Sandbox:
    """Return what `REPRO_GATE_SANDBOX` says, else `same-user`.

    Raise UsageError for a word that is neither, Inconclusive where a user of its own was asked for
    and cannot be had.
    """
    level = environment.get(VARIABLE, "") or SAME_USER
    if level not in (SAME_USER, OWN_USER):
        raise UsageError(
            f"{VARIABLE}={level[:100]!r} is no sandbox level",
            remedy=f"`{OWN_USER}` or `{SAME_USER}`",
            reason_id="sandbox/unknown",
        )
    if level == SAME_USER:
        return Sandbox(notes=_weaker(environment))
    missing = _missing()
    if missing:
        raise Inconclusive(
            f"the training cannot run as a separate user: {missing}",
            remedy="run the container as root with Docker's default capabilities, or accept less: "
            f"{VARIABLE}={SAME_USER}",
            reason_id="sandbox/own-user",
        )
    return _OWN_USER


def _missing() -> str:
    """Return what a user of its own needs and this machine does not give; empty where it gives
    all."""
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    if os.geteuid() != 0 or os.getuid() != 0:
        return f"the gate is user {os.geteuid()}, not root"
    effective = int(status_of(os.getpid())["CapEff"][0], 16)
    lacking = [name for name, number in _NEEDED.items() if not effective >> number & 1]
    if lacking:
        return "the gate lacks " + ", ".join(f"CAP_{name}" for name in lacking)
    # a user namespace may map too few users, or refuse setgroups
    entered, environment = command(_OWN_USER, ["/bin/true"], {})
    done = subprocess.run(
        entered, env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr.strip()[-300:] if done.returncode else ""


def _weaker(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what one user for both means, where somebody else's code is likely and a person can do
    something about it: in CI, not on a laptop."""
    is_ci = environment.get("CI", "").lower() in ("true", "1")
    if not is_ci and environment.get("GITHUB_ACTIONS") != "true":
        return ()
    note = (
        "training ran as the gate's own user, so it could read what that user can read and signal "
        "the gate"
    )
    names = [name for name in environment.get(TAKEN_OUT, "").split(",") if name]
    if names:
        note += f"; {listed(names, 5)} had been taken out of its environment"
        note += ", but not out of the processes that started it"
    return (note,)
