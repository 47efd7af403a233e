"""Starts small programs as the training's user, the way a training is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.sandbox.identity import GID, OWN_USER, UID, Sandbox
from repro_gate.sandbox.selection import choose
from repro_gate.sandbox.start import command

OWN = Sandbox(OWN_USER, UID, GID)
SAME = Sandbox()
SYSTEM = "/usr/bin:/bin"


def _why_not() -> str:
    try:
        choose({}, OWN_USER)
    except Inconclusive as error:
        return error.message
    return "" if python() else "there is no Python that every user of this machine may start"


@cache
def python() -> str:
    """An interpreter that the training's user can start; empty where there is none."""
    for found in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(found):
            argv, environment = command(OWN, [found, "-I", "-S", "-c", "pass"], {})
            if _started(argv, environment).returncode == 0:
                return found
    return ""


def _started(
    argv: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    options = {"cwd": "/", "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run(argv, env=environment, check=False, **options)


WHY_NOT = _why_not()
needs_own_user = pytest.mark.skipif(bool(WHY_NOT), reason=f"no user of its own here: {WHY_NOT}")


def attempt(
    sandbox: Sandbox,
    source: str,
    *arguments: str | Path | int,
    env: Mapping[str, str] | None = None,
) -> str:
    """What `source` prints, run as `sandbox` says; the last line of its error where it ends
    badly."""
    program = [python(), "-I", "-S", "-c", source, *map(str, arguments)]
    done = _started(*command(sandbox, program, {"PATH": SYSTEM} if env is None else env))
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


READ = "import sys; print(len(open(sys.argv[1], 'rb').read(1)))"
LIST = "import os, sys; print(len(os.listdir(sys.argv[1])))"
APPEND = "import sys; open(sys.argv[1], 'ab').close(); print('opened')"
CONNECT = (
    "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('connected')"
)
SIGNAL = "import os, sys; os.kill(int(sys.argv[1]), 0); print('signalled')"
BECOME = "import os; os.setuid(0); print('root')"
MOUNT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) != 0:
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
print('unshared')
"""
TRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0:
    raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
print('traced')
"""
