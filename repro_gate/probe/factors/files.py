"""Files outside the declared inputs: what an earlier run left behind (`leftovers`), what others
keep there (`files`), the machine's own (`/proc`, `/sys`) among them, and what the system says of
the process itself (`process`).

They are watched only: each file that is read, asked for or listed is noted under its path, with a
digest of what was there. What C code opens by a path of its own (h5py, Arrow, a child without the
probe) is out of sight, but for the few entry points named below.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import re
import stat
import sys
from types import FrameType
from typing import Any, Callable

from ...trace.format import ASKED, OF_MACHINE
from .. import imports, session, source_line
from ..opened import Opened, purpose
from ..patch import wrap
from ..process import printable
from . import commands
from .commands import WRITTEN
from .use import BUSY, calling_frame, finds_modules, is_marked, mark, note, of_the_probe

NAME = "files"
LEFTOVERS = "leftovers"
PROCESS = "process"
_RANDOM = "/proc/sys/kernel/random/"
# bytes: a larger file is known by its size and its two ends
_WHOLE = 16 << 20
_END = 1 << 20
# Functions that open a file by a path in C: module, name, which argument that is, whether it is
# written.
_IN_C = (
    ("torch", "save", 1, True),
    ("torch", "from_file", 0, False),
    ("safetensors", "safe_open", 0, False),
    ("safetensors", "serialize_file", 1, True),
)
_RESOLVING = ("realpath", "_joinrealpath")  # they ask about every folder above a file
_Digest = Callable[[str], object]
_open = os.open
_lstat = os.lstat
_listdir = os.listdir


def install() -> None:
    """Watch what is opened, listed and asked for by a path, from here on."""
    _judge()
    commands.install()
    sys.addaudithook(_hook)
    for name in ("stat", "lstat", "access"):
        wrap(os, name, _status)
    for module, name, at, writes in _IN_C:
        imports.wrap_later(module, name, functools.partial(_in_c, at, writes))


@functools.lru_cache(maxsize=1)
def _judge() -> Opened:
    return Opened(session.current().config)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    """Note what Python's audit hook reports."""
    if event == "open":
        reads, writes = purpose(args[1], args[2])
        _used(args[0], _digest if reads else None, writes)
    elif event in _EVENTS:
        at, digest, writes = _EVENTS[event]
        _used(args[at], digest, writes)


def _status(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """Note `os.stat` and its like: `os.path.exists` and `isfile` too."""
    if kwargs.get("dir_fd") is None:
        _used(path, _state)
    return original(path, *args, **kwargs)


def _in_c(at: int, writes: bool, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Note a function in C, or one that hands the path to C."""
    if len(args) > at:
        _used(args[at], None if writes else _digest, writes)
    return original(*args, **kwargs)


def _used(path: Any, digest: _Digest | None, writes: bool = False) -> None:
    """Note a use of a path. `digest`: of what is read. Raises nothing of its own."""
    if BUSY.depth or not isinstance(path, (str, bytes, os.PathLike)):
        return
    asked = digest is _state
    with contextlib.suppress(Exception), BUSY:
        # to ask for the frame is an event as well; before the script begins there is none
        caller = calling_frame()
        # importing torch resolves paths some hundred thousand times, under a hundred frames:
        # what takes longest comes last
        if caller is None or finds_modules(caller):
            return
        if asked and caller.f_code.co_name in _RESOLVING:
            return
        name = os.fsdecode(path)
        whole = os.path.abspath(name)
        if (asked and not _judge().beyond(whole)) or _is_for_the_probe(caller):
            return
        place = _place(whole, machine=not (writes or asked))
        is_own = bool(place) and is_marked(WRITTEN, place)
        if writes:
            mark(WRITTEN, place or os.path.realpath(name))
        if digest and place and not is_own:
            source, of_process = re.subn(
                rf"^/proc/{os.getpid()}\b", "/proc/self", place
            )
            source = printable(source[-170:]) + ASKED * asked
            answer: object = ""
            try:
                answer = digest(place)
            except OSError as error:
                answer = type(error).__name__
            factor = PROCESS if of_process else LEFTOVERS if _is_left(place) else NAME
            note(factor, source, answer, outside=True)
        elif digest and not place and not asked:
            commands.file_read(os.path.realpath(name), caller)


def _place(path: str, *, machine: bool) -> str:
    """Return the real path of a file outside; empty for any other. `machine`: whether what the
    machine says of itself counts."""
    real = os.path.realpath(path)
    if path.startswith(OF_MACHINE):
        return real if machine and not path.startswith(_RANDOM) else ""
    beyond = _judge().beyond
    return real if beyond(path) and beyond(real) else ""


def _is_left(place: str) -> bool:
    """Return whether a file changed after the first run of this gate began and before this run did:
    an earlier run probably left it."""
    config = session.current().config
    # TypeError: nobody knows when the first run began
    with contextlib.suppress(OSError, TypeError):
        return bool(config["began"] <= _lstat(place).st_ctime < config["started"])
    return False


def _is_for_the_probe(frame: FrameType | None) -> bool:
    """Return whether the probe asks, for ends of its own, and no line of the training."""
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        if of_the_probe(frame):
            return True
        frame = frame.f_back
    return False


def _digest(place: str) -> str:
    """Return a digest of what a file holds. Never waits."""

    def opener(path: str, flags: int) -> int:
        return _open(path, flags | os.O_NONBLOCK)

    # buffered: what the machine says of itself comes in pieces
    with io.BufferedReader(io.FileIO(place, opener=opener)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            return "no regular file"
        digest = hashlib.blake2b(file.read(_WHOLE), digest_size=8)
        if state.st_size > _WHOLE:
            file.seek(-_END, os.SEEK_END)
            digest.update(b"%d" % state.st_size + file.read(_END))
        return digest.hexdigest()


def _names(place: str) -> object:
    return sorted(_listdir(place))


def _state(place: str) -> object:
    state = _lstat(place)
    kind = stat.S_IFMT(state.st_mode)
    return kind, state.st_size if kind == stat.S_IFREG else 0


# Event of Python's audit hook: which argument is the path, what is noted of it if it is read, and
# whether it is written.
_EVENTS: dict[str, tuple[int, _Digest | None, bool]] = {
    "sqlite3.connect": (0, _digest, True),
    "os.rename": (1, None, True),
    "os.listdir": (0, _names, False),
    "os.scandir": (0, _names, False),
}
