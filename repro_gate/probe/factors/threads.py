"""The order in which threads and worker processes run. Pinned, the threads of a process take turns,
child processes work one after the other (`processes`), and torch's operators compute with one
thread.

Every lock that `threading` makes, and with them queues, conditions, events and executors, hands the
turn on instead of blocking. Calls that wait for the world outside the process (pipes, sockets,
children) give the turn away while they wait. Not pinned: threads that C code starts, the order
between threads that wait outside at the same time, and what programs other than Python do at once
(`xargs -P 4`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import select
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, Optional

from ...trace.format import HANDED
from .. import imports, source_line
from ..patch import wrap
from . import processes
from .turns import FOREVER, TURNS, Lock
from .use import USES, indirect, unknowable

NAME = "threads"
_GIVERS = "_repro_gate_givers"  # attribute of a queue: up to two threads that put something in
_ALIKE = (0.1, 1.0)  # seconds of virtual time that sleeps up to this length take


def install() -> None:
    """Note where threads and processes are started, and where their results are taken as they come
    (watched), or let them take turns (pinned)."""
    if USES.watch:
        for module, name in (
            ("threading", "Thread.start"),
            ("multiprocessing.process", "BaseProcess.start"),
        ):
            imports.wrap_later(module, name, functools.partial(_started, "%s.%s" % (module, name)))
        wrap(queue.Queue, "put", _put)
        for module, name, of_several in _HAND_OVERS:
            around = functools.partial(_handed, "%s.%s" % (module, name), of_several)
            imports.wrap_later(module, name, around)
    if USES.pinned(NAME, ("", 0)):
        take_turns()
        processes.install(_away)


def torch_arrived(torch: Any) -> None:
    """Operators compute with one thread, and loaders hand over in order, whatever the training asks
    for."""
    pinned = USES.pinned(NAME, ("", 0))
    ordered = functools.partial(_ordered, pinned)
    imports.wrap_later("torch.utils.data.dataloader", "DataLoader.__init__", ordered)
    if pinned:
        torch.set_num_threads(1)
        torch.set_num_threads = lambda count: None


def _ordered(pinned: bool, original: Any, *args: Any, **options: Any) -> Any:
    if options.get("num_workers") and options.get("in_order") is False:
        source = "torch.utils.data.DataLoader(in_order=False)" + HANDED
        _noted(source, sys._getframe(2), direct=True)
        options["in_order"] = pinned
    return original(*args, **options)


def _noted(source: str, frame: FrameType, direct: Optional[bool] = None) -> None:
    USES.note(NAME, source, unknowable(), frame, direct=direct)


def _handed(
    source: str,
    of_several: Optional[Callable[[Any], bool]],
    original: Any,
    *args: Any,
    **options: Any,
) -> Any:
    """Take a result. `of_several` says of the queue whether what it gives comes from several; None:
    it does."""
    frame = sys._getframe(2)
    if (of_several is None or of_several(args[0])) and not indirect(frame, NAME):
        _noted(source + HANDED, frame)
    return original(*args, **options)


def _put(original: Any, place: Any, *args: Any, **options: Any) -> Any:
    givers = vars(place).setdefault(_GIVERS, set())
    if len(givers) < 2:
        # numbers are used again
        givers.add(threading._active.get(threading.get_ident()))  # type: ignore[attr-defined]
    return original(place, *args, **options)


def _of_several_threads(place: Any) -> bool:
    return len(vars(place).get(_GIVERS, ())) > 1


def _of_several_children(_place: Any) -> bool:
    return len(sys.modules["multiprocessing.process"]._children) > 1


# The calls that give what several threads or processes have done in the order in which it comes.
_HAND_OVERS = (
    ("concurrent.futures", "as_completed", None),
    ("asyncio", "as_completed", None),
    ("multiprocessing.pool", "Pool.imap_unordered", None),
    ("multiprocessing.queues", "Queue.get", _of_several_children),
    ("multiprocessing.queues", "SimpleQueue.get", _of_several_children),
    ("queue", "Queue.get", _of_several_threads),
)


def _started(source: str, original: Any, thread: Any) -> Any:
    """The order in which threads run is free from here on: that differs between any two runs."""
    _noted(source, sys._getframe(2))
    return original(thread)


def take_turns() -> None:
    """Let the threads of this process take turns from here on. The caller is the first of them."""
    TURNS.begin()
    os.register_at_fork(after_in_child=TURNS.begin)
    threading._allocate_lock = threading.Lock = Lock  # type: ignore[attr-defined,assignment]
    threading._CRLock = None  # type: ignore[attr-defined]
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]
    for name in ("_start_new_thread", "_start_joinable_thread"):
        wrap(threading, name, _start_member)
    wrap(threading.Thread, "join", _join)
    wrap(threading, "_shutdown", _shutdown)
    wrap(time, "sleep", _slept)
    for owner, name in ((select, "select"), (os, "waitpid"), (os, "wait"), (os, "wait4")):
        wrap(owner, name, _away)
    imports.after_import("selectors", _selectors)
    for module, name, around in _TAKING_TURNS:
        imports.wrap_later(module, name, around)


def _completed(original: Any, fs: Any, timeout: Optional[float] = None) -> Any:
    """Give futures in the order in which they came: that of `as_completed` is that of their
    addresses."""
    futures: Any = sys.modules["concurrent.futures"]
    for future in list(dict.fromkeys(fs)):
        if futures.wait([future], timeout)[1]:
            raise futures.TimeoutError
        yield future


def _begun_in_order(original: Any, fs: Any, **options: Any) -> Any:
    """Start coroutines in the order in which they came: `asyncio.as_completed` starts them in that
    of their addresses."""
    given = list(dict.fromkeys(fs))
    with contextlib.suppress(RuntimeError):  # no loop is running yet
        given = [sys.modules["asyncio"].ensure_future(item) for item in given]
    return original(given, **options)


def _in_order(original: Any, pool: Any, *args: Any, **options: Any) -> Any:
    return pool.imap(*args, **options)


def _start_member(original: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if TURNS.me() is None or source_line.of_jupyter(sys._getframe(2)):
        return original(function, *args, **kwargs)
    member = TURNS.add()

    def body(*inner: Any) -> None:
        TURNS.by_ident[threading.get_ident()] = member
        member.go.acquire()
        try:
            function(*inner)
        finally:
            TURNS.end(member)

    return original(body, *args, **kwargs)


def _join(original: Any, thread: Any, timeout: Optional[float] = None) -> Any:
    me, member = TURNS.me(), TURNS.by_ident.get(thread.ident or 0)
    waits = me is not None and member is not None and member is not me and not member.done
    if waits and not TURNS.wait(me, member, FOREVER if timeout is None else max(timeout, 0)):  # type: ignore[arg-type]
        return None
    return original(thread, timeout)


def _shutdown(original: Any) -> Any:
    """The main thread has ended: threads that are no daemons still take turns to their ends."""
    with contextlib.suppress(Exception):
        calls = getattr(threading, "_threading_atexits", [])
        while calls:
            calls.pop()()  # an executor tells its threads that there is no more work
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
    TURNS.stop()
    return original()


def _slept(original: Any, seconds: Any) -> Any:
    """Sleeping hands the turn on until nobody else can run; who is alone sleeps in fact. Short
    sleeps count alike: who wakes first is then decided by who fell asleep first, and not by a
    jitter."""
    me = TURNS.me()
    if (
        me is None
        or len(TURNS.order) == 1
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < 1e9
    ):
        return original(seconds)
    if seconds == 0:
        return TURNS.poll()
    TURNS.wait(me, object(), next((item for item in _ALIKE if seconds <= item), seconds), seconds)
    return None


def _polled(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Ask for what others may bring about."""
    if sys._getframe(2).f_globals.get("__name__") != "threading":
        TURNS.poll()
    return original(*args, **kwargs)


def _looked_for(look: Callable[[], Any]) -> Any:
    """What `look` finds, as long as other threads could run that may bring it about."""
    me, found = TURNS.me(), look()
    while not found and me is not None and not me.away and TURNS.others_ready(me):
        TURNS.poll()
        found = look()
    return found


def _selectors(module: Any) -> None:
    def waited(original: Any, selector: Any, timeout: Any = None) -> Any:
        """What a thread of this process has brought about meanwhile is found by looking; only then
        the turn is given away."""
        waits = timeout is None or timeout > 0
        found = waits and _looked_for(lambda: original(selector, 0))
        return found or _away(original, selector, timeout)

    kinds = {kind for kind in vars(module).values() if isinstance(kind, type)}
    for kind in kinds:
        if "select" in vars(kind):
            wrap(kind, "select", waited)


def _received(original: Any, connection: Any, *args: Any) -> Any:
    _looked_for(lambda: connection._poll(0))
    return _away(original, connection, *args)


def _semaphore(original: Any, semaphore: Any) -> None:
    """Make the methods of a semaphore between processes, which puts C's own `acquire` into each of
    its objects."""
    original(semaphore)
    acquire, release = semaphore._semlock.acquire, semaphore._semlock.release

    def acquired(block: bool = True, timeout: Optional[float] = None) -> Any:
        waits = block and (timeout is None or timeout > 0)
        return (waits and _looked_for(lambda: acquire(False))) or _away(acquire, block, timeout)

    def released() -> None:
        """A child that waited for room in a queue has done its work before the next one gets
        room."""
        release()
        processes.settle()

    semaphore.acquire, semaphore.release = acquired, released


def _away(original: Any, *args: Any, **kwargs: Any) -> Any:
    me = TURNS.me()
    if me is None or me.away:
        return original(*args, **kwargs)
    TURNS.leave(me)
    try:
        return original(*args, **kwargs)
    finally:
        TURNS.come_back(me)


_TAKING_TURNS = (
    ("threading", "Event.is_set", _polled),
    ("threading", "Thread.is_alive", _polled),
    ("queue", "Queue.empty", _polled),
    ("queue", "Queue.full", _polled),
    ("queue", "Queue.qsize", _polled),
    ("concurrent.futures", "Future.done", _polled),
    ("concurrent.futures", "Future.running", _polled),
    ("concurrent.futures", "as_completed", _completed),
    ("asyncio", "as_completed", _begun_in_order),
    ("multiprocessing.pool", "Pool.imap_unordered", _in_order),
    ("multiprocessing.connection", "Connection._recv_bytes", _received),
    ("multiprocessing.synchronize", "SemLock._make_methods", _semaphore),
    ("multiprocessing.synchronize", "SemLock.__enter__", lambda original, lock: lock.acquire()),
)
