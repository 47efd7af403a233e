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
import sys
import threading
import time
from types import FrameType
from typing import Any, Dict, Optional

from .. import session
from ..patch import wrap, wrap_in_type
from .use import Uses, indirect, is_direct, outside

NAME = "clock"
_BEGIN = 1_700_000_000_000_000_000  # ns since 1970: where the pinned time of day begins
_TICK = 1_000_000  # ns that the first pinned reading takes
# ns that each further one takes more: who waits a minute by reading alone reads some 2,400 times
_SLOWER = 20_000
_AHEAD = 90_000_000_000_000  # ns by which the varied time of day is ahead: 25 hours
_FASTER = 2  # times the time that has passed in fact, which the varied time gains on it
_OF_DAY = ("time",)
_SINCE_START = ("monotonic", "perf_counter", "process_time", "thread_time")
_OF_PROCESS = ("process_time", "thread_time")  # which count from its own beginning
_TIMEOUTS = (
    "threading",
    "queue",
    "selectors",
    "subprocess",
    "concurrent",
    "multiprocessing",
    "asyncio",
    "socket",
    "socketserver",
    "sched",
)
_LIBRARY = os.path.dirname(os.path.realpath(threading.__file__)) + os.sep


class Clock(threading.local):
    """The pinned time of each thread, in ns since its first reading. `now` is the workspace's,
    `beside` what libraries' readings add."""

    now = beside = readings = 0

    def read(self, direct: bool) -> int:
        """The time, a tick later than at the last reading."""
        if not direct:
            self.beside += _TICK
            return self.now + self.beside
        self.readings += 1
        self.now += _TICK + self.readings * _SLOWER
        return self.now


def install(uses: Uses) -> None:
    """Wrap the clocks of `time` and `datetime`, and the times of files."""
    clock = Clock()
    only_varied = uses.only_varies(NAME)
    # since the start of the run, which all its processes share
    passed = time.time_ns() - int(session.current().config["started"] * 1e9)
    for name in (*_OF_DAY, *_SINCE_START):
        begin = _BEGIN if name in _OF_DAY else 0
        ahead = _AHEAD if name in _OF_DAY else 0
        start = 0 if name in _OF_PROCESS else getattr(time, name + "_ns")() - passed
        wrap(
            time,
            name,
            functools.partial(_read, uses, clock, "time." + name, begin, ahead, start, 1e-9),
        )
        wrap(
            time,
            name + "_ns",
            functools.partial(_read, uses, clock, "time.%s_ns" % name, begin, ahead, start, 1),
        )
    for name in ("localtime", "gmtime", "ctime", "strftime", "asctime"):
        wrap(
            time,
            name,
            functools.partial(_broken_down, uses, clock, "time." + name, name == "strftime"),
        )
    for name in ("now", "utcnow", "today"):
        wrap_in_type(dt.datetime, name, functools.partial(_datetime, uses, clock, name))
    wrap_in_type(dt.date, "today", functools.partial(_datetime, uses, clock, "today"))
    if only_varied:
        return  # the times of files stay as they are
    wrap(time, "sleep", functools.partial(_sleep, clock))
    for name in ("getmtime", "getctime", "getatime"):
        wrap(os.path, name, functools.partial(_file_time, uses, name))
    for name in ("stat", "lstat", "fstat"):
        wrap(os, name, functools.partial(_stat, uses, "os." + name))
    wrap_in_type(os.DirEntry, "stat", functools.partial(_entry_stat, uses))
    wrap(
        time, "clock_gettime", functools.partial(_gettime, uses, clock, "time.clock_gettime", 1e-9)
    )
    wrap(
        time,
        "clock_gettime_ns",
        functools.partial(_gettime, uses, clock, "time.clock_gettime_ns", 1),
    )


def _read(
    uses: Uses,
    clock: Clock,
    source: str,
    begin: int,
    ahead: int,
    start: int,
    unit: Any,
    original: Any,
) -> Any:
    frame = sys._getframe(2)
    own = not outside(frame)
    if _timeout(frame) or (not own and not ahead and uses.only_varies(NAME)):
        return original()

    def pinned(_stream: Any) -> Any:
        return (begin + clock.read(is_direct(frame, NAME))) * unit

    def varied() -> Any:
        now = original()
        return (
            now
            + type(unit)(ahead * unit)
            + ((now - type(unit)(start * unit)) * _FASTER if own else 0)
        )

    return uses.ask(NAME, source, original, pinned, varied if own or ahead else None, frame)


def _gettime(uses: Uses, clock: Clock, source: str, unit: Any, original: Any, which: int) -> Any:
    of_day = which in (getattr(time, "CLOCK_REALTIME", None), getattr(time, "CLOCK_TAI", None))
    begin, ahead = (_BEGIN, _AHEAD) if of_day else (0, 0)
    return _read(uses, clock, source, begin, ahead, 0, unit, functools.partial(original, which))


def _broken_down(
    uses: Uses, clock: Clock, source: str, formats: bool, original: Any, *args: Any
) -> Any:
    """`time.strftime(format)` and its like read the clock where they are not given a time."""
    if len(args) > formats and args[formats] is not None:
        return original(*args)
    local = _ORIGINAL_LOCALTIME if formats or source == "time.asctime" else None

    def at(seconds: float) -> Any:
        return original(*args[:formats], local(seconds) if local else seconds)

    def varied() -> Any:
        return at(_ORIGINAL_TIME() + _AHEAD * 1e-9)

    frame = sys._getframe(2)
    return uses.ask(
        NAME, source, lambda: original(*args), lambda _: at(_of_day(clock, frame)), varied, frame
    )


def _of_day(clock: Clock, frame: Optional[FrameType]) -> float:
    return (_BEGIN + clock.read(is_direct(frame, NAME))) * 1e-9


def _datetime(
    uses: Uses, clock: Clock, name: str, original: Any, owner: Any, *args: Any, **kwargs: Any
) -> Any:
    if not issubclass(owner, dt.datetime):  # date.today() asks time.time()

        def at(seconds: float) -> Any:
            return owner.fromtimestamp(seconds)
    elif name == "utcnow":

        def at(seconds: float) -> Any:
            return owner.utcfromtimestamp(seconds)
    else:

        def at(seconds: float) -> Any:
            return owner.fromtimestamp(seconds, *args, **kwargs)

    frame = sys._getframe(2)
    return uses.ask(
        NAME,
        "%s.%s" % (owner.__name__, name),
        lambda: original(*args, **kwargs),
        lambda _: at(_of_day(clock, frame)),
        lambda: at(_ORIGINAL_TIME() + _AHEAD * 1e-9),
        frame,
    )


def _sleep(clock: Clock, original: Any, seconds: Any) -> Any:
    if isinstance(seconds, (int, float)) and 0 < seconds < 1e9:
        passed = int(seconds * 1e9)
        # `subprocess` sleeps until a child has ended: nobody knows how often
        if indirect(sys._getframe(2), NAME):
            clock.beside += passed
        else:
            clock.now += passed
    return original(seconds)


def _file_time(uses: Uses, name: str, original: Any, path: Any) -> Any:
    return uses.ask(
        NAME,
        "os.path." + name,
        lambda: original(path),
        lambda _: _BEGIN * 1e-9,
        None,
        sys._getframe(2),
    )


def _stat(uses: Uses, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    """`os.stat` as the workspace calls it, or `pathlib` for it: what it says about times is the
    clock's."""
    frame: Optional[FrameType] = sys._getframe(2)
    if frame is not None and str(frame.f_globals.get("__name__", "")).startswith("pathlib"):
        frame = frame.f_back
    return _with_times(uses, name, functools.partial(original, *args, **kwargs), frame)


def _entry_stat(uses: Uses, original: Any, _entry: Any, *args: Any, **kwargs: Any) -> Any:
    return _with_times(
        uses, "os.DirEntry.stat", functools.partial(original, *args, **kwargs), sys._getframe(2)
    )


def _with_times(uses: Uses, name: str, real: Any, frame: Optional[FrameType]) -> Any:
    found = real()
    if outside(frame):
        return found
    times = (found.st_mtime_ns, found.st_ctime_ns, found.st_atime_ns)
    pinned = uses.ask(NAME, name, lambda: times, lambda _: None, None, frame)
    return found if pinned is not None else _without_times(found)


def _without_times(found: os.stat_result) -> os.stat_result:
    fixed: Dict[str, Any] = {}
    for name in ("st_mtime", "st_ctime", "st_atime"):
        fixed[name], fixed[name + "_ns"] = _BEGIN * 1e-9, _BEGIN
    for name in dir(found):
        if name.startswith("st_") and name not in fixed:
            fixed[name] = getattr(found, name)
    seconds = _BEGIN // 1_000_000_000
    return os.stat_result((*tuple(found)[:7], seconds, seconds, seconds), fixed)


def _timeout(frame: Optional[FrameType]) -> bool:
    """Whether the standard library reads the clock to know how long it has waited."""
    if frame is None:
        return True
    module = str(frame.f_globals.get("__name__", ""))
    return module.split(".")[0] in _TIMEOUTS


_ORIGINAL_TIME, _ORIGINAL_LOCALTIME = time.time, time.localtime
