"""The threads of one process take turns: one runs until it waits, then the next in the order in
which they were started.

A thread that polls (`is_set`, `done`, a lock that it does not get) hands the turn on as well.
Waiting with a time limit is counted in virtual time: it ends when nobody else can run, the earliest
first, and only then does the thread sleep in fact. Who keeps the turn for twenty seconds while
others could run (a loop that spins on a variable) loses it: the order is then no longer pinned, but
nothing hangs.
"""

from __future__ import annotations

import _thread
import contextlib
import time
from collections.abc import Iterator
from typing import Any

_raw = _thread.allocate_lock
_start = _thread.start_new_thread
_ident = _thread.get_ident
_now = time.monotonic
_sleep = time.sleep
_LATE = 20.0  # seconds
_POLL = 0.001  # virtual seconds that one polling takes
_SLICE = 0.01  # seconds after which a thread that sleeps looks whether it can go on
FOREVER = float("inf")


class ThreadState:
    """One thread that takes turns."""

    waits: Any = None  # what it waits for; None: it can run
    until = FOREVER  # the virtual time at which it waits no longer
    real = FOREVER  # seconds that waiting for it may take in fact
    sleep_for = 0.0  # seconds that it has to sleep in fact before it goes on
    expired = False
    blocked = False  # in a call that waits for the world outside, or at its end

    def __init__(self) -> None:
        self.go = _raw()
        self.go.acquire()

    @property
    def ready(self) -> bool:
        """Return whether it could run."""
        return self.waits is None and not self.blocked


class Scheduler:
    """Decides whose turn it is, in one process. `at` is the virtual time in seconds."""

    def __init__(self) -> None:
        self.off = False
        self.begin()

    def begin(self) -> None:
        """Begin with the calling thread alone: at the start, and in a forked child."""
        self._mutex = _raw()
        first = ThreadState()
        self.order = [first]
        self.by_ident = {_ident(): first}
        self.holder: ThreadState | None = first
        self.at = 0.0
        self.switches = 0
        self._sleeping = self._watched = False

    def current(self) -> ThreadState | None:
        """Return the calling thread, where it takes turns."""
        return None if self.off else self.by_ident.get(_ident())

    def wait(
        self,
        current: ThreadState,
        what: Any,
        timeout: float = FOREVER,
        real: float = FOREVER,
    ) -> bool:
        """Give the turn away until `what` is told to be free. False if the time ran out before,
        of which it sleeps `real` at most."""
        with self._mutex:
            current.waits = what
            current.until = self.at + timeout
            current.real = real
            current.expired = False
            current.sleep_for = 0.0
        self._switch(current)
        if current.sleep_for > 0 and not self.off:
            # something outside may bring about what is waited for
            self._sleeping = True
            with self.outside(current):
                end = _now() + current.sleep_for
                locked = getattr(what, "locked", lambda: True)
                while _now() < end and locked():
                    _sleep(min(_SLICE, max(end - _now(), 0)))
                self._sleeping = False
        return not current.expired

    def poll(self) -> None:
        """Hand on the turn: the calling thread has looked for what another one may bring about."""
        current = self.current()
        if current is None or current.blocked or len(self.order) == 1:
            return
        with self._mutex:
            self.at += _POLL
            for thread in self.order:
                if thread.waits is not None and thread.until <= self.at:
                    thread.waits = None
                    thread.expired = True
        self._switch(current)

    def others_ready(self, thread: ThreadState | None) -> bool:
        """Return whether another thread than this one could run."""
        return any(item.ready for item in self.order if item is not thread)

    def free(self, what: Any) -> None:
        """Let whoever waits for `what` run when its turn comes."""
        with self._mutex:
            self._wake(what)
            if self.holder is None:
                self._hand_on(None)  # nobody could run until now

    @contextlib.contextmanager
    def outside(self, current: ThreadState) -> Iterator[None]:
        """Give the turn away while the calling thread waits for the world outside."""
        with self._mutex:
            current.blocked = True
            self._hand_on(current)
        try:
            yield
        finally:
            with self._mutex:
                current.blocked = False
                is_next = self.holder is None
                if is_next:
                    self.holder = current
            if not is_next:
                current.go.acquire()

    def add(self) -> ThreadState:
        """Add a thread that is about to be started."""
        thread = ThreadState()
        with self._mutex:
            self.order.append(thread)
            if not self._watched:
                self._watched = True
                _start(self._watch, ())
        return thread

    def end(self, current: ThreadState) -> None:
        """Take out the calling thread, which ends."""
        with self._mutex:
            current.blocked = True
            self.by_ident.pop(_ident(), None)
            self._wake(current)
            self._hand_on(current)
            self.order.remove(current)

    def stop(self) -> None:
        """Let nobody take turns from here on: the interpreter is shutting down."""
        with self._mutex:
            self.off = True
            for thread in self.order:
                if thread is not self.holder and thread.go.locked():
                    thread.go.release()

    def _wake(self, what: Any) -> None:
        for thread in self.order:
            if thread.waits is what:
                thread.waits = None

    def _switch(self, current: ThreadState) -> None:
        with self._mutex:
            chosen = self._hand_on(current)
        if chosen is not current:
            current.go.acquire()

    def _hand_on(
        self, current: ThreadState | None, forced: bool = False
    ) -> ThreadState | None:
        """Choose who runs next, after `current` in order, and wake it. Called with the mutex held;
        None where nobody can run."""
        if current is not self.holder:
            return None  # it had lost its turn before
        self.switches += 1
        start = self.order.index(current) + 1 if current in self.order else 0
        ring = self.order[start:] + self.order[:start]
        ready = (it for it in ring if it.ready and not (forced and it is current))
        chosen = next(ready, None)
        if chosen is None and not self._sleeping:
            timed = [it for it in ring if it.until < FOREVER and not it.blocked]
            chosen = min(timed, key=lambda item: item.until, default=None)
            if chosen is not None:
                chosen.sleep_for = min(max(chosen.until - self.at, 0.0), chosen.real)
                chosen.waits = None
                chosen.expired = True
                self.at = max(self.at, chosen.until)
        self.holder = chosen
        if chosen is not None and chosen is not current and chosen.go.locked():
            chosen.go.release()
        return chosen

    def _watch(self) -> None:
        switches = -1
        since = _now()
        never = _raw()
        never.acquire()
        while not self.off:
            # no sleep: `processes` takes a process that sleeps for a busy one
            never.acquire(timeout=0.5)
            if self.switches != switches or _now() - since > _LATE:
                with self._mutex:
                    if self.switches == switches and self.others_ready(self.holder):
                        self._hand_on(self.holder, forced=True)
                    switches = self.switches
                since = _now()


SCHEDULER = Scheduler()  # of this process


class Lock:
    """A lock as `threading.Lock` makes it; a thread that takes turns hands its turn on while it
    waits."""

    def __init__(self) -> None:
        self._lock = _raw()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        current = SCHEDULER.current()
        if current is None:
            return self._lock.acquire(blocking, timeout)
        until = FOREVER if timeout < 0 else SCHEDULER.at + timeout
        while not self._lock.acquire(False):
            if SCHEDULER.off:
                return self._lock.acquire(blocking, timeout)
            if not blocking:
                SCHEDULER.poll()
                return self._lock.acquire(False)
            if not SCHEDULER.wait(current, self, until - SCHEDULER.at):
                return self._lock.acquire(False)
        return True

    def release(self) -> None:
        self._lock.release()
        if not SCHEDULER.off:
            SCHEDULER.free(self)

    def locked(self) -> bool:
        return self._lock.locked()

    def _at_fork_reinit(self) -> None:
        self._lock = _raw()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *unused: Any) -> None:
        self.release()
