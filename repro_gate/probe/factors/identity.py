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
from .use import Uses, indirect, outside

NAME = "identity"
_FIRST = 4_200_000  # above what Linux gives to a process (2^22): no other one has a pinned number
_HOST, _USER = "localhost", "user"  # a name that can be looked up
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
_getpid = os.getpid


def install(uses: Uses) -> None:
    """Wrap what tells one process from another."""
    native = (sys.modules[os.name],)
    wrap(os, "uname", functools.partial(_uname, uses), also=native)
    for source in ("socket.gethostname", "socket.getfqdn", "platform.node"):
        module, _, name = source.partition(".")
        imports.wrap_after(module, name, functools.partial(_host, uses, source))
    if uses.only_varies(NAME):
        return  # nothing but the host's name is varied
    for name, above in (("getpid", 0), ("getppid", 1)):
        wrap(
            os,
            name,
            functools.partial(_answer, uses, "os." + name, functools.partial(_number, uses, above)),
            also=native,
        )
    for name in (
        "kill",
        "getpgid",
        "getsid",
        "sched_getaffinity",
        "sched_setaffinity",
        "getpriority",
        "setpriority",
        "pidfd_open",
    ):
        wrap(os, name, functools.partial(_with_real_number, uses), also=native)
    imports.wrap_after("psutil", "Process._init", functools.partial(_with_real_number, uses))
    _threads(uses)
    wrap(
        os, "getlogin", functools.partial(_answer, uses, "os.getlogin", lambda: _USER), also=native
    )
    for source, answer in (("getpass.getuser", lambda: _USER), ("uuid.getnode", lambda: 1 << 40)):
        around = functools.partial(_answer, uses, source, answer)
        module, _, name = source.partition(".")
        imports.wrap_after(module, name, around)
    imports.after_import("tempfile", functools.partial(_temporary, uses))
    if uses.watch:
        _paths(uses)


def _answer(
    uses: Uses, source: str, pinned: Callable[[], Any], original: Any, *args: Any, **kwargs: Any
) -> Any:
    frame: Optional[FrameType] = sys._getframe(2)
    if frame is not None and frame.f_code.co_name == "ident":
        frame = frame.f_back  # `current_process().pid`
    if outside(frame):
        return original(*args, **kwargs)
    return uses.ask(
        NAME, source, lambda: original(*args, **kwargs), lambda _: pinned(), None, frame
    )


def _number(uses: Uses, above: int) -> int:
    """The pinned number of this process, or of its parent: another one for each process of the
    run."""
    parts = uses.ordinal.split(".")
    return _FIRST + hash_of(".".join(parts[: len(parts) - above])) % 1_000_000_000


def hash_of(text: str) -> int:
    """A number of 32 bits that stands for a text, the same in every process."""
    import zlib

    return zlib.crc32(text.encode())


def _with_real_number(uses: Uses, original: Any, *args: Any, **kwargs: Any) -> Any:
    """A call that is given the number of a process: the pinned one is known to nobody else."""
    pinned = _number(uses, 0)
    args = tuple(_getpid() if isinstance(item, int) and item == pinned else item for item in args)
    return original(*args, **kwargs)


def _threads(uses: Uses) -> None:
    """Number threads by the order in which they were started; one that Python did not start comes
    after all others."""
    counts, numbers = itertools.count(2), threading.local()

    def started(original: Any, thread: Any, *args: Any, **kwargs: Any) -> Any:
        thread._repro_gate_number = next(counts)
        return original(thread, *args, **kwargs)

    def number_of(thread: Any) -> int:
        if thread is threading.main_thread():
            return 1
        if not hasattr(thread, "_repro_gate_number"):
            thread._repro_gate_number = next(counts) + 1_000_000
        return int(thread._repro_gate_number)

    def mine() -> int:
        if not hasattr(numbers, "own"):
            numbers.own = number_of(threading.current_thread())
        return int(numbers.own)

    wrap(threading.Thread, "start", started)
    for name in ("get_ident", "get_native_id"):
        wrap(threading, name, functools.partial(_own_number, uses, "threading." + name, mine))
    for name in ("ident", "native_id"):
        kind: Any = threading.Thread
        if isinstance(vars(kind).get(name), property):
            setattr(
                kind,
                name,
                property(
                    functools.partial(
                        _property, uses, "Thread." + name, number_of, vars(kind)[name].fget
                    )
                ),
            )


def _own_number(uses: Uses, source: str, pinned: Callable[[], int], original: Any) -> Any:
    frame = sys._getframe(2)
    if outside(frame):  # `threading` finds its own by it
        return original()
    return uses.ask(NAME, source, original, lambda _: pinned(), None, frame)


def _property(
    uses: Uses, source: str, pinned: Callable[[Any], int], original: Any, thread: Any
) -> Any:
    frame = sys._getframe(1)
    number = original(thread)
    if number is None or outside(frame):
        return number
    return uses.ask(NAME, source, lambda: number, lambda _: pinned(thread), None, frame)


def _host(uses: Uses, source: str, original: Any, *args: Any) -> Any:
    frame = sys._getframe(2)
    if args or outside(frame):
        return original(*args)
    return uses.ask(NAME, source, original, lambda _: _HOST, lambda: _other(original()), frame)


def _uname(uses: Uses, original: Any) -> Any:
    frame, real = sys._getframe(2), original()
    if outside(frame):
        return real

    def named(host: str) -> Any:
        return os.uname_result((real[0], host, *real[2:]))

    return uses.ask(
        NAME,
        "os.uname",
        lambda: real,
        lambda _: named(_HOST),
        lambda: named(_other(real[1])),
        frame,
    )


def _paths(uses: Uses) -> None:
    """Where the workspace, `HOME` and `TMPDIR` are, as the workspace asks for it: told only, since
    files are found by these paths."""

    def told(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(2)
        if indirect(frame, NAME):
            return original(*args, **kwargs)
        return uses.ask(NAME, name, lambda: original(*args, **kwargs), None, None, frame)

    for name in ("abspath", "realpath", "expanduser"):
        wrap(os.path, name, functools.partial(told, "os.path." + name))
    wrap(os, "getcwd", functools.partial(told, "os.getcwd"))
    imports.wrap_after("tempfile", "gettempdir", functools.partial(told, "tempfile.gettempdir"))


def _other(host: str) -> str:
    return _HOST if host != _HOST else _HOST + ".localdomain"


def _temporary(uses: Uses, module: Any) -> None:
    """Names of the workspace's own temporary files: who makes them tries the next name where one is
    taken."""

    def following(original: Any, names: Iterator[str]) -> Any:
        frame = sys._getframe(2)
        if indirect(frame, NAME):
            return original(names)

        def pinned(stream: Any) -> str:
            return "".join(_LETTERS[byte % len(_LETTERS)] for byte in stream.bytes(8))

        return uses.ask(NAME, "tempfile", lambda: original(names), pinned, None, frame)

    wrap(module._RandomNameSequence, "__next__", following)
