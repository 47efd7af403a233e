"""What all threads of a process share in the probe, and what its hooks and sessions agree on."""

from __future__ import annotations

import _thread
import functools
import signal
import sys
from typing import Any

from .patch import wrap


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


def put_off_signals() -> None:
    """Put off the training's handlers of signals while the probe is at work: what they raise is the
    training's to catch, and goes to it."""

    def set_handler(original: Any, signalnum: Any, handler: Any) -> Any:
        before = signal.getsignal(signalnum)
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
    if PROCESS.sessions[0].at_work():
        return PROCESS.late.append((handler, signum, _thread.get_ident()))
    return handler(signum, frame)
