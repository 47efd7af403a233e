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

import glob
import os
import time
from collections.abc import Iterator
from contextlib import suppress

from .use import BUSY

_now = time.monotonic
_sleep = time.sleep
_getpid = os.getpid
_open = open
# looks, seconds between them, that must all find everybody waiting
_SAMPLES, _APART = 3, 0.002
_ASLEEP, _LONGEST = 1.0, 20.0  # seconds: of sleep, of waiting
_STRIKES: list[int] = []
_BUSY = ("R", "D")


def settle() -> None:
    """Wait until every descendant of this process waits."""
    with BUSY:  # what is read meanwhile is no use
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
    texts = _texts(f"/proc/{parent}/task/*/children")
    return [int(item) for item in " ".join(texts).split()]


def _anybody_busy(sleeping_counts: bool) -> bool:
    descendants = _children(_getpid())
    for process in descendants:
        descendants += _children(process)
        folder = f"/proc/{process}/task/*"
        for state in _texts(folder + "/stat"):
            if state.rpartition(")")[2].lstrip().startswith(_BUSY):
                return True
        if sleeping_counts and "nanosleep" in "".join(_texts(folder + "/wchan")):
            return True
    return False


def _texts(pattern: str) -> Iterator[str]:
    """Yield what the files hold that are there."""
    for path in glob.glob(pattern):
        with suppress(OSError), _open(path, encoding="ascii", errors="replace") as file:
            yield file.read()
