"""Disturbs the timing of one process, and nothing else: what depends on who is first shows sooner. No generator of the training is used."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from . import imports
from .patch import wrap

_INTERVAL = 1e-6  # seconds between two chances of another thread; Python's own is 5 ms
_LONGEST = 0.01  # seconds of a pause before a thread, a task or a process begins


def install() -> None:
    """Change threads as often as can be, let what runs beside the main thread begin at odd times, and DataLoaders with workers fetch one
    batch more ahead."""
    sys.setswitchinterval(_INTERVAL)
    wrap(threading.Thread, "run", _later)
    imports.after_import("concurrent.futures.thread", lambda module: wrap(module._WorkItem, "run", _later))
    imports.after_import("multiprocessing.process", lambda module: wrap(module.BaseProcess, "run", _later))
    imports.after_import("torch.utils.data.dataloader", lambda module: wrap(module.DataLoader, "__init__", _one_more))


def _later(original: Any, *args: Any, **kwargs: Any) -> Any:
    time.sleep(os.urandom(1)[0] / 255 * _LONGEST)
    return original(*args, **kwargs)


def _one_more(original: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("num_workers"):
        kwargs["prefetch_factor"] = (kwargs.get("prefetch_factor") or 2) + 1
    return original(*args, **kwargs)
