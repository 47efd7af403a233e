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
import sys
import threading
from typing import Any, Callable

from ...trace import dispatch
from ...trace.format import HANDED, SHARED
from .. import imports, session, source_line
from ..digest import digest_all
from ..patch import wrap
from . import processes
from .turns import FOREVER, SCHEDULER, Lock
from .use import RUN, call_in, calling_frame, is_direct, is_pinned, note, random_marker

NAME = "threads"
_GIVERS = "_repro_gate_givers"  # attribute of a queue: up to two threads that put something in
_is_alive = threading.Thread.is_alive
_ALIKE = (1.0, 0.1)  # seconds of virtual time that sleeps up to this length take


def install() -> None:
    """Note where threads and processes are started, and where their results are taken as they come
    (watched), or let them take turns (pinned)."""
    if RUN.watch:
        for module, name, counts in _NOTED:
            imports.wrap_named(module, name, functools.partial(_note, counts))
        wrap(queue.Queue, "put", _put)
        for module, name in _SHARED:
            imports.after_import(module, functools.partial(_share, name))
    if is_pinned(NAME):
        _take_turns()


def torch_arrived(torch: Any) -> None:
    """Let operators compute with one thread, and loaders hand over in order, whatever the training
    asks for."""
    imports.wrap_later("torch.utils.data.dataloader", "DataLoader.__init__", _loader)
    if RUN.watch:
        worker = "torch.utils.data._utils.worker"
        imports.wrap_later(worker, "_worker_loop", functools.partial(_seen_in, torch))
    if is_pinned(NAME):
        torch.set_num_threads(1)
        torch.set_num_threads = lambda count: None


def _loader(original: Any, *args: Any, **options: Any) -> Any:
    if options.get("num_workers") and options.get("in_order") is False:
        source = "torch.utils.data.DataLoader(in_order=False)" + HANDED
        note(NAME, source, random_marker(), direct=True)
        options["in_order"] = is_pinned(NAME)
    return original(*args, **options)


def _note(
    counts: Callable[..., bool] | None,
    source: str,
    original: Any,
    *args: Any,
    **options: Any,
) -> Any:
    """Note a call of `_NOTED`: what comes of it differs between any two runs."""
    if counts is None:
        note(NAME, source, random_marker())
    elif counts(*args) and is_direct(calling_frame(), NAME):
        note(NAME, source + HANDED, random_marker())
    return original(*args, **options)


# What processes share, by the properties and methods through which it is read.
_SHARED = (
    ("multiprocessing.sharedctypes", "Synchronized.value"),
    ("multiprocessing.sharedctypes", "SynchronizedString.value"),
    ("multiprocessing.sharedctypes", "SynchronizedArray.__getitem__"),
    ("multiprocessing.shared_memory", "SharedMemory.buf"),
)
_MOST = 1 << 20  # bytes of what is shared that are digested


def _share(name: str, module: Any) -> None:
    """Note what a property or a method gives."""
    kind, _, attribute = name.partition(".")
    owner = getattr(module, kind)
    real = vars(owner)[attribute]

    def read(original: Any, *args: Any) -> Any:
        value = original(*args)
        with contextlib.suppress(Exception):
            content = bytes(value[:_MOST]) if isinstance(value, memoryview) else value
            _note_shared(name, content)
        return value

    if isinstance(real, property):
        got = functools.partial(read, real.fget)
        setattr(owner, attribute, property(got, real.fset))
    else:
        wrap(owner, attribute, read)


def _note_shared(source: str, content: object) -> None:
    frame = calling_frame()
    site = source_line.nearest(frame)
    if site[0]:
        call = call_in(frame)
        note(NAME, source + SHARED, content, site=site, call=call, direct=True)


def _seen_in(torch: Any, original: Any, *args: Any, **options: Any) -> Any:
    """Run the worker of a loader, and note what comes of operators on tensors that it shares."""
    leaves = torch.utils._pytree.tree_leaves

    def dispatched(function: Any, inner: Any, kwargs: Any) -> Any:
        result = function(*inner, **kwargs)
        tensors = [it for it in leaves((inner, kwargs)) if isinstance(it, torch.Tensor)]
        with contextlib.suppress(Exception):
            if not session.current().at_work() and any(
                it.is_shared() for it in tensors
            ):
                values = [_content(torch, it) for it in leaves(result)]
                _note_shared("a tensor in shared memory", values)
        return result

    with dispatch.mode(torch, dispatched, aside=True):
        return original(*args, **options)


def _content(torch: Any, value: Any) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return digest_all([value]) if value.nbytes <= _MOST else tuple(value.shape)


def _put(original: Any, place: Any, *args: Any, **options: Any) -> Any:
    givers = vars(place).setdefault(_GIVERS, set())
    if len(givers) < 2:
        # numbers are used again
        givers.add(threading._active.get(threading.get_ident()))  # type: ignore[attr-defined]
    return original(place, *args, **options)


def _always(*_: Any) -> bool:
    return True


def _of_several_threads(place: Any, *_: Any) -> bool:
    return len(vars(place).get(_GIVERS, ())) > 1


def _of_several_children(*_: Any) -> bool:
    return len(sys.modules["multiprocessing.process"]._children) > 1


# The calls that start threads and processes; and those that give what several have done in the
# order in which it comes, where what they are called with says that there are several.
_NOTED: tuple[tuple[str, str, Callable[..., bool] | None], ...] = (
    ("threading", "Thread.start", None),
    ("multiprocessing.process", "BaseProcess.start", None),
    ("concurrent.futures", "as_completed", _always),
    ("asyncio", "as_completed", _always),
    ("multiprocessing.pool", "Pool.imap_unordered", _always),
    ("multiprocessing.queues", "Queue.get", _of_several_children),
    ("multiprocessing.queues", "SimpleQueue.get", _of_several_children),
    ("queue", "Queue.get", _of_several_threads),
)


def _take_turns() -> None:
    """Let the threads of this process take turns from here on. The caller is the first of them."""
    SCHEDULER.begin()
    os.register_at_fork(after_in_child=SCHEDULER.begin)
    threading._allocate_lock = threading.Lock = Lock  # type: ignore[attr-defined,assignment]
    threading._CRLock = None  # type: ignore[attr-defined]
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]
    imports.after_import("selectors", _selectors)
    for module, names, around in _TAKING_TURNS:
        imports.wrap_later(module, names, around)


def _completed(original: Any, fs: Any, timeout: float | None = None) -> Any:
    """Give futures in the order in which they came: that of `as_completed` is that of their
    addresses."""
    futures: Any = sys.modules["concurrent.futures"]
    for future in dict.fromkeys(fs):
        if futures.wait([future], timeout)[1]:
            raise futures.TimeoutError
        yield future


def _begun_in_order(original: Any, fs: Any, **options: Any) -> Any:
    """Start coroutines in the order in which they came: `asyncio.as_completed` starts them in that
    of their addresses."""
    jobs = list(dict.fromkeys(fs))
    with contextlib.suppress(RuntimeError):  # no loop is running yet
        jobs = [sys.modules["asyncio"].ensure_future(job) for job in jobs]
    return original(jobs, **options)


def _in_order(original: Any, pool: Any, *args: Any, **options: Any) -> Any:
    return pool.imap(*args, **options)


def _start_member(
    original: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if SCHEDULER.current() is None or source_line.of_jupyter(sys._getframe(2)):
        return original(function, *args, **kwargs)
    state = SCHEDULER.add()

    def body(*inner: Any) -> None:
        SCHEDULER.by_ident[threading.get_ident()] = state
        state.go.acquire()
        try:
            function(*inner)
        finally:
            SCHEDULER.end(state)

    return original(body, *args, **kwargs)


def _join(original: Any, thread: Any, timeout: float | None = None) -> Any:
    current = SCHEDULER.current()
    # the number of a thread that has ended may be another one's by now
    state = SCHEDULER.by_ident.get(thread._ident) if _is_alive(thread) else None
    if current and state not in (None, current):
        limit = FOREVER if timeout is None else max(timeout, 0)
        if not SCHEDULER.wait(current, state, limit):
            return None
    return original(thread, timeout)


def _shutdown(original: Any) -> Any:
    """Let threads that are no daemons take turns to their ends: the main thread has ended."""
    with contextlib.suppress(Exception):
        calls = getattr(threading, "_threading_atexits", [])
        while calls:
            calls.pop()()  # an executor tells its threads that there is no more work
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
    SCHEDULER.stop()
    return original()


def _slept(original: Any, seconds: Any) -> Any:
    """Sleeping hands the turn on until nobody else can run; who is alone sleeps in fact. Short
    sleeps count alike: who wakes first is then decided by who fell asleep first, and not by a
    jitter."""
    current = SCHEDULER.current()
    sleeps = isinstance(seconds, (int, float)) and 0 <= seconds < 1e9
    if current is None or len(SCHEDULER.order) == 1 or not sleeps:
        return original(seconds)
    if seconds == 0:
        return SCHEDULER.poll()
    longest = seconds
    for limit in _ALIKE:
        if seconds <= limit:
            longest = limit
    SCHEDULER.wait(current, object(), longest, seconds)
    return None


def _polled(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Ask for what others may bring about."""
    if source_line.module_of(sys._getframe(2)) != "threading":
        SCHEDULER.poll()
    return original(*args, **kwargs)


def _looked_for(look: Callable[[], Any]) -> Any:
    """Return what `look` finds, as long as other threads could run that may bring it about."""
    current = SCHEDULER.current()
    while True:
        result = look()
        if result or current is None or current.blocked:
            return result
        if not SCHEDULER.others_ready(current):
            return result
        SCHEDULER.poll()


def _selectors(module: Any) -> None:
    def waited(original: Any, selector: Any, timeout: Any = None) -> Any:
        """Look for what a thread of this process has brought about; only then give the turn
        away."""
        ready = None
        if timeout is None or timeout > 0:
            ready = _looked_for(lambda: original(selector, 0))
        return ready or _blocking(original, selector, timeout)

    for kind in {kind for kind in vars(module).values() if isinstance(kind, type)}:
        if "select" in vars(kind):
            wrap(kind, "select", waited)


def _received(original: Any, connection: Any, *args: Any) -> Any:
    _looked_for(lambda: connection._poll(0))
    return _blocking(original, connection, *args)


def _semaphore(original: Any, semaphore: Any) -> None:
    """Make the methods of a semaphore between processes, which puts C's own `acquire` into each of
    its objects."""
    original(semaphore)
    acquire = semaphore._semlock.acquire
    release = semaphore._semlock.release

    def acquired(block: bool = True, timeout: float | None = None) -> Any:
        waits = block and (timeout is None or timeout > 0)
        if waits and _looked_for(lambda: acquire(False)):
            return True
        return _blocking(acquire, block, timeout)

    def released() -> None:
        """Let a child that waited for room in a queue do its work before the next one gets
        room."""
        release()
        processes.settle()

    semaphore.acquire = acquired
    semaphore.release = released


def _blocking(original: Any, *args: Any, **kwargs: Any) -> Any:
    current = SCHEDULER.current()
    if current is None or current.blocked:
        return original(*args, **kwargs)
    with SCHEDULER.outside(current):
        return original(*args, **kwargs)


def _started(original: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    _blocking(processes.settle)
    return result


def _sent(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Send through a pipe, and keep the turn: nobody else sends before this was dealt with."""
    result = original(*args, **kwargs)
    processes.settle()
    return result


_SEMAPHORES = "multiprocessing.synchronize"
_TAKING_TURNS = (
    ("threading", "_start_new_thread _start_joinable_thread", _start_member),
    ("threading", "Thread.join", _join),
    ("threading", "_shutdown", _shutdown),
    ("threading", "Event.is_set Thread.is_alive", _polled),
    ("time", "sleep", _slept),
    ("os", "waitpid wait wait4", _blocking),
    ("select", "select", _blocking),
    ("queue", "Queue.empty Queue.full Queue.qsize", _polled),
    ("concurrent.futures", "Future.done Future.running", _polled),
    ("concurrent.futures", "as_completed", _completed),
    ("asyncio", "as_completed", _begun_in_order),
    ("multiprocessing.pool", "Pool.imap_unordered", _in_order),
    ("subprocess", "Popen.__init__", _started),
    ("multiprocessing.process", "BaseProcess.start", _started),
    ("multiprocessing.connection", "Connection._send_bytes", _sent),
    ("multiprocessing.connection", "Connection._recv_bytes", _received),
    (_SEMAPHORES, "SemLock._make_methods", _semaphore),
    (_SEMAPHORES, "SemLock.__enter__", lambda original, lock: lock.acquire()),
)
