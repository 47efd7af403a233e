"""Who the process is: its number, its threads' numbers, the host, the user, names of temporary files, and where objects lie in memory.

Only what the workspace itself asks for gets another answer: libraries name sockets, locks and shared memory by the process's number, and
would break. The default `hash()` and `repr()` of objects are read in C: the address layout of the whole process is pinned from outside.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, Optional

from .. import imports
from . import Uses, outside
from .patching import replace

NAME = "identity"
_FIRST = 100_000  # the pinned number of a run's first process; each further one of the same parent counts on
_OBJECTS = 1_000_000
_OTHER_HOST = "localhost"  # the varied name: whoever connects to it arrives


def install(uses: Uses) -> None:
    """Wrap what tells one process from another."""
    native = (sys.modules[os.name],)
    replace(os, "uname", functools.partial(_answer, uses, "os.uname", _uname), also=native)
    if uses.only_varies(NAME):
        for module, name in (("socket", "gethostname"), ("socket", "getfqdn"), ("platform", "node")):
            imports.after_import(module, functools.partial(_arrived, uses, name, "host"))
        return  # nothing but the host's name is varied
    for name in ("getpid", "getppid"):
        replace(os, name, functools.partial(_answer, uses, "os." + name, _number), also=native)
    for name in ("get_ident", "get_native_id"):
        replace(threading, name, functools.partial(_answer, uses, "threading." + name, _thread))
    replace(os, "getlogin", functools.partial(_answer, uses, "os.getlogin", lambda _: "user"), also=native)
    for module, name, fixed in (
        ("socket", "gethostname", "host"),
        ("socket", "getfqdn", "host"),
        ("platform", "node", "host"),
        ("getpass", "getuser", "user"),
    ):
        imports.after_import(module, functools.partial(_arrived, uses, name, fixed))
    replace(builtins, "id", functools.partial(_id, uses, {}))


def _arrived(uses: Uses, name: str, fixed: str, module: Any) -> None:
    replace(module, name, functools.partial(_answer, uses, "%s.%s" % (module.__name__, name), lambda _: fixed))


def _answer(uses: Uses, source: str, pinned: Callable[[Uses], Any], original: Any, *args: Any, **kwargs: Any) -> Any:
    frame = sys._getframe(2)
    if outside(frame):
        return original(*args, **kwargs)
    varied = _VARIED.get(source)
    other = None if varied is None else functools.partial(varied, original)
    return uses.ask(NAME, source, lambda: original(*args, **kwargs), lambda _: pinned(uses), other, frame)


def _number(uses: Uses) -> int:
    number = _FIRST
    for part in uses.ordinal.split("."):
        number = number * 100 + int(part) if number < 10**9 else number + int(part)
    return number % 4_194_304


def _thread(uses: Uses) -> int:
    current = threading.current_thread()
    return 1 if current is threading.main_thread() else 2 + sum(map(ord, current.name))


def _other_uname(original: Any) -> Any:
    found = original()
    return os.uname_result((found[0], _OTHER_HOST, *tuple(found)[2:]))


_VARIED: Dict[str, Callable[[Any], Any]] = {
    "os.uname": _other_uname,
    "socket.gethostname": lambda _: _OTHER_HOST,
    "socket.getfqdn": lambda _: _OTHER_HOST,
    "platform.node": lambda _: _OTHER_HOST,
}


def _uname(uses: Uses) -> Any:
    return os.uname_result(("Linux", "host", "0", "0", "machine"))


def _id(uses: Uses, known: Dict[int, int], original: Any, *args: Any) -> int:
    frame: Optional[FrameType] = sys._getframe(2)
    number = int(original(*args))
    if outside(frame):
        return number

    def pinned(_stream: Any) -> int:
        if len(known) < _OBJECTS:
            known.setdefault(number, 1 + len(known))
        return 0x7F00_0000_0000 + 64 * known.get(number, 0)

    return int(uses.ask("addresses", "id", lambda: number, pinned, None, frame))
