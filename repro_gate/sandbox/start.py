"""How a process of the training's is started, and how all of them are ended.

Another user is entered through `setpriv` (util-linux), before the first instruction of the
training: no supplementary groups, no capability in any set, no way to gain one (no-new-privs).
Nothing of the package is imported but the model, the errors and `files`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.files import TOOLS
from repro_gate.sandbox.identity import Sandbox

# never the PATH that the gate was given: an earlier step may have written to it
_SYSTEM_PATH = f"{TOOLS}:/usr/bin:/bin:/usr/sbin:/sbin"
# seconds; a process inside a device driver's call ends only when that returns
_END_WITHIN = 15.0
_ROUNDS_APART = 0.02
_AT_ONCE_WITHIN = 3.0  # seconds
# kill(-1) reaches every process that its sender may signal, forks under way included; sent with
# that user's rights, it is exactly that user's. It is sent by a process that changes its own user
# (an exec may fail where the training has used up its user's processes), and whose real and saved
# user are nobody's: the training could stop one that is wholly of its user before it gets to send
# anything.
_KILL = """
import os, sys
uid, nobody = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(nobody, uid, nobody)
try:
    os.kill(-1, 9)
except ProcessLookupError:
    pass
"""


def command(
    sandbox: Sandbox, argv: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return what to start, and in which environment, so that `argv` runs in `environment` as who
    `sandbox` says. Everything that is the training's is started so.

    `setpriv` itself is still root, and `environment` is an untrusted: an LD_PRELOAD in it would be
    root's. So it is put in place (`env -i`) only behind the change of user. What is started has the
    caller's umask and limits. Raise Inconclusive where a tool is missing.
    """
    if not sandbox.own_user:
        return list(argv), dict(environment)
    entered = [
        _tool("setpriv"),
        f"--reuid={sandbox.uid}",
        f"--regid={sandbox.uid}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--",
    ]
    settled = [
        _tool("env"),
        "-i",
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    # `env` would take it for a variable
    program = ["/bin/sh", "-c", 'exec "$@"', "sh"] if "=" in argv[0] else []
    return [*entered, *settled, *program, *argv], {"PATH": _SYSTEM_PATH, "LC_ALL": "C"}


def _tool(name: str) -> str:
    path = shutil.which(name, path=_SYSTEM_PATH)
    if path is None:
        raise Inconclusive(
            f"the training cannot be started as its own user: there is no `{name}` in "
            f"{_SYSTEM_PATH.replace(':', ', ')}",
            remedy="install util-linux and coreutils",
            reason_id="sandbox/own-user",
        )
    return path


def end_all(sandbox: Sandbox) -> None:
    """Kill every process of the training's user, wherever it hangs in the process tree, and wait
    until none is left.

    Where gate and training are one user nothing is done. Raise Inconclusive where one cannot be
    ended.
    """
    if not sandbox.own_user:
        return
    uid = sandbox.uid
    deadline = time.monotonic() + _END_WITHIN
    while True:
        # all in one call of the kernel's, so that none is forked meanwhile; this does nothing where
        # the training has used up all processes
        run_program(_KILL, uid, uid + 1, seconds=_AT_ONCE_WITHIN)
        left = processes_of(uid, reap=True)
        if not left:
            return
        for pid in left:
            _kill_one(pid, uid)
        if time.monotonic() > deadline:
            raise Inconclusive(
                f"processes of the training's user {uid} cannot be ended: "
                f"{', '.join(map(str, left[:10]))}",
                remedy="see what they wait for (`ps -o pid,stat,wchan,args`); a hung device driver "
                "needs a restart of the machine",
                reason_id="sandbox/not-ended",
            )
        time.sleep(_ROUNDS_APART)


def run_program(program: str, *arguments: object, seconds: float) -> None:
    """Run a small program of the gate's with an empty environment, in a session of its own: a
    Ctrl-C at the terminal is the gate's alone. Do nothing where it cannot be started or ended."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", program, *map(str, arguments)],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            start_new_session=True,
        )


def _kill_one(pid: int, uid: int) -> None:
    """Kill a process of that user, never another one that has got its number meanwhile."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if str(uid) in status_of(pid).get("Uid", ()):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def processes_of(uid: int, *, reap: bool = False) -> list[int]:
    """Return living processes that have `uid` as any of their users. `reap`: dead ones that fell to
    us are let go."""
    living = []
    for name in os.listdir("/proc"):
        fields = status_of(int(name)) if name.isdecimal() else {}
        if str(uid) not in fields.get("Uid", ()):
            continue
        if fields["State"][0] not in "ZX":
            living.append(int(name))
        elif reap and fields["PPid"][0] == str(os.getpid()):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(name), os.WNOHANG)
    return living


def status_of(pid: int) -> dict[str, list[str]]:
    """Return what the kernel says of a process; nothing where it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {
        key: value.split()
        for key, _, value in (line.partition(":") for line in text.splitlines())
    }
