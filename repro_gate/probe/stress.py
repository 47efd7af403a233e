"""Disturbs the timing of one process, and nothing else: what depends on who is first shows sooner.
No generator of the training is used."""

from __future__ import annotations

import itertools
import os
import sys
import time
from typing import Any

from . import imports

_INTERVAL = 1e-6  # seconds between two chances of another thread; Python's own is 5 ms
# seconds of a pause before a thread, a task or a process begins, or hands something over
_LONGEST = 0.01
# hand-overs of a process that all wait, and how many of those after them one waits of
_ALWAYS = 200
_SELDOM = 16
_PUTS = itertools.count()


def install() -> None:
    """Change threads as often as can be, let what runs beside the main thread begin and hand over
    at odd times, and DataLoaders with workers fetch one batch more ahead."""
    sys.setswitchinterval(_INTERVAL)
    for module, names, around in (
        ("threading", "Thread.run", _later),
        ("concurrent.futures.thread", "_WorkItem.run", _later),
        ("multiprocessing.process", "BaseProcess.run", _later),
        ("queue", "Queue.put", _put),
        ("multiprocessing.queues", "Queue.put SimpleQueue.put", _put),
        ("torch.utils.data.dataloader", "DataLoader.__init__", _one_more),
    ):
        imports.wrap_later(module, names, around)


def _later(original: Any, *args: Any, **kwargs: Any) -> Any:
    # never 0: that would only look who else can run
    time.sleep((os.urandom(1)[0] + 1) / 256 * _LONGEST)
    return original(*args, **kwargs)


def _put(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Wait before some hand-overs, the same ones in every run: where threads take turns, a pause
    hands the turn on, however long it is."""
    number = next(_PUTS)
    waits = number < _ALWAYS or number % _SELDOM == 0
    return _later(original, *args, **kwargs) if waits else original(*args, **kwargs)


def _one_more(original: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("num_workers"):
        kwargs["prefetch_factor"] = (kwargs.get("prefetch_factor") or 2) + 1
    return original(*args, **kwargs)
