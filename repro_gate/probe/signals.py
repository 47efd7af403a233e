"""Puts off the training's handlers of signals while the probe is at work: what they raise is the
training's to catch, and goes to it."""

from __future__ import annotations

import _thread
import signal
from typing import Any, Dict

from .patch import wrap
from .shared import PROCESS


def put_off_signals() -> None:
    """Wrap `signal.signal` and `signal.getsignal`."""
    handlers: Dict[int, Any] = {}  # by signal, as the training gave it

    def set_handler(original: Any, signalnum: Any, handler: Any) -> Any:
        def put_off(signum: int, frame: Any) -> Any:
            if PROCESS.sessions[0].at_work():
                return PROCESS.late.append((handler, signum, _thread.get_ident()))
            return handler(signum, frame)

        before = signal.getsignal(signalnum)
        wraps = callable(handler) and handler is not signal.default_int_handler
        original(signalnum, put_off if wraps else handler)
        handlers[int(signalnum)] = handler
        return before

    def get_handler(original: Any, signalnum: Any) -> Any:
        found = original(signalnum)
        is_ours = getattr(found, "__name__", "") == "put_off"
        return handlers.get(int(signalnum), found) if is_ours else found

    wrap(signal, "signal", set_handler)
    wrap(signal, "getsignal", get_handler)
