"""Who the process is: its number, its threads' numbers, the host, the user, and the names of
temporary files.

Only what the workspace itself asks for gets another answer: libraries name sockets, locks and
shared memory by the process's number, and would break. Where a pinned number goes back to the
system or to psutil, the real one is put in its place. Out of sight: the numbers of children as
`Popen` and `Process` objects tell them, environment variables, and what C code asks for itself.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Iterator, Optional

from .. import imports
from ..patch import wrap
from .use import USES, Stream, indirect

NAME = "identity"
_FIRST = 4_200_000  # above what Linux gives to a process (2^22): no other one has a pinned number
_HOST, _USER = "localhost", "user"  # a name that can be looked up
_HOSTS = (("socket", "gethostname"), ("socket", "getfqdn"), ("platform", "node"))
_TAKING_NUMBERS = "kill getpgid getsid sched_getaffinity sched_setaffinity getpriority setpriority"
_getpid = os.getpid


def install() -> None:
    """Wrap what tells one process from another."""
    native = (sys.modules[os.name],)

    def told(
        module: str, name: str, pinned: Callable[[Any], Any], varied: Any = None
    ) -> None:  # each is given the real answer
        around = functools.partial(_answer, "%s.%s" % (module, name), pinned, varied)
        imports.wrap_later(module, name, around, native)

    told("os", "uname", _named, lambda real: _named(real, _other(real[1])))
    for module, name in _HOSTS:
        told(module, name, lambda real: _HOST, _other)
    if USES.only_varies(NAME):
        return  # nothing but the host's name is varied
    told("os", "getpid", lambda real: _number(USES.ordinal))
    told("os", "getppid", lambda real: _number(USES.ordinal.rpartition(".")[0]))
    told("getpass", "getuser", lambda real: _USER)
    told("uuid", "getnode", lambda real: 1 << 40)
    for name in _TAKING_NUMBERS.split():
        wrap(os, name, _with_real_number, also=native)
    imports.wrap_later("psutil", "Process._init", _with_real_number)
    number_of = _threads()
    for name in ("get_ident", "get_native_id"):
        told("threading", name, lambda real: number_of(threading.current_thread()))
    imports.wrap_later("tempfile", "_RandomNameSequence.__next__", _temporary)


def _answer(
    source: str,
    pinned: Callable[[Any], Any],
    varied: Optional[Callable[[Any], Any]],
    original: Any,
    *args: Any,
) -> Any:
    if args:  # `getfqdn(name)`
        return original(*args)
    frame: Optional[FrameType] = sys._getframe(2)
    if frame is not None and frame.f_code.co_name == "ident":
        frame = frame.f_back  # `current_process().pid`
    other = None if varied is None else lambda: varied(original())
    return USES.ask(NAME, source, original, lambda _: pinned(original()), other, frame, own=True)


def _number(ordinal: str) -> int:
    """Return the pinned number of a process: another one for each process of the run."""
    return _FIRST + Stream(ordinal).integer(29)


def _named(real: os.uname_result, host: str = _HOST) -> os.uname_result:
    return os.uname_result((real[0], host, *real[2:]))


def _other(host: str) -> str:
    return _HOST if host != _HOST else _HOST + ".localdomain"


def _with_real_number(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call what is given the number of a process: the pinned one is known to nobody else."""
    pinned = _number(USES.ordinal)
    args = tuple(_getpid() if isinstance(item, int) and item == pinned else item for item in args)
    return original(*args, **kwargs)


def _threads() -> Callable[[Any], int]:
    """Number threads by the order in which they were started; one that Python did not start comes
    after all others."""
    counts = itertools.count(2)

    def started(original: Any, thread: Any) -> Any:
        thread._repro_gate_number = next(counts)
        return original(thread)

    def number_of(thread: Any) -> int:
        if thread is threading.main_thread():
            return 1
        if not hasattr(thread, "_repro_gate_number"):
            thread._repro_gate_number = next(counts) + 1_000_000
        return int(thread._repro_gate_number)

    def told(source: str, original: Any, thread: Any) -> Any:
        number, frame = original(thread), sys._getframe(1)
        if number is None:
            return None
        return USES.ask(
            NAME, source, lambda: number, lambda _: number_of(thread), None, frame, own=True
        )

    kind: Any = threading.Thread
    wrap(kind, "start", started)
    for name in ("ident", "native_id"):
        setattr(
            kind,
            name,
            property(functools.partial(told, "Thread." + name, vars(kind)[name].fget)),
        )
    return number_of


def _temporary(original: Any, names: Iterator[str]) -> Any:
    """Pin names of the workspace's own temporary files: who makes them tries the next name if one
    is taken."""
    frame = sys._getframe(2)
    if indirect(frame, NAME):
        return original(names)
    return USES.ask(
        NAME, "tempfile", lambda: original(names), lambda stream: stream.bytes(4).hex(), None, frame
    )
