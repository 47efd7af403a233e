"""Files outside the declared inputs: what an earlier run left behind (`leftovers`), and what others
keep there (`files`), the machine's own (`/proc`, `/sys`) among them.

They are watched only: each file that is read, asked for or listed is noted under its path, with a
digest of what was there. What C code opens by a path of its own (h5py, Arrow, a child without the
probe) is out of sight, but for the few entry points named below.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, Optional, Set, Tuple

from ...trace.format import ASKED
from .. import imports, session, source_line
from ..opened import Opened
from ..patch import wrap
from . import commands
from .use import Uses, busy

NAME, LEFTOVERS = "files", "leftovers"
_EVENTS = ("open", "sqlite3.connect", "os.rename", "os.listdir", "os.scandir")
_ASKING = ("stat", "lstat", "access")
_MACHINE, _RANDOM = ("/proc/", "/sys/"), "/proc/sys/kernel/random/"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EMPTYING = os.O_TRUNC | os.O_EXCL
_WHOLE, _END = 16 << 20, 1 << 20  # bytes: a larger file is known by its size and its two ends
# Entry points in C that open a file by a path: module, name, which argument that is, whether it is
# written.
_IN_C = (
    ("dbm", "open", 0, False),
    ("torch", "save", 1, True),
    ("torch", "from_file", 0, False),
    ("safetensors", "safe_open", 0, False),
    ("safetensors.torch", "load_file", 0, False),
    ("safetensors.torch", "save_file", 1, True),
    ("safetensors.numpy", "load_file", 0, False),
    ("safetensors.numpy", "save_file", 1, True),
)
_RESOLVING = ("realpath", "_joinrealpath")  # they ask about every folder above a file
_HERE = os.path.dirname(__file__)
_BETWEEN = (_HERE + os.sep, os.path.join(os.path.dirname(_HERE), "patch."))
_PROBE = os.path.dirname(os.path.dirname(_HERE)) + os.sep
# `on` while this file is at work: what it calls is nobody's use
_INSIDE = threading.local()
_open, _read, _close, _lstat, _listdir = os.open, os.read, os.close, os.lstat, os.listdir


def install(uses: Uses) -> None:
    """Watch what is opened, listed and asked for by a path, from here on."""
    files = _Files(uses)
    sys.addaudithook(files.hook)
    for name in _ASKING:
        wrap(os, name, files.asked)
    for module, name, at, writes in _IN_C:
        around = functools.partial(files.in_c, at, writes)
        imports.wrap_after(module, name, around)


class _Files:
    """What the training reads outside, and what this run has written there itself."""

    def __init__(self, uses: Uses) -> None:
        config = session.current().config
        self._uses, self._judge = uses, Opened(config)
        self._began, self._started = config.get("began"), float(config.get("started", 0.0))
        # a file for each that a process of this run has written, by the digest of its path
        self._marks = os.path.join(config["traces"], "written")
        self._written: Set[str] = set()

    def hook(self, event: str, args: Tuple[Any, ...]) -> None:
        """Python's audit hook. To ask for the frame is an event as well; before the script begins
        there is none that calls."""
        if event not in _EVENTS:
            return
        try:
            frame = sys._getframe().f_back
            if event == "open":
                self._seen(args[0], *_purpose(args[1], args[2]), frame)
            elif event == "sqlite3.connect":
                self._seen(args[0], True, True, frame)
            elif event == "os.rename":
                self._seen(args[1], False, True, frame)
            else:
                self._seen(args[0], True, False, frame, _names)
        except Exception:
            return

    def asked(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        """`os.stat` and its like: `os.path.exists` and `isfile` too."""
        frame = sys._getframe(1)
        if kwargs.get("dir_fd") is None:
            self._seen(path, True, False, frame, _state, ASKED)
        return original(path, *args, **kwargs)

    def in_c(self, at: int, writes: bool, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A function in C, or one that hands the path to C."""
        if len(args) > at:
            self._seen(args[at], not writes, writes, sys._getframe(1))
        return original(*args, **kwargs)

    def _seen(
        self,
        path: Any,
        reads: bool,
        writes: bool,
        frame: Optional[FrameType],
        digest: Optional[Callable[[str], str]] = None,
        about: str = "",
    ) -> None:
        """Note a use of a path. Raises nothing of its own."""
        if getattr(_INSIDE, "on", False) or not isinstance(path, (str, bytes, os.PathLike)):
            return
        _INSIDE.on = True
        try:
            frame = _caller(frame)
            if frame is None or (about and frame.f_code.co_name in _RESOLVING):
                return
            place = self._place(os.path.abspath(os.fsdecode(path)), machine=not (writes or about))
            mine = self._wrote(place) if place else False
            if writes:
                self._writes(place or os.path.realpath(os.fsdecode(path)))
            if place and reads and not mine and not busy():
                factor = LEFTOVERS if self._left(place) else NAME
                near = source_line.nearest_frame(frame)
                site, answer = source_line.nearest(near), (digest or _digest)(place)
                self._uses.note(factor, _label(place) + about, site, answer, near, outside=True)
            elif reads and not place and not about:
                commands.file_read(os.path.realpath(os.fsdecode(path)), self._wrote)
        except Exception:
            return
        finally:
            _INSIDE.on = False

    def _place(self, path: str, *, machine: bool) -> str:
        """The real path of a file outside; empty for any other. `machine`: whether what the machine
        says of itself counts."""
        real = os.path.realpath(path)
        if path.startswith(_MACHINE):
            return real if machine and not path.startswith(_RANDOM) else ""
        return real if self._judge.beyond(path) and self._judge.beyond(real) else ""

    def _left(self, place: str) -> bool:
        """Whether an earlier run of this gate run left it, as far as its times say: a file that
        something else keeps writing is newer."""
        try:
            return self._began is not None and self._began <= _lstat(place).st_ctime < self._started
        except OSError:
            return False

    def _mark(self, place: str) -> str:
        name = hashlib.blake2b(os.fsencode(place), digest_size=16).hexdigest()
        return os.path.join(self._marks, name)

    def _writes(self, place: str) -> None:
        """A process of this run is about to write the file."""
        if place not in self._written:
            self._written.add(place)
            os.makedirs(self._marks, exist_ok=True)
            _close(_open(self._mark(place), os.O_WRONLY | os.O_CREAT, 0o600))

    def _wrote(self, place: str) -> bool:
        """Whether a process of this run has written the file."""
        return place in self._written or os.path.lexists(self._mark(place))


def _purpose(mode: Any, flags: Any) -> Tuple[bool, bool]:
    """Whether opening reads what was there, and whether it may write."""
    if isinstance(mode, str):
        return "w" not in mode and "x" not in mode, any(letter in mode for letter in "wax+")
    return not flags & _EMPTYING, bool(flags & _WRITING)


def _caller(frame: Optional[FrameType]) -> Optional[FrameType]:
    """Who called; None where the probe did, for ends of its own, or who looks for a module."""
    if imports.calling_back():
        return None
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        return None
    above = frame
    while above is not None and not source_line.inside(above.f_code.co_filename):
        name = above.f_code.co_filename
        if name.startswith(_PROBE) and not name.startswith(_BETWEEN):
            return None
        above = above.f_back
    return frame


def _label(place: str) -> str:
    """What a path is called in a trace: itself, `/proc/self` for this process's own folder; a long
    one ends in its digest."""
    own = "/proc/%d/" % os.getpid()
    name = "/proc/self/" + place[len(own) :] if place.startswith(own) else place
    if len(name) > 170:
        name = name[:130] + hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return name.encode("utf-8", "backslashreplace").decode()


def _digest(place: str) -> str:
    """A digest of what a file holds. Never waits."""
    try:
        file = _open(place, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return type(error).__name__
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            return "no regular file"
        found = hashlib.blake2b(_most(file, _WHOLE), digest_size=8)
        if state.st_size > _WHOLE:
            os.lseek(file, -_END, os.SEEK_END)
            found.update(b"%d" % state.st_size + _most(file, _END))
        return found.hexdigest()
    except OSError as error:
        return type(error).__name__
    finally:
        _close(file)


def _most(file: int, most: int) -> bytes:
    """What a descriptor holds from here on, at most `most` bytes."""
    found = bytearray()
    while len(found) < most:
        piece = _read(file, min(most - len(found), 1 << 20))
        if not piece:
            break
        found += piece
    return bytes(found)


def _names(place: str) -> str:
    try:
        return "\0".join(sorted(_listdir(place)))
    except OSError as error:
        return type(error).__name__


def _state(place: str) -> str:
    try:
        found = _lstat(place)
    except OSError:
        return "absent"
    kind = stat.S_IFMT(found.st_mode)
    return "%o %d" % (kind, found.st_size if kind == stat.S_IFREG else 0)
