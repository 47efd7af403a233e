"""The clock: the time of day and durations, as Python reads them.

Pinned, the clocks of a thread advance by about a millisecond with each reading, and by what was
slept: a loop that waits for a time still ends. How often libraries read them depends on waits and
threads, so their readings do not move the workspace's. What the standard library reads for its own
timeouts stays real. Varied, the time of day is a day and an hour ahead, and for the workspace's own
code alone time passes at three times the speed from the start of the run. Out of sight: C code that
reads the clock itself.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import re
import sys
import threading
import time
from typing import Any, Callable

from .. import session
from ..patch import wrap, wrap_in_type
from ..source_line import module_of
from .use import USES, Stream, asker, inside, is_direct

NAME = "clock"
_BEGIN = 1_700_000_000_000_000_000  # ns since 1970: where the pinned time of day begins
_TICK = 1_000_000  # ns that the first pinned reading takes
# ns that each further one takes more: who waits a minute by reading alone reads some 2,400 times
_SLOWER = 20_000
_AHEAD = 90_000_000_000_000  # ns by which the varied time of day is ahead: 25 hours
_FASTER = 2  # times the time that has passed in fact, which the varied time gains on it
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_OF_PROCESS = ("process_time", "thread_time")  # which count from its own beginning
# What reads the clock to know how long it has waited.
_TIMEOUTS = re.compile(
    r"(threading|queue|selectors|subprocess|concurrent|multiprocessing|asyncio|socket|socketserver|"
    r"sched)(\.|$)"
)
_time = time.time
_localtime = time.localtime


class Clock(threading.local):
    """The pinned time of each thread, in ns since its first reading. `now` is the workspace's,
    `libraries` what their readings add."""

    now = libraries = readings = 0

    def read(self, direct: bool) -> int:
        """Return the time, a tick later than at the last reading."""
        if not direct:
            self.libraries += _TICK
            return self.now + self.libraries
        self.readings += 1
        self.now += _TICK + self.readings * _SLOWER
        return self.now


CLOCK = Clock()


def install() -> None:
    """Wrap the clocks of `time` and `datetime`, and the times of files."""
    # since the start of the run, which all its processes share
    passed = time.time_ns() - _started()
    for name in _CLOCKS:
        begin, ahead = (_BEGIN, _AHEAD) if name == "time" else (0, 0)
        start = 0 if name in _OF_PROCESS else getattr(time, name + "_ns")() - passed
        for called, unit in ((name, 1e-9), (name + "_ns", 1)):
            around = functools.partial(
                _read, "time." + called, begin, ahead, start, unit
            )
            wrap(time, called, around)
    for name in ("localtime", "gmtime", "ctime", "strftime", "asctime"):
        wrap(time, name, functools.partial(_broken_down, name))
    for name in ("now", "utcnow"):  # `today` asks `time.time`
        wrap_in_type(dt.datetime, name, functools.partial(_datetime, name))
    if USES.only_varies(NAME):
        return  # the times of files stay as they are
    wrap(time, "sleep", _sleep)
    USES.wrap(NAME, "os", "stat lstat fstat", _without_times, own=True, content=_times)
    wrap_in_type(os.DirEntry, "stat", _entry_stat)
    for name, unit in (("clock_gettime", 1e-9), ("clock_gettime_ns", 1)):
        wrap(time, name, functools.partial(_gettime, "time." + name, unit))


def _started() -> int:
    """Return when the run began, in ns since 1970."""
    return int(session.current().config["started"] * 1e9)


def _read(
    source: str,
    begin: int,
    ahead: int,
    start: int | None,
    unit: Any,
    original: Callable[[], Any],
) -> Any:
    """Return what a clock says. Pinned it begins at `begin`, varied it is `ahead`; `start` is what
    it said when the run began (None: it does not run faster); all in ns. `unit` is its own, in ns
    or in seconds."""
    frame = asker(sys._getframe(1))
    since = None if start is None or not inside(frame) else type(unit)(start * unit)
    varies = since is not None or bool(ahead)
    only_real = not varies and USES.only_varies(NAME)
    if only_real or frame is None or _TIMEOUTS.match(module_of(frame)):
        return original()

    def pinned(_: Stream, real: Any) -> Any:
        return (begin + CLOCK.read(is_direct(frame, NAME))) * unit

    def varied(real: Any) -> Any:
        gained = 0 if since is None else (real - since) * _FASTER
        return real + type(unit)(ahead * unit) + gained

    return USES.ask(NAME, source, original, pinned, varied if varies else None)


def _of_day(source: str) -> float:
    """Return the time of day, as the caller's caller is to read it, in seconds since 1970."""
    return float(_read(source, _BEGIN, _AHEAD, _started(), 1e-9, _time))


def _gettime(source: str, unit: Any, original: Any, which: int) -> Any:
    of_day = which == time.CLOCK_REALTIME
    real = functools.partial(original, which)
    start = _started() if of_day else None
    return _read(source, _BEGIN * of_day, _AHEAD * of_day, start, unit, real)


def _broken_down(name: str, original: Any, *args: Any) -> Any:
    """Call `time.strftime(format)` and its like, which read the clock if they are given no time."""
    formats = name == "strftime"
    if len(args) > formats and args[formats] is not None:
        return original(*args)
    convert = _localtime if name in ("strftime", "asctime") else float
    return original(*args[:formats], convert(_of_day(f"time.{name}")))


def _datetime(name: str, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
    make = owner.utcfromtimestamp if name == "utcnow" else owner.fromtimestamp
    return make(_of_day(f"datetime.{name}"), *args, **kwargs)


def _sleep(original: Any, seconds: Any) -> Any:
    if isinstance(seconds, (int, float)) and 0 < seconds < 1e9:
        passed = int(seconds * 1e9)
        # `subprocess` sleeps until a child has ended: nobody knows how often
        if is_direct(asker(sys._getframe(1)), NAME):
            CLOCK.now += passed
        else:
            CLOCK.libraries += passed
    return original(seconds)


def _entry_stat(original: Any, _: Any, **kwargs: Any) -> Any:
    real = functools.partial(original, **kwargs)
    source = "os.DirEntry.stat"
    return USES.ask(NAME, source, real, _without_times, own=True, content=_times)


def _times(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns


def _without_times(_: Stream, status: os.stat_result) -> Any:
    reduced: Any = status.__reduce__()
    make, (numbers, fields) = reduced
    for name in fields:
        if "time" in name:
            fields[name] = _BEGIN * (1 if name.endswith("_ns") else 1e-9)
    return make((*numbers[:7], *[_BEGIN // 10**9] * 3), fields)
