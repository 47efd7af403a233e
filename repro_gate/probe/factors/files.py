"""Files outside the declared inputs: what an earlier run left behind (`leftovers`), and what others
keep there (`files`), the machine's own (`/proc`, `/sys`) among them.

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
import stat
import sys
from types import FrameType
from typing import Any, Callable

from ...trace.format import ASKED
from .. import imports, session, source_line
from ..opened import Opened, purpose
from ..patch import wrap
from ..process import printable
from . import commands
from .use import USES, Marks, asker, busy, deciding, finds_modules, of_the_probe

NAME = "files"
LEFTOVERS = "leftovers"
_MACHINE = ("/proc/", "/sys/")
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
_open = os.open
_lstat = os.lstat
_listdir = os.listdir


def install() -> None:
    """Watch what is opened, listed and asked for by a path, from here on."""
    files = _Files()
    sys.addaudithook(files.hook)
    for name in ("stat", "lstat", "access"):
        wrap(os, name, files.status)
    for module, name, at, writes in _IN_C:
        imports.wrap_later(module, name, functools.partial(files.in_c, at, writes))


class _Files:
    """What the training reads outside, and what this run has written there itself."""

    def __init__(self) -> None:
        config = session.current().config
        self._judge = Opened(config)
        self._children = commands.Children()
        self._children.install()
        self._began = config["began"]
        self._started = config["started"]
        self._written = Marks("written")  # by processes of this run

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Note what Python's audit hook reports."""
        if event == "open":
            reads, writes = purpose(args[1], args[2])
            self._used(args[0], reads, writes, _digest)
        elif event in _EVENTS:
            at, reads, writes, digest = _EVENTS[event]
            self._used(args[at], reads, writes, digest)

    def status(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Note `os.stat` and its like: `os.path.exists` and `isfile` too."""
        if kwargs.get("dir_fd") is None:
            self._used(path, True, False, _state, ASKED)
        return original(path, *args, **kwargs)

    def in_c(
        self, at: int, writes: bool, original: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Note a function in C, or one that hands the path to C."""
        if len(args) > at:
            self._used(args[at], not writes, writes, _digest)
        return original(*args, **kwargs)

    def _used(
        self,
        path: Any,
        reads: bool,
        writes: bool,
        digest: Callable[[str], str],
        about: str = "",
    ) -> None:
        """Note a use of a path. Raises nothing of its own."""
        if busy() or not isinstance(path, (str, bytes, os.PathLike)):
            return
        with contextlib.suppress(Exception), deciding():
            # to ask for the frame is an event as well; before the script begins there is none
            caller = asker(sys._getframe(1))
            # importing torch resolves paths some hundred thousand times, under a hundred frames:
            # what takes longest comes last
            if caller is None or finds_modules(caller):
                return
            if about and caller.f_code.co_name in _RESOLVING:
                return
            name = os.fsdecode(path)
            whole = os.path.abspath(name)
            if (about and not self._judge.beyond(whole)) or _is_for_the_probe(caller):
                return
            place = self._place(whole, machine=not (writes or about))
            own = bool(place) and self._written.has(place)
            if writes:
                self._written.add(place or os.path.realpath(name))
            if place and reads and not own:
                try:
                    answer = digest(place)
                except OSError as error:
                    answer = type(error).__name__
                factor = LEFTOVERS if self._left(place) else NAME
                USES.note(factor, _label(place) + about, answer, outside=True)
            elif reads and not place and not about:
                self._children.file_read(os.path.realpath(name), self._written, caller)

    def _place(self, path: str, *, machine: bool) -> str:
        """Return the real path of a file outside; empty for any other. `machine`: whether what the
        machine says of itself counts."""
        if path.startswith(_MACHINE):
            counts = machine and not path.startswith(_RANDOM)
            return os.path.realpath(path) if counts else ""
        real = os.path.realpath(path) if self._judge.beyond(path) else ""
        return real if real and self._judge.beyond(real) else ""

    def _left(self, place: str) -> bool:
        """Return whether an earlier run of this gate run left it, as far as its times say: a file
        that something else keeps writing is newer."""
        with contextlib.suppress(OSError):
            changed = _lstat(place).st_ctime
            return self._began is not None and self._began <= changed < self._started
        return False


def _is_for_the_probe(frame: FrameType | None) -> bool:
    """Return whether the probe asks, for ends of its own, and no line of the training."""
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        if of_the_probe(frame):
            return True
        frame = frame.f_back
    return False


def _label(place: str) -> str:
    """Return what a path is called in a trace: itself or its end, `/proc/self` for this process's
    own folder."""
    return printable(place.replace(f"/proc/{os.getpid()}/", "/proc/self/", 1)[-170:])


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


def _names(place: str) -> str:
    return "\0".join(sorted(_listdir(place)))


def _state(place: str) -> str:
    state = _lstat(place)
    kind = stat.S_IFMT(state.st_mode)
    return f"{kind:o} {state.st_size if kind == stat.S_IFREG else 0}"


# Event of Python's audit hook: which argument is the path, whether it is read and written, and what
# is noted of it.
_EVENTS: dict[str, tuple[int, bool, bool, Callable[[str], str]]] = {
    "sqlite3.connect": (0, True, True, _digest),
    "os.rename": (1, False, True, _digest),
    "os.listdir": (0, True, False, _names),
    "os.scandir": (0, True, False, _names),
}
