"""Child processes work one after the other: whoever starts one, sends it something or makes room
for it, waits until no child has anything left to do.

A child has nothing to do when all its threads wait, as Linux tells in /proc: for more work, for
another process, or for its parent. So tasks are done in the order in which they are handed out, and
processes that share memory train one after the other. A child that sleeps counts as busy for a
second, one that computes for ten seconds of the processor's time; after three that go on for longer
nobody is waited for any more. Not pinned: which of several waiting workers takes a task, and
children that wait on the clock or the network.
"""

from __future__ import annotations

import functools
import os
import subprocess
import time
from typing import Any, Callable, Iterator, List, Set

from .. import imports
from ..patch import wrap

_now, _sleep, _getpid = time.monotonic, time.sleep, os.getpid
_SAMPLES, _APART = 3, 0.002  # looks, seconds between them, that must all find everybody waiting
_ASLEEP, _MOST, _LONGEST = 1.0, 10.0, 60.0  # seconds: of sleep, of the processors' time, of waiting
_STRIKES: List[int] = []
_BUSY = ("R", "D")
_SLEEPS = ("nanosleep",)


def install(away: Callable[..., Any]) -> None:
    """Wait after every start of a child, and after everything that is sent through a pipe of
    `multiprocessing`."""
    if not os.path.isdir("/proc/%d/task" % _getpid()):
        return
    waits = functools.partial(_then_settle, away)
    wrap(subprocess.Popen, "__init__", waits)
    imports.wrap_after("multiprocessing.process", "BaseProcess.start", waits)
    imports.wrap_after(
        "multiprocessing.connection", "Connection._send_bytes", functools.partial(_sent, away)
    )


def _then_settle(away: Callable[..., Any], original: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    away(settle)
    return result


def _sent(
    away: Callable[..., Any], original: Any, connection: Any, *args: Any, **kwargs: Any
) -> Any:
    """The sender keeps its turn: nobody else sends before this was dealt with."""
    result = original(connection, *args, **kwargs)
    settle()
    return result


def settle() -> None:
    """Wait until every descendant of this process waits, for ten seconds at most."""
    if len(_STRIKES) >= 3 or not _children(_getpid()):
        return
    began, quiet, spent = _now(), 0, _spent()
    while quiet < _SAMPLES:
        _sleep(_APART)
        passed = _now() - began
        quiet = 0 if _anybody_busy(passed < _ASLEEP) else quiet + 1
        if passed > _LONGEST or (passed > _MOST and _spent() - spent > _MOST):
            _STRIKES.append(1)
            return


def _children(parent: int) -> Set[int]:
    found: Set[int] = set()
    for task in _listed("/proc/%d/task" % parent):
        found.update(
            int(item) for item in _text("/proc/%d/task/%s/children" % (parent, task)).split()
        )
    return found


def _descendants() -> Iterator[int]:
    left, seen = list(_children(_getpid())), set()
    while left:
        process = left.pop()
        if process not in seen:
            seen.add(process)
            left += _children(process)
            yield process


def _spent() -> float:
    """Seconds of the processors' time that all descendants have taken."""
    fields = (
        _text("/proc/%d/stat" % process).rpartition(")")[2].split() for process in _descendants()
    )
    return sum(int(item[11]) + int(item[12]) for item in fields if len(item) > 12) / float(
        os.sysconf("SC_CLK_TCK")
    )


def _anybody_busy(sleeping_counts: bool) -> bool:
    for process in _descendants():
        for task in _listed("/proc/%d/task" % process):
            folder = "/proc/%d/task/%s" % (process, task)
            state = _text(folder + "/stat").rpartition(")")[2].split()[:1]
            if state and state[0] in _BUSY:
                return True
            if (
                sleeping_counts
                and state
                and any(name in _text(folder + "/wchan") for name in _SLEEPS)
            ):
                return True
    return False


def _listed(folder: str) -> List[str]:
    try:
        return _listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        file = _open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, 65536).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


_listdir, _open = os.listdir, os.open
