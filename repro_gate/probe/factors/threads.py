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
from typing import Any, Callable, Optional

from ...trace.format import HANDED
from .. import imports, source_line
from ..patch import wrap
from . import processes
from .turns import FOREVER, Turns, lock_type
from .use import Uses, indirect, site_of, unknowable

NAME = "threads"
_GIVERS = "_repro_gate_givers"  # attribute of a queue: up to two threads that put something in
_ALIKE = (0.1, 1.0)  # seconds of virtual time that sleeps up to this length take


def install(uses: Uses) -> None:
    """Note where threads and processes are started, and where their results are taken as they come
    (watched), or let them take turns (pinned)."""
    if uses.watch:
        wrap(threading.Thread, "start", functools.partial(_started, uses, "threading.Thread.start"))
        imports.wrap_after(
            "multiprocessing.process",
            "BaseProcess.start",
            functools.partial(_started, uses, "multiprocessing.Process.start"),
        )
        _watch_hand_overs(functools.partial(_handed, uses))
    if uses.pinned(NAME, ("", 0)):
        turns = take_turns()
        processes.install(functools.partial(_away, turns))


def torch_arrived(torch: Any, uses: Uses) -> None:
    """Operators compute with one thread, and loaders hand over in order, whatever the training asks
    for."""
    pinned = uses.pinned(NAME, ("", 0))
    imports.wrap_after("torch.utils.data.dataloader", "DataLoader.__init__", _ordered(uses, pinned))
    if pinned:
        torch.set_num_threads(1)
        torch.set_num_threads = lambda count: None


def _ordered(uses: Uses, pinned: bool) -> Callable[..., Any]:
    def init(original: Any, *args: Any, **options: Any) -> Any:
        if options.get("num_workers") and options.get("in_order") is False:
            frame = sys._getframe(2)
            uses.note(
                NAME,
                "torch.utils.data.DataLoader(in_order=False)" + HANDED,
                site_of(frame),
                unknowable(),
                frame,
                direct=True,
            )
            options["in_order"] = pinned
        return original(*args, **options)

    return init


def _watch_hand_overs(handed: Callable[..., Any]) -> None:
    """Note the calls that give what several threads or processes have done in the order in which it
    comes."""
    for module, name, source in (
        ("concurrent.futures", "as_completed", "concurrent.futures.as_completed"),
        ("asyncio", "as_completed", "asyncio.as_completed"),
        ("multiprocessing.pool", "Pool.imap_unordered", "multiprocessing.pool.imap_unordered"),
    ):
        imports.wrap_after(module, name, functools.partial(handed, source, None))
    children = functools.partial(handed, "multiprocessing.Queue.get", _of_several_children)
    for name in ("Queue.get", "SimpleQueue.get"):
        imports.wrap_after("multiprocessing.queues", name, children)
    wrap(queue.Queue, "put", _put)
    wrap(queue.Queue, "get", functools.partial(handed, "queue.Queue.get", _of_several_threads))


def _handed(
    uses: Uses,
    source: str,
    unordered: Optional[Callable[[Any], bool]],
    original: Any,
    *args: Any,
    **options: Any,
) -> Any:
    """`unordered` says of the queue whether what it gives comes from several; None: it does."""
    frame = sys._getframe(2)
    if (unordered is None or unordered(args[0])) and not indirect(frame, NAME):
        uses.note(NAME, source + HANDED, site_of(frame), unknowable(), frame)
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


def _started(uses: Uses, source: str, original: Any, thread: Any) -> Any:
    """The order in which threads run is free from here on: that differs between any two runs."""
    frame = sys._getframe(2)
    uses.note(NAME, source, site_of(frame), unknowable(), frame)
    return original(thread)


def take_turns() -> Turns:
    """Let the threads of this process take turns from here on. The caller is the first of them."""
    turns = Turns()
    threading._allocate_lock = threading.Lock = lock_type(turns)  # type: ignore[attr-defined,assignment]
    threading._CRLock = None  # type: ignore[attr-defined]
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]
    for name in ("_start_new_thread", "_start_joinable_thread"):
        wrap(threading, name, functools.partial(_start_member, turns))
    wrap(threading.Thread, "join", functools.partial(_join, turns))
    wrap(threading, "_shutdown", functools.partial(_shutdown, turns))
    wrap(time, "sleep", functools.partial(_slept, turns))
    _poll_where_others_are_asked(turns)
    _let_go_while_waiting(turns)
    imports.after_import("concurrent.futures", _complete_in_order)
    imports.after_import("multiprocessing.pool", _answer_in_order)
    imports.after_import("asyncio", _start_in_order)
    os.register_at_fork(after_in_child=turns.begin)
    return turns


def _complete_in_order(module: Any) -> None:
    """`as_completed` gives futures in the order in which it got them: its own order is that of
    their addresses."""
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


def _start_in_order(module: Any) -> None:
    """`asyncio.as_completed` starts coroutines in the order of their addresses: here in the order
    in which it got them."""
    original = module.as_completed

    @functools.wraps(original)
    def as_completed(fs: Any, **options: Any) -> Any:
        given = list(dict.fromkeys(fs))
        with contextlib.suppress(RuntimeError):  # no loop is running yet
            given = [module.ensure_future(item) for item in given]
        return original(given, **options)

    module.as_completed = module.tasks.as_completed = as_completed


def _start_member(
    turns: Turns, original: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if turns.me() is None or source_line.of_jupyter(sys._getframe(2)):
        return original(function, *args, **kwargs)
    member = turns.add()

    def body(*inner: Any) -> None:
        turns.by_ident[threading.get_ident()] = member
        member.go.acquire()
        try:
            function(*inner)
        finally:
            turns.end(member)

    return original(body, *args, **kwargs)


def _join(turns: Turns, original: Any, thread: Any, timeout: Optional[float] = None) -> Any:
    me, member = turns.me(), turns.by_ident.get(thread.ident or 0)
    waits = me is not None and member is not None and member is not me and not member.done
    if waits and not turns.wait(me, member, FOREVER if timeout is None else max(timeout, 0)):  # type: ignore[arg-type]
        return None
    return original(thread, timeout)


def _shutdown(turns: Turns, original: Any) -> Any:
    """The main thread has ended: threads that are no daemons still take turns to their ends."""
    with contextlib.suppress(Exception):
        calls = getattr(threading, "_threading_atexits", [])
        while calls:
            calls.pop()()  # an executor tells its threads that there is no more work
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
    turns.stop()
    return original()


def _slept(turns: Turns, original: Any, seconds: Any) -> Any:
    """Sleeping hands the turn on until nobody else can run; who is alone sleeps in fact. Short
    sleeps count alike: who wakes first is then decided by who fell asleep first, and not by a
    jitter."""
    me = turns.me()
    if (
        me is None
        or len(turns.order) == 1
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds < 1e9
    ):
        return original(seconds)
    if seconds == 0:
        return turns.poll()
    turns.wait(me, object(), next((item for item in _ALIKE if seconds <= item), seconds), seconds)
    return None


def _poll_where_others_are_asked(turns: Turns) -> None:
    def polled(original: Any, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(2).f_globals.get("__name__") != "threading":
            turns.poll()
        return original(*args, **kwargs)

    wrap(threading.Event, "is_set", polled)
    wrap(threading.Thread, "is_alive", polled)
    for name in ("empty", "full", "qsize"):
        wrap(queue.Queue, name, polled)
    for name in ("Future.done", "Future.running"):
        imports.wrap_after("concurrent.futures", name, polled)


def _let_go_while_waiting(turns: Turns) -> None:
    away = functools.partial(_away, turns)
    for owner, name in ((select, "select"), (os, "waitpid"), (os, "wait"), (os, "wait4")):
        wrap(owner, name, away)
    imports.after_import("selectors", functools.partial(_selectors, turns))
    imports.after_import("multiprocessing.connection", functools.partial(_connections, turns))
    imports.after_import("multiprocessing.synchronize", functools.partial(_semaphores, turns))


def _looked_for(turns: Turns, look: Callable[[], Any]) -> Any:
    """What `look` finds, as long as other threads could run that may bring it about."""
    me, found = turns.me(), look()
    while not found and me is not None and not me.away and turns.others_ready(me):
        turns.poll()
        found = look()
    return found


def _selectors(turns: Turns, module: Any) -> None:
    def waited(original: Any, selector: Any, timeout: Any = None) -> Any:
        """What a thread of this process has brought about meanwhile is found by looking; only then
        the turn is given away."""
        found = (
            _looked_for(turns, lambda: original(selector, 0))
            if timeout is None or timeout > 0
            else None
        )
        return found or _away(turns, original, selector, timeout)

    for kind in {
        kind for kind in vars(module).values() if isinstance(kind, type) and "select" in vars(kind)
    }:
        wrap(kind, "select", waited)


def _connections(turns: Turns, module: Any) -> None:
    def received(original: Any, connection: Any, *args: Any) -> Any:
        _looked_for(turns, lambda: connection._poll(0))
        return _away(turns, original, connection, *args)

    wrap(module.Connection, "_recv_bytes", received)


def _semaphores(turns: Turns, module: Any) -> None:
    """A semaphore between processes puts C's own `acquire` into each of its objects."""

    def make_methods(original: Any, semaphore: Any) -> None:
        original(semaphore)
        acquire, release = semaphore._semlock.acquire, semaphore._semlock.release

        def acquired(block: bool = True, timeout: Optional[float] = None) -> Any:
            waits = block and (timeout is None or timeout > 0)
            return (waits and _looked_for(turns, lambda: acquire(False))) or _away(
                turns, acquire, block, timeout
            )

        def released() -> None:
            """A child that waited for room in a queue has done its work before the next one gets
            room."""
            release()
            processes.settle()

        semaphore.acquire, semaphore.release = acquired, released

    wrap(module.SemLock, "_make_methods", make_methods)
    wrap(module.SemLock, "__enter__", lambda original, semaphore: semaphore.acquire())


def _away(turns: Turns, original: Any, *args: Any, **kwargs: Any) -> Any:
    me = turns.me()
    if me is None or me.away:
        return original(*args, **kwargs)
    turns.leave(me)
    try:
        return original(*args, **kwargs)
    finally:
        turns.come_back(me)
