"""Child processes work one after the other: whoever starts one, sends it something or makes room
for it, waits until no child has anything left to do.

A child has nothing to do when all its threads wait, as Linux tells in /proc: for more work, for
another process, or for its parent. So tasks are done in the order in which they are handed out, and
processes that share memory train one after the other. A child that sleeps counts as busy for a
second, one that computes for twenty; after three that go on for longer nobody is waited for any
more. Not pinned: which of several waiting workers takes a task, and
children that wait on the clock or the network.
"""

from __future__ import annotations

import functools
import os
import subprocess
import time
from typing import Any, Callable

from .. import imports
from ..patch import wrap

_now = time.monotonic
_sleep = time.sleep
_getpid = os.getpid
_listdir = os.listdir
_open = open
# looks, seconds between them, that must all find everybody waiting
_SAMPLES, _APART = 3, 0.002
_ASLEEP, _LONGEST = 1.0, 20.0  # seconds: of sleep, of waiting
_STRIKES: list[int] = []
_BUSY = ("R", "D")


def install(blocking: Callable[..., Any]) -> None:
    """Wait after every start of a child, and after everything that is sent through a pipe of
    `multiprocessing`."""
    if not os.path.isdir(f"/proc/{_getpid()}/task"):
        return
    waits = functools.partial(_then_settle, blocking)
    wrap(subprocess.Popen, "__init__", waits)
    imports.wrap_later("multiprocessing.process", "BaseProcess.start", waits)
    imports.wrap_later("multiprocessing.connection", "Connection._send_bytes", _sent)


def _then_settle(
    blocking: Callable[..., Any], original: Any, *args: Any, **kwargs: Any
) -> Any:
    result = original(*args, **kwargs)
    blocking(settle)
    return result


def _sent(original: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
    """Send; the sender keeps its turn: nobody else sends before this was dealt with."""
    result = original(connection, *args, **kwargs)
    settle()
    return result


def settle() -> None:
    """Wait until every descendant of this process waits."""
    if len(_STRIKES) >= 3 or not _children(_getpid()):
        return
    began = _now()
    quiet = 0
    while quiet < _SAMPLES:
        _sleep(_APART)
        passed = _now() - began
        quiet = 0 if _anybody_busy(passed < _ASLEEP) else quiet + 1
        if passed > _LONGEST:
            _STRIKES.append(1)
            return


def _children(parent: int) -> list[int]:
    folder = f"/proc/{parent}/task"
    text = " ".join(_text(f"{folder}/{task}/children") for task in _listed(folder))
    return [int(item) for item in text.split()]


def _anybody_busy(sleeping_counts: bool) -> bool:
    descendants = _children(_getpid())
    for process in descendants:
        descendants += _children(process)
        for task in _listed(f"/proc/{process}/task"):
            folder = f"/proc/{process}/task/{task}"
            state = _text(folder + "/stat").rpartition(")")[2].split()[:1]
            if state and state[0] in _BUSY:
                return True
            if sleeping_counts and state and "nanosleep" in _text(folder + "/wchan"):
                return True
    return False


def _listed(folder: str) -> list[str]:
    try:
        return _listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with _open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
