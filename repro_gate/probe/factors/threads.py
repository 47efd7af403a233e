"""The order in which threads run. Pinned, the threads of a process take turns: one runs until it waits, then the next in order of start.

Every lock that `threading` makes, and with them queues, conditions, events and executors, hands the turn on instead of blocking. Calls
that wait for the world outside the process (pipes, sockets, children) give the turn away while they wait. A thread that keeps the turn for
ten seconds while others wait for it (a loop that spins on a variable) loses it; `late` counts that: the order is then no longer pinned.
"""

from __future__ import annotations

import _thread
import functools
import os
import queue
import select
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .. import imports
from . import Uses
from .patching import replace

NAME = "threads"
_raw, _start, _ident = _thread.allocate_lock, _thread.start_new_thread, _thread.get_ident
_now, _sleep = time.monotonic, time.sleep
_LATE = 10.0  # seconds
_FOREVER = float("inf")
_NAP = 0.001  # seconds that a thread sleeps in fact while others could run


class _Member:
    """One thread that takes turns."""

    def __init__(self) -> None:
        self.go = _raw()
        self.go.acquire()
        self.waits: Any = None  # what it waits for; None: it can run
        self.until = _FOREVER  # the virtual time at which it waits no longer
        self.expired = False
        self.away = False  # in a call that waits for the world outside
        self.done = False


class Turns:
    """Whose turn it is, in one process. `at` is the virtual time in seconds: that of the last waiting that came to its end."""

    def __init__(self) -> None:
        self.off = False
        self.late = 0
        self.at = 0.0
        self.switches = 0
        self.begin()

    def begin(self) -> None:
        """The calling thread is the only one: at the start, and in a forked child."""
        self._mutex = _raw()
        first = _Member()
        self.order: List[_Member] = [first]
        self.by_ident: Dict[int, _Member] = {_ident(): first}
        self.holder: Optional[_Member] = first

    def me(self) -> Optional[_Member]:
        """The calling thread, where it takes turns."""
        return None if self.off else self.by_ident.get(_ident())

    def wait(self, me: _Member, what: Any, timeout: float = _FOREVER) -> bool:
        """Give the turn away until `what` is told to be free. False where the time ran out before."""
        with self._mutex:
            me.waits, me.until, me.expired = what, self.at + timeout, False
            chosen = self._hand_on(me)
        if chosen is not me:
            me.go.acquire()
        return not me.expired

    def free(self, what: Any) -> None:
        """Whoever waits for `what` can run when its turn comes."""
        with self._mutex:
            for member in self.order:
                if member.waits is what:
                    member.waits = None
            if self.holder is None:
                self._hand_on(None)  # nobody could run until now

    def leave(self, me: _Member) -> None:
        """The calling thread is about to wait for the world outside."""
        with self._mutex:
            me.away = True
            self._hand_on(me)

    def come_back(self, me: _Member) -> None:
        """It no longer waits: it takes its turn."""
        with self._mutex:
            me.away = False
            if self.holder is None:
                self.holder = me
                return
        me.go.acquire()

    def add(self) -> _Member:
        """A thread is about to be started."""
        member = _Member()
        with self._mutex:
            self.order.append(member)
        return member

    def end(self, me: _Member) -> None:
        """The calling thread ends."""
        with self._mutex:
            me.done = True
            self.by_ident.pop(_ident(), None)
            for member in self.order:
                if member.waits is me:
                    member.waits = None
            self._hand_on(me)
            self.order.remove(me)

    def stop(self) -> None:
        """Nobody takes turns from here on: the interpreter is shutting down."""
        with self._mutex:
            self.off = True
            for member in self.order:
                if member is not self.holder and member.go.locked():
                    member.go.release()

    def force(self) -> None:
        """Let the next thread run beside the one that keeps the turn."""
        with self._mutex:
            if self.holder is not None and any(self._ready(item) for item in self.order if item is not self.holder):
                self.late += 1
                self._hand_on(self.holder, also_ready=True)

    @staticmethod
    def _ready(member: _Member) -> bool:
        return member.waits is None and not member.away and not member.done

    def _hand_on(self, me: Optional[_Member], also_ready: bool = False) -> Optional[_Member]:
        """Choose who runs next, after `me` in order, and wake it. Called with the mutex held; None where nobody can run."""
        if me is not self.holder:
            return None  # it had lost its turn before
        self.switches += 1
        start = self.order.index(me) + 1 if me is not None and me in self.order else 0
        ring = self.order[start:] + self.order[:start]
        chosen = next((item for item in ring if self._ready(item) and not (also_ready and item is me)), None)
        if chosen is None and not any(item.away for item in ring):
            timed = [item for item in ring if item.waits is not None and item.until < _FOREVER]
            chosen = min(timed, key=lambda item: item.until, default=None)
            if chosen is not None:
                self.at, chosen.waits, chosen.expired = chosen.until, None, True
        self.holder = chosen
        if chosen is not None and chosen is not me and chosen.go.locked():
            chosen.go.release()
        return chosen


class Lock:
    """A lock as `threading.Lock` makes it; a thread that takes turns hands its turn on while it waits."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._lock = turns, _raw()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._turns.me()
        if me is None or not blocking:
            return self._lock.acquire(blocking, timeout)
        if timeout < 0:
            timeout = _FOREVER
        until = self._turns.at + timeout
        while not self._lock.acquire(False):
            if not self._turns.wait(me, self, until - self._turns.at):
                return self._lock.acquire(False)
            if self._turns.off:
                return self._lock.acquire(True, -1 if timeout == _FOREVER else timeout)
        return True

    def release(self) -> None:
        self._lock.release()
        if not self._turns.off:
            self._turns.free(self)

    def locked(self) -> bool:
        return self._lock.locked()

    def _at_fork_reinit(self) -> None:
        self._lock = _raw()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *unused: Any) -> None:
        self.release()


def install(uses: Uses) -> None:
    """Note where threads start (watched), or let them take turns (pinned)."""
    if uses.watch:
        replace(threading.Thread, "start", functools.partial(_started, uses))
    if uses.pinned(NAME, ("", 0)):
        take_turns()


def _started(uses: Uses, original: Any, thread: Any) -> Any:
    uses.ask(NAME, "threading.Thread.start", lambda: None, None, None, sys._getframe(2))
    return original(thread)


def take_turns() -> Turns:
    """Let the threads of this process take turns from here on. The caller is the first of them."""
    turns = Turns()
    lock: Any = functools.partial(Lock, turns)
    threading._allocate_lock = threading.Lock = lock  # type: ignore[attr-defined]
    threading._CRLock = None  # type: ignore[attr-defined]
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]
    for name in ("_start_new_thread", "_start_joinable_thread"):
        replace(threading, name, functools.partial(_start_member, turns))
    replace(threading.Thread, "join", functools.partial(_join, turns))
    replace(threading, "_shutdown", functools.partial(_shutdown, turns))
    replace(time, "sleep", functools.partial(_slept, turns))
    _let_go_while_waiting(turns)
    imports.after_import("concurrent.futures", _complete_in_order)
    imports.after_import("multiprocessing.pool", _answer_in_order)
    os.register_at_fork(after_in_child=turns.begin)
    _start(_watch, (turns,))
    return turns


def _complete_in_order(module: Any) -> None:
    """`as_completed` gives futures in the order in which it got them: its own order is that of their addresses."""
    wait = module.wait

    def as_completed(fs: Any, timeout: Optional[float] = None) -> Any:
        for future in list(dict.fromkeys(fs)):
            if wait([future], timeout)[1]:
                raise module.TimeoutError
            yield future

    module.as_completed = as_completed
    sys.modules["concurrent.futures._base"].as_completed = as_completed  # type: ignore[attr-defined]


def _answer_in_order(module: Any) -> None:
    module.Pool.imap_unordered = module.Pool.imap


def _start_member(turns: Turns, original: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if turns.me() is None:
        return original(function, *args, **kwargs)
    member = turns.add()

    def body(*inner: Any) -> None:
        turns.by_ident[_ident()] = member
        member.go.acquire()
        try:
            function(*inner)
        finally:
            turns.end(member)

    return original(body, *args, **kwargs)


def _join(turns: Turns, original: Any, thread: Any, timeout: Optional[float] = None) -> Any:
    me, member = turns.me(), turns.by_ident.get(thread.ident or 0)
    waits = me is not None and member is not None and member is not me and not member.done
    if waits and not turns.wait(me, member, _FOREVER if timeout is None else max(timeout, 0)):  # type: ignore[arg-type]
        return None
    return original(thread, timeout)


def _shutdown(turns: Turns, original: Any) -> Any:
    turns.stop()
    return original()


def _slept(turns: Turns, original: Any, seconds: Any) -> Any:
    """Sleeping hands the turn on, whatever its length: durations are no order. Who is alone sleeps in fact."""
    me = turns.me()
    if me is None or len(turns.order) == 1:
        return original(seconds)
    turns.wait(me, None)
    return original(min(seconds, _NAP))


def _let_go_while_waiting(turns: Turns) -> None:
    away = functools.partial(_away, turns)
    for owner, name in ((select, "select"), (os, "waitpid"), (os, "wait"), (os, "wait4")):
        replace(owner, name, away)
    imports.after_import("selectors", functools.partial(_selectors, away))
    imports.after_import("multiprocessing.connection", functools.partial(_connections, away))
    imports.after_import("multiprocessing.synchronize", functools.partial(_semaphores, away))


def _selectors(away: Any, module: Any) -> None:
    for kind in {kind for kind in vars(module).values() if isinstance(kind, type) and "select" in vars(kind)}:
        replace(kind, "select", away)


def _connections(away: Any, module: Any) -> None:
    replace(module, "wait", away)
    replace(module.Connection, "_recv_bytes", away)


def _semaphores(away: Any, module: Any) -> None:
    """A semaphore between processes puts C's own `acquire` into each of its objects."""

    def make_methods(original: Any, semaphore: Any) -> None:
        original(semaphore)
        semaphore.acquire = functools.partial(away, semaphore.acquire)

    replace(module.SemLock, "_make_methods", make_methods)
    replace(module.SemLock, "__enter__", away)


def _away(turns: Turns, original: Any, *args: Any, **kwargs: Any) -> Any:
    me = turns.me()
    if me is None or me.away:
        return original(*args, **kwargs)
    turns.leave(me)
    try:
        return original(*args, **kwargs)
    finally:
        turns.come_back(me)


def _watch(turns: Turns) -> None:
    seen, since = -1, _now()
    while not turns.off:
        _sleep(0.5)
        if turns.switches != seen:
            seen, since = turns.switches, _now()
        elif _now() - since > _LATE:
            turns.force()
            seen, since = turns.switches, _now()
