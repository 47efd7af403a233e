"""Starts the probe in one interpreter: reads the run's configuration, seeds Python, and waits for numpy and torch to be imported.

It must be quick, since every Python process of a run passes here.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from typing import Any, Dict

from ..trace.format import CONFIG_VARIABLE
from . import audit, callers, children, entropy, imports, opened, redirect, seeds, session


def start(inject: str) -> None:
    """Start the probe. `inject` is the folder of our `sitecustomize`, which children need on their PYTHONPATH."""
    with open(os.environ[CONFIG_VARIABLE], encoding="utf-8") as file:
        config: Dict[str, Any] = json.load(file)
    _die_with(config.get("gate"))
    current = session.open_session(config)
    seeds.seed_python(config["seed"])
    callers.start(config.get("workspace", ""))
    files, draws, original = opened.Opened(config), entropy.Draws(), redirect.Original(config)
    session.OBSERVERS[:] = [files, draws, original]
    imports.after_import("numpy", lambda module: _numpy_arrived(module, draws))
    imports.after_import("torch", lambda module: _torch_arrived(module, draws))
    draws.install()
    imports.provide_sdk()
    children.pass_on(inject)
    audit.install(config, files, draws)
    os.register_at_fork(after_in_child=session.reopen_after_fork)
    atexit.register(session.close_session)
    _close_before_os_exit()
    current.start()
    with current.own_time():
        original.start()


def _numpy_arrived(numpy: Any, draws: entropy.Draws) -> None:
    seeds.seed_numpy(numpy, session.current().config["seed"])
    draws.numpy_arrived(numpy)


def _torch_arrived(torch: Any, draws: entropy.Draws) -> None:
    from . import torch_hooks  # only where the training itself imports torch

    torch_hooks.install(torch, session.current())
    draws.torch_arrived(torch)


def _die_with(gate: Any) -> None:
    """Where the gate itself started this process (Linux): be killed with it, if it is killed before it can end us."""
    if sys.platform == "linux" and os.getppid() == gate:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _close_before_os_exit() -> None:
    """Scripts that end by `os._exit` (and forked workers, which always do) still close their trace."""
    leave = os._exit

    def _exit(status: int) -> None:
        session.close_session()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]
