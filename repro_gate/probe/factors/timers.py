"""Time limits, a part of the factor clock: timers that fire, and waits that end, after a time that
no call of a clock shows.

Watched, a use is a timer that fired, at the line that set it, and a wait of the workspace's own
that ended because its time was over. Pinned, a timer fires once its thread has run so many lines of
the workspace, each of which takes a tick; and who waits has some seconds more, so that what it
waits for decides: the next one that waits in vain gets half of them. Out of sight: the time limits
of asyncio, and those that libraries set for themselves.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable

from ...trace.format import TIMED
from .. import imports, shared, source_line
from ..patch import wrap
from .use import (
    BUSY,
    Site,
    call_in,
    calling_frame,
    inside,
    is_pinned,
    note,
    random_marker,
)

NAME = "clock"
TICK = 1_000_000  # ns that the first pinned reading takes
# ns that each further one takes more: who waits a minute by reading alone reads some 2,400 times
_SLOWER = 20_000
# module, functions, and the place of the time limit among their arguments
_WAITS = (
    ("queue", "Queue.get SimpleQueue.get", 2),
    ("queue", "Queue.put", 3),
    ("threading", "Thread.join Event.wait Condition.wait Barrier.wait", 1),
    ("threading", "Condition.wait_for Semaphore.acquire", 2),
    ("concurrent.futures", "Future.result Future.exception wait", 1),
    ("multiprocessing.queues", "Queue.get", 2),
    ("multiprocessing.queues", "Queue.put", 3),
    ("multiprocessing.process", "BaseProcess.join", 1),
    ("multiprocessing.pool", "ApplyResult.get", 1),
    ("multiprocessing.connection", "_ConnectionBase.poll wait", 1),
    ("multiprocessing.synchronize", "Event.wait Condition.wait", 1),
    ("subprocess", "Popen.wait", 1),
    ("subprocess", "Popen.communicate", 2),
    ("subprocess", "run check_call check_output call", 99),  # by keyword only
)
# Errors that say that the time is over, by name: several modules have their own.
_OVER = (
    "Empty",
    "Full",
    "TimeoutError",
    "timeout",
    "TimeoutExpired",
    "BrokenBarrierError",
)
_PATIENCE = [5.0]  # seconds by which a pinned wait is longer
_LONGEST = 1e9  # seconds
_SIGNALS = ("SIGALRM", "SIGVTALRM", "SIGPROF")
_TIMERS = dict(zip((0, 1, 2), _SIGNALS))  # ITIMER_REAL and the others
_GO = "_repro_gate_go"  # attribute of a pinned `threading.Timer`
_wait = threading.Event.wait
_monotonic = time.monotonic


class Clock(threading.local):
    """The pinned time of each thread, in ns since its first reading. `now` is the workspace's,
    `libraries` what their readings add."""

    now = libraries = readings = 0

    def add(self, passed: int, direct: bool) -> int:
        """Let time pass for the workspace (`direct`) or for libraries; return the time."""
        if not direct:
            self.libraries += passed
            return self.now + self.libraries
        self.now += passed
        return self.now

    def read(self, direct: bool) -> int:
        """Return the time, a tick later than at the last reading."""
        self.readings += direct
        return self.add(TICK + self.readings * _SLOWER * direct, direct)


CLOCK = Clock()


class _Due(threading.local):
    """The pinned timers of a thread: key -> (when it fires, how often then, both in ns; how)."""

    def __init__(self) -> None:
        self.timers: dict[object, tuple[int, int, Callable[[], Any]]] = {}

    def set(
        self, key: object, seconds: float, every: float, fire: Callable[[], Any]
    ) -> None:
        """Set a timer, and let each line of the workspace take a tick from here on. Where
        something else follows the lines, no timer fires."""
        self.timers[key] = CLOCK.now + int(seconds * 1e9), int(every * 1e9), fire
        if sys.gettrace() is None:
            sys.settrace(_called)
            frame: FrameType | None = sys._getframe(1)
            while frame is not None:
                if inside(frame):
                    frame.f_trace = _line
                frame = frame.f_back

    def tick(self) -> None:
        """Let a tick pass, and fire what is due."""
        now = CLOCK.add(TICK, True)
        for key, (at, every, fire) in list(self.timers.items()):
            if now >= at:
                del self.timers[key]
                if every:
                    self.timers[key] = now + every, every, fire
                fire()
        if not self.timers:
            sys.settrace(None)


_DUE = _Due()
# signal -> the line that set its timer, its call
_SET: dict[int, tuple[Site, str]] = {}


def _called(frame: FrameType, event: str, arg: Any) -> Any:
    return _line if inside(frame) else None


def _line(frame: FrameType, event: str, arg: Any) -> Any:
    if event == "line":
        _DUE.tick()
    return _line


def install() -> None:
    """Wrap what sets a timer and what waits with a time limit, and hear of signals."""
    for module, names, place in _WAITS:
        imports.wrap_named(module, names, functools.partial(_waited, place))
    names = "socket.recv socket.recv_into socket.recvfrom socket.accept"
    imports.wrap_named("socket", names, _received)
    shared.HEARD.append(_fired)
    wrap(signal, "alarm", _alarm)
    wrap(signal, "setitimer", _set_timer)
    wrap(threading.Timer, "__init__", _timer)
    wrap(threading.Timer, "run", _ran)


def _note(source: str, site: Site, call: str = "") -> None:
    if site[0]:
        note(NAME, source + TIMED, random_marker(), site=site, call=call, direct=True)


def _waited(place: int, source: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Wait, and note where the time was over before."""
    limit: Any = kwargs.get("timeout", args[place] if len(args) > place else None)
    frame = calling_frame()
    if not _is_limit(limit) or BUSY.depth or not inside(frame):
        return original(*args, **kwargs)
    site, call = source_line.nearest(frame), call_in(frame)
    pinned = is_pinned(NAME, site)
    if pinned and "timeout" in kwargs:
        kwargs["timeout"] = limit + _PATIENCE[0]
    elif pinned:
        args = (*args[:place], limit + _PATIENCE[0], *args[place + 1 :])
    over = False
    try:
        result = original(*args, **kwargs)
        over = _in_vain(source, args[0], result)
        return result
    except Exception as error:
        over = type(error).__name__ in _OVER
        raise
    finally:
        if over:
            _PATIENCE[0] /= 2 if pinned else 1
            _note(source, site, call)


def _in_vain(source: str, waited_for: Any, result: Any) -> bool:
    """Return whether a wait that raised nothing ended because its time was over."""
    if source.endswith("join"):
        return bool(waited_for.is_alive())
    if source.endswith(("get", "result", "exception")):
        return False  # these raise
    return result is False or result == [] or bool(getattr(result, "not_done", ()))


def _is_limit(limit: object) -> bool:
    return isinstance(limit, (int, float)) and 0 < limit < _LONGEST


def _received(source: str, original: Any, sock: Any, *args: Any, **kwargs: Any) -> Any:
    """Receive from a socket; what it was told to wait at most is for its own calls."""
    begin = _monotonic()
    while True:
        try:
            return original(sock, *args, **kwargs)
        except OSError as error:
            if type(error).__name__ not in _OVER:
                raise
            frame = calling_frame()
            site = source_line.nearest(frame)
            if is_pinned(NAME, site):
                if _monotonic() - begin < sock.gettimeout() + _PATIENCE[0]:
                    continue
                _PATIENCE[0] /= 2
            _note(source, site, call_in(frame))
            raise


def _fired(number: int) -> None:
    if number in _SET:
        _note("the timer", *_SET[number])


def _alarm(original: Any, seconds: Any) -> Any:
    return _armed(original, signal.SIGALRM, seconds, 0)


def _set_timer(original: Any, which: Any, seconds: Any, interval: Any = 0) -> Any:
    number = getattr(signal, _TIMERS.get(which, ""), 0)

    def set_real(seconds: Any) -> Any:
        return original(which, seconds, interval)

    return _armed(set_real, number, seconds, interval)


def _armed(set_real: Any, number: Any, seconds: Any, every: Any) -> Any:
    """Set or clear the timer of a signal."""
    frame = calling_frame()
    site = source_line.nearest(frame)
    _DUE.timers.pop(number, None)
    if _is_limit(seconds) and site[0]:
        _SET[number] = site, call_in(frame)
        if is_pinned(NAME, site):
            fire = functools.partial(signal.raise_signal, number)
            _DUE.set(number, seconds, every, fire)
            return set_real(0)
    return set_real(seconds)


def _timer(
    original: Any, timer: Any, interval: Any, function: Any, *args: Any, **kwargs: Any
) -> Any:
    """Make a `threading.Timer` that notes when it fires."""
    frame = calling_frame()
    site, call = source_line.nearest(frame), call_in(frame)

    def noted(*inner: Any, **options: Any) -> Any:
        _note("threading.Timer", site, call)
        return function(*inner, **options)

    original(timer, interval, noted if site[0] else function, *args, **kwargs)
    if site[0] and _is_limit(interval) and is_pinned(NAME, site):
        go = threading.Event()
        setattr(timer, _GO, go)

        def fire() -> None:
            go.set()
            if timer.is_alive():
                _wait(timer.finished, _PATIENCE[0])

        _DUE.set(timer, interval, 0, fire)


def _ran(original: Any, timer: Any) -> Any:
    """Run a timer: where it is pinned, once the thread that made it says so, or has ended."""
    go = vars(timer).get(_GO)
    if go is not None:
        main = threading.main_thread()
        while main.is_alive() and not (_wait(go, 0.05) or timer.finished.is_set()):
            pass
        timer.interval = 0
    return original(timer)
