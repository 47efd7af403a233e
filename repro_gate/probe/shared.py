"""What all threads of a process share in the probe, and what its hooks and sessions agree on."""

from __future__ import annotations

import _thread
import contextlib
import functools
import signal
import sys
from collections.abc import Iterator
from typing import Any, Callable

from .patch import WeakByIdentity, wrap


class Process:
    """The sessions of the process, and what waits until the probe is no more at work."""

    def __init__(self) -> None:
        self.torch: Any = None  # once the training has imported it
        self.sessions: list[
            Any
        ] = []  # the process's own first, then those of its threads
        # what collects through the life of a process (files, draws, imports); `flush(session,
        # last)` writes it
        self.observers: list[Any] = []
        # starts what a hook has read of devices (`device_digest`)
        self.launch: Callable[[], None] = lambda: None
        # CUDA graphs that are being captured, by any thread
        self.captures = WeakByIdentity()
        # handlers of signals that came while the probe was at work, their signals and the thread
        self.late: list[tuple[Any, int, int]] = []

    def deliver(self) -> None:
        """Run the handlers of the signals that came while the probe was at work, each whatever the
        one before raises. Python runs handlers in the main thread alone."""
        mine = self.late and self.late[0][2] == _thread.get_ident()
        if mine and not self.sessions[0].at_work():
            handler, number, _ = self.late.pop(0)
            try:
                handler(number, sys._getframe(2))
            finally:
                self.deliver()


PROCESS = Process()
HEARD: list[
    Callable[[int], Any]
] = []  # called with each signal that the training handles


def unseen() -> Any:
    """Return a context in which the training sees nothing of what the probe calls: no mode (of
    operators or of functions, a profiler), no `__torch_function__` of a tensor's class."""
    torch = PROCESS.torch
    if torch is None:
        return contextlib.nullcontext()
    core = torch._C
    if core._len_torch_dispatch_stack() or core._autograd._profiler_enabled():
        return _without_modes(torch)
    return core.DisableTorchFunction()


@contextlib.contextmanager
def _without_modes(torch: Any) -> Iterator[None]:
    recording = torch._C._autograd._enable_record_function
    profiled = torch._C._autograd._profiler_enabled()
    modes = torch.utils._python_dispatch._disable_current_modes
    with torch._C.DisableTorchFunction(), modes():
        if profiled:
            recording(False)
        try:
            yield
        finally:
            if profiled:
                recording(True)


def put_off_signals() -> None:
    """Put off the training's handlers of signals while the probe is at work: what they raise is the
    training's to catch, and goes to it."""

    def set_handler(original: Any, signalnum: Any, handler: Any) -> Any:
        before = get_handler(signal.getsignal, signalnum)
        wraps = callable(handler) and handler is not signal.default_int_handler
        wrapped = functools.partial(_put_off, handler) if wraps else handler
        original(signalnum, wrapped)
        return before

    def get_handler(original: Any, signalnum: Any) -> Any:
        handler = original(signalnum)
        is_ours = getattr(handler, "func", None) is _put_off
        return handler.args[0] if is_ours else handler

    wrap(signal, "signal", set_handler)
    wrap(signal, "getsignal", get_handler)


def _put_off(handler: Any, signum: int, frame: Any) -> Any:
    for hear in HEARD:
        hear(signum)
    if PROCESS.sessions[0].at_work():
        return PROCESS.late.append((handler, signum, _thread.get_ident()))
    return handler(signum, frame)
