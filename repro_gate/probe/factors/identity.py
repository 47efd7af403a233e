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
from collections.abc import Iterator
from typing import Any

from ..imports import wrap_later
from ..patch import wrap
from .use import USES, Pinned, Stream, asker, is_direct

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
    wrap_names = functools.partial(USES.wrap, NAME, own=True)
    wrap_names("os", "uname", _local_uname, varied=_other_uname)
    for module, name in (("socket", "gethostname"), ("platform", "node")):
        wrap_names(module, name, lambda *_: _HOST, varied=_other)
    if USES.only_varies(NAME):
        return  # nothing but the host's name is varied
    for module, names, pinned in _ASKED:
        wrap_names(module, names, pinned)
    for name in _TAKING_NUMBERS.split():
        wrap_later("os", name, _with_real_number)
    wrap_later("psutil", "Process._init", _with_real_number)
    kind: Any = threading.Thread
    wrap(kind, "start", _started)
    for name in ("ident", "native_id"):
        read = functools.partial(_asked_of, f"Thread.{name}", vars(kind)[name].fget)
        setattr(kind, name, property(read))
    wrap_later("tempfile", "_RandomNameSequence.__next__", _temporary)


def _number(ordinal: str) -> int:
    """Return the pinned number of a process: another one for each process of the run."""
    return _FIRST + Stream(ordinal).integer(29)


def _local_uname(_: Stream, real: os.uname_result) -> os.uname_result:
    return os.uname_result((real[0], _HOST, *real[2:]))


def _other_uname(real: os.uname_result) -> os.uname_result:
    return os.uname_result((real[0], _other(real[1]), *real[2:]))


def _other(host: str) -> str:
    return _HOST if host != _HOST else _HOST + ".localdomain"


def _with_real_number(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call what is given the number of a process: the pinned one is known to nobody else."""
    pinned = _number(USES.ordinal)
    args = tuple(
        _getpid() if isinstance(item, int) and item == pinned else item for item in args
    )
    return original(*args, **kwargs)


def _started(original: Any, thread: Any) -> Any:
    """Number threads by the order in which they were started."""
    thread._repro_gate_number = next(_STARTED_AS)
    return original(thread)


def _number_of(thread: Any) -> int:
    """Return the pinned number of a thread; one that Python did not start comes after all
    others."""
    if thread is threading.main_thread():
        return 1
    if not hasattr(thread, "_repro_gate_number"):
        thread._repro_gate_number = next(_STARTED_AS) + 1_000_000
    return int(thread._repro_gate_number)


# Module, functions and their pinned answer.
_ASKED: tuple[tuple[str, str, Pinned], ...] = (
    ("os", "getpid", lambda *_: _number(USES.ordinal)),
    ("os", "getppid", lambda *_: _number(USES.ordinal.rpartition(".")[0])),
    ("getpass", "getuser", lambda *_: "user"),
    ("uuid", "getnode", lambda *_: 1 << 40),
    (
        "threading",
        "get_ident get_native_id",
        lambda *_: _number_of(threading.current_thread()),
    ),
)


def _asked_of(source: str, original: Any, thread: Any) -> Any:
    """Return `Thread.ident` or `Thread.native_id`; None for a thread that was not started."""
    return USES.ask(
        NAME,
        source,
        lambda: original(thread),
        lambda _, number: number and _number_of(thread),
        own=True,
    )


def _temporary(original: Any, names: Iterator[str]) -> Any:
    """Pin names of the workspace's own temporary files: who makes them tries the next name if one
    is taken."""
    if not is_direct(asker(sys._getframe(1)), NAME):
        return original(names)
    return USES.ask(
        NAME,
        "tempfile",
        lambda: original(names),
        lambda stream, _: stream.bytes(4).hex(),
    )
