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
import threading
from collections.abc import Iterator
from typing import Any

from ..imports import wrap_later
from ..patch import wrap
from .use import RUN, ask, ask_about, calling_frame, is_direct, only_varies, stream

NAME = "identity"
_FIRST = 4_200_000  # above what Linux gives to a process (2^22): no other one has a pinned number
_HOST = "localhost"  # a name that can be looked up
_TAKING_NUMBERS = (
    "kill getpgid getsid sched_getaffinity sched_setaffinity getpriority setpriority"
)
_STARTED_AS = itertools.count(2)  # numbers of threads
_getpid = os.getpid


def install() -> None:
    """Wrap what tells one process from another."""
    wrap_names = functools.partial(ask_about, NAME, own=True)
    wrap_names("os", "uname", lambda _, real: _uname(real, _HOST), varied=_uname)
    for module, name in (("socket", "gethostname"), ("platform", "node")):
        wrap_names(module, name, lambda *_: _HOST, varied=_other)
    if only_varies(NAME):
        return  # nothing but the host's name is varied
    wrap_names("os", "getpid", lambda *_: _number(RUN.ordinal))
    wrap_names("os", "getppid", lambda *_: _number(RUN.ordinal.rpartition(".")[0]))
    wrap_names("getpass", "getuser", lambda *_: "user")
    wrap_names("uuid", "getnode", lambda *_: 1 << 40)
    names = "get_ident get_native_id"
    wrap_names("threading", names, lambda *_: _number_of(threading.current_thread()))
    wrap_later("os", _TAKING_NUMBERS, _with_real_number)
    wrap_later("psutil", "Process._init", _with_real_number)
    kind: Any = threading.Thread
    main: Any = threading.main_thread()
    main._repro_gate_number = 1
    wrap(kind, "start", _started)
    for name in ("ident", "native_id"):
        real = vars(kind)[name].fget
        read = functools.partial(_asked_of, f"Thread.{name}", real)
        setattr(kind, name, property(read))
    wrap_later("tempfile", "_RandomNameSequence.__next__", _temporary)


def _number(ordinal: str) -> int:
    """Return the pinned number of a process: another one for each process of the run."""
    return _FIRST + stream(ordinal).getrandbits(29)


def _uname(real: os.uname_result, host: str = "") -> os.uname_result:
    name = host or _other(real[1])
    return os.uname_result((real[0], name, *real[2:]))


def _other(host: str) -> str:
    if host == _HOST:
        return "localhost.localdomain"
    return _HOST


def _with_real_number(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call what is given the number of a process: the pinned one is known to nobody else."""
    pinned = _number(RUN.ordinal)
    real = (_getpid() if item == pinned else item for item in args)
    return original(*real, **kwargs)


def _started(original: Any, thread: Any) -> Any:
    """Number threads by the order in which they were started."""
    thread._repro_gate_number = next(_STARTED_AS)
    return original(thread)


def _number_of(thread: Any) -> int:
    """Return the pinned number of a thread; one that Python did not start comes after all
    others."""
    if not hasattr(thread, "_repro_gate_number"):
        thread._repro_gate_number = next(_STARTED_AS) + 1_000_000
    return int(thread._repro_gate_number)


def _asked_of(source: str, original: Any, thread: Any) -> Any:
    """Return `Thread.ident` or `Thread.native_id`; None for a thread that was not started."""
    return ask(
        NAME,
        source,
        lambda: original(thread),
        lambda _, number: number and _number_of(thread),
        own=True,
    )


def _temporary(original: Any, names: Iterator[str]) -> Any:
    """Pin names of the workspace's own temporary files: who makes them tries the next name if one
    is taken."""
    if not is_direct(calling_frame(), NAME):
        return original(names)
    return ask(
        NAME,
        "tempfile",
        lambda: original(names),
        lambda stream, _: stream.randbytes(4).hex(),
    )
