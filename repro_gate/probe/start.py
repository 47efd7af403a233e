"""Starts the probe in one interpreter: reads the run's configuration, seeds Python, and waits for
numpy and torch to be imported.

It must be quick, since every Python process of a run passes here.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import sys
import time
from typing import Any

from ..trace.format import CONFIG_VARIABLE
from . import (
    audit,
    children,
    factors,
    facts,
    flags,
    imports,
    session,
    source_line,
    stress,
)
from .checkout_imports import CheckoutImports
from .digest import EXTENSION
from .entropy import Draws
from .factors import use
from .lines import Lines
from .opened import Opened
from .patch import held, hold, wrap
from .shared import PROCESS, put_off_signals

_BEHIND = (
    "the clock of {1} is {0:.0f} s behind that of the gate's machine: "
    "files that the run wrote may be taken for older ones"
)
# seconds that a notebook's kernel has to end, once it was asked to
_KERNEL_ENDS = 120.0


def start(inject: str) -> None:
    """Start the probe. `inject` is the folder of our `sitecustomize`, which children need on their
    PYTHONPATH."""
    hold()
    with open(os.environ[CONFIG_VARIABLE], encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    config["started"] /= 1e9  # s from ns, which have as many digits in each run
    _die_with(config["gate"])
    EXTENSION[:] = [config["extension"]]
    current = session.open_session(config)
    random.seed(config["seed"])
    # before the clock may be varied
    behind = config["started"] - time.time()
    source_line.start(config["workspace"], config["started"])
    flags.remember(config["variables"])
    files = Opened(config)
    draws = Draws()
    checkout = CheckoutImports(config)
    if config["stress"]:
        stress.install()
    factors.start(config)
    lines = [Lines(config["lines"])] if "lines" in config else []
    PROCESS.observers[:] = [files, draws, checkout, use, *lines]

    def numpy_arrived(numpy: Any) -> None:
        # no seed reaches a `default_rng()` of the training's own
        numpy.random.seed(config["seed"] % 2**32)
        held("numpy")
        draws.numpy_arrived()

    def torch_arrived(torch: Any) -> None:
        from . import torch_hooks  # only where the training itself imports torch

        hold()
        torch_hooks.install(session.current())
        draws.torch_arrived(torch)
        factors.torch_arrived(torch)

    imports.after_import("numpy", numpy_arrived)
    imports.after_import("torch", torch_arrived)
    # It draws from the training's generator, each time that a kernel is asked whether it is up: how
    # often that is depends on the load.
    imports.wrap_later("IPython.core.tips", "pick_tip", lambda original: "")
    imports.after_import("jupyter_client.manager", _kernels_end_in_order)
    if config.get("fault"):
        from . import faults

        faults.install(config["fault"])
    draws.install()
    # `from repro_gate import record, step` works in every traced process
    sys.meta_path.append(imports.Sdk)
    children.pass_on(inject)
    audit.install(config, files, draws)
    os.register_at_fork(after_in_child=lambda: session.current().fork())
    atexit.register(session.close_session)
    wrap(os, "_exit", _close_and_exit)
    put_off_signals()
    current.start()
    if behind > 1:
        current.note("clock-behind", _BEHIND.format(behind, facts.BASIC["host"]()))
    with current.in_hook():
        checkout.start()
    for item in lines:
        item.start()


def _kernels_end_in_order(manager: Any) -> None:
    """Jupyter asks a kernel to end, and kills it five seconds later: on a busy machine that is
    before the probe in it has written its last digests."""
    setting = getattr(manager.KernelManager, "shutdown_wait_time", None)
    if setting is not None:
        setting.default_value = _KERNEL_ENDS


def _die_with(gate: Any) -> None:
    """Be killed with the gate, if it started this process itself (Linux) and is killed before it
    can end us."""
    if sys.platform == "linux" and os.getppid() == gate:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def _close_and_exit(leave: Any, status: int) -> None:
    """Scripts that end by `os._exit` (and forked workers, which always do) still close their
    trace."""
    session.close_session()
    leave(status)
