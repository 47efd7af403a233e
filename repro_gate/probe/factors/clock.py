"""The clock: the time of day and durations, as Python reads them.

Pinned, the clocks of a thread advance by about a millisecond with each reading, and by what was
slept: a loop that waits for a time still ends. How often libraries read them depends on waits and
threads, so their readings do not move the workspace's. What the standard library reads for its own
timeouts stays real, for `timers` to watch and pin. Varied, the time of day is a day and an hour
ahead, and for the workspace's own code alone time passes at three times the speed from the start of
the run; `clock_gettime` is not varied. Out of sight: C code that reads the clock itself.
"""

from __future__ import annotations

import datetime as dt
import functools
import os
import re
import time
from typing import Any, Callable

from .. import session
from ..patch import wrap
from ..source_line import module_of
from . import timers
from .timers import CLOCK, NAME
from .use import Stream, ask, ask_about, calling_frame, inside, is_direct, only_varies

_BEGIN = 1_700_000_000_000_000_000  # ns since 1970: where the pinned time of day begins
_AHEAD = 90_000_000_000_000  # ns by which the varied time of day is ahead: 25 hours
_FASTER = 2  # times the time that has passed in fact, which the varied time gains on it
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# What reads the clock to know how long it has waited.
_TIMEOUTS = re.compile(
    r"(threading|queue|selectors|subprocess|concurrent|multiprocessing|asyncio|socket|socketserver|"
    r"sched)(\.|$)"
)
_time_ns = time.time_ns
_localtime = time.localtime


def install() -> None:
    """Wrap the clocks of `time` and `datetime`, and the times of files."""
    # since the start of the run, which all its processes share
    passed = time.time_ns() - _started()
    for name in _CLOCKS:
        real = getattr(time, name + "_ns")
        # those of the process and its threads count from their own beginning
        start = 0 if name in ("process_time", "thread_time") else real() - passed
        begin = _BEGIN if name == "time" else 0
        for called, unit in ((name, 1e-9), (name + "_ns", 1)):
            source = "time." + called
            read = functools.partial(_read, source, unit, real, begin, start)
            wrap(time, called, read)
    for name in ("localtime", "gmtime", "ctime", "strftime", "asctime"):
        wrap(time, name, functools.partial(_broken_down, name))
    for name in ("now", "utcnow"):  # `today` asks `time.time`
        wrap(dt.datetime, name, functools.partial(_datetime, name))
    if only_varies(NAME):
        return  # the times of files stay as they are
    timers.install()
    wrap(time, "sleep", _sleep)
    names = "stat lstat fstat DirEntry.stat"
    ask_about(NAME, "os", names, _without_times, own=True, content=_times)
    ask_about(NAME, "time", "clock_gettime clock_gettime_ns", _gettime)


def _started() -> int:
    """Return when the run began, in ns since 1970."""
    return int(session.current().config["started"] * 1e9)


def _read(
    source: str,
    unit: Any,
    real: Callable[[], int],
    begin: int,
    start: int,
    _: Any = None,
) -> Any:
    """Return what a clock says. Pinned it begins at `begin` (0: it is none of the day); `start` is
    what it said when the run began; `real` reads it; all in ns. `unit` is what the answer is in."""
    frame = calling_frame()
    if frame is None or _TIMEOUTS.match(module_of(frame)):
        return real() * unit

    def pinned(_: Stream, real: int) -> int:
        return begin + CLOCK.read(is_direct(frame, NAME))

    def varied(real: int) -> int:
        if inside(frame):
            real += (real - start) * _FASTER
        return real + (begin and _AHEAD)

    return ask(NAME, source, real, pinned, varied) * unit


def _of_day(source: str) -> float:
    """Return the time of day, as the caller's caller is to read it, in seconds since 1970."""
    return float(_read(source, 1e-9, _time_ns, _BEGIN, _started()))


def _gettime(_: Stream, real: Any) -> Any:
    now = _BEGIN + CLOCK.read(True)
    return now if isinstance(real, int) else now * 1e-9


def _broken_down(name: str, original: Any, *args: Any) -> Any:
    """Call `time.strftime(format)` and its like, which read the clock if they are given no time."""
    formats = name == "strftime"
    if len(args) > formats and args[formats] is not None:
        return original(*args)
    convert = _localtime if name in ("strftime", "asctime") else float
    now = convert(_of_day(f"time.{name}"))
    return original(*args[:formats], now)


def _datetime(name: str, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
    now = _of_day(f"datetime.{name}")
    if name == "utcnow":
        return owner.utcfromtimestamp(now)
    return owner.fromtimestamp(now, *args, **kwargs)


def _sleep(original: Any, seconds: Any) -> Any:
    if isinstance(seconds, (int, float)) and 0 < seconds < 1e9:
        # `subprocess` sleeps until a child has ended: nobody knows how often
        direct = is_direct(calling_frame(), NAME)
        CLOCK.add(int(seconds * 1e9), direct)
    return original(seconds)


def _times(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_atime_ns


def _without_times(_: Stream, status: os.stat_result) -> Any:
    reduced: Any = status.__reduce__()
    make, (numbers, fields) = reduced
    for name in fields:
        if "time" in name:
            fields[name] = _BEGIN * (1 if name.endswith("_ns") else 1e-9)
    times = [_BEGIN // 10**9] * 3
    return make((*numbers[:7], *times), fields)
