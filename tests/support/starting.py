"""Starts small programs as the training's user, the way a training is started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.files import remove_tree
from repro_gate.sandbox import selection
from repro_gate.sandbox.identity import OWN_USER, UID, Sandbox
from repro_gate.sandbox.start import command

OWN = Sandbox(UID)
# A user for this process alone: whoever else tests with the usual one meanwhile would end what runs
# here, or take it for what a training left.
OTHER = Sandbox(64400 + os.getpid() % 1000)
SAME = Sandbox()
SYSTEM = "/usr/bin:/bin"


def ran(
    program: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | Path = "/",
    check: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, and what it said."""
    given = {"env": env, "cwd": cwd, "timeout": 60, "capture_output": True, "text": True, **more}
    return subprocess.run(program, check=check, **given)


def _why_not() -> str:
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(selection, "_OWN_USER", OTHER)
            selection.choose({selection.VARIABLE: OWN_USER})
    except Inconclusive as error:
        return error.message
    return "" if python() else "there is no Python that every user of this machine may start"


@cache
def python() -> str:
    """An interpreter that the training's user can start; empty where there is none."""
    for found in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(found):
            argv, environment = command(OTHER, [found, "-I", "-S", "-c", "pass"], {})
            if ran(argv, environment).returncode == 0:
                return found
    return ""


WHY_NOT = _why_not()
needs_own_user = pytest.mark.skipif(bool(WHY_NOT), reason=f"no user of its own here: {WHY_NOT}")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One test at a time on this machine: all of them share the training's user, and each ends all
    of that user's processes."""
    with Path(tempfile.gettempdir(), f"repro-gate-sandbox-tests-{os.getuid()}.lock").open(
        "w"
    ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder of mode 0755 whose path others may pass, since pytest's own are closed to others,
    and closed again whenever a session begins."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)


def modes(root: Path) -> Mapping[str, tuple[int, int, int]]:
    """Mode, owner and time of everything in a folder and of itself, as nobody may change them."""
    found = {str(path): os.lstat(path) for path in [root, *root.rglob("*")]}
    return {path: (state.st_mode, state.st_uid, state.st_mtime_ns) for path, state in found.items()}


def attempt(sandbox: Sandbox, source: str, *arguments: str | Path | int) -> str:
    """What `source` prints, run as `sandbox` says; the last line of its error where it ends
    badly."""
    program = [python(), "-I", "-S", "-c", source, *map(str, arguments)]
    done = ran(*command(sandbox, program, {"PATH": SYSTEM}))
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


READ = "import sys; print(len(open(sys.argv[1], 'rb').read(1)))"
LIST = "import os, sys; print(len(os.listdir(sys.argv[1])))"
APPEND = "import sys; open(sys.argv[1], 'ab').close(); print('opened')"
