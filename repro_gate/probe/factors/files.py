"""Files outside the declared inputs: what an earlier run left behind (`leftovers`), and what others
keep there (`files`).

Watched, each file that is read, asked for or listed is noted under its path. Pinned, the run works
on private copies (`private.py`), which begin as they were in the first run of the pair, and the
copies of leftovers as if there had been no run before. What C code opens by a path of its own
(h5py, Arrow, a child without the probe) is out of sight, but for the few entry points named below.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...trace.format import ASKED
from .. import imports, session, source_line
from ..patch import wrap
from . import commands
from .listing import Entries
from .private import Outside, digest, label
from .recording import recording_of
from .use import Uses, busy

NAME, LEFTOVERS = "files", "leftovers"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ASKING = ("stat", "lstat", "access")
_CHANGING = (
    "remove",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "utime",
    "truncate",
    "readlink",
    "chdir",
)
_MOVING = ("rename", "replace", "link")
# Entry points in C that open a file by a path: module, name, which argument that is, whether it may
# be written, files that go with it.
_IN_C: Tuple[Tuple[str, str, int, bool, Tuple[str, ...]], ...] = (
    ("sqlite3.dbapi2", "connect", 0, True, ("-journal", "-wal", "-shm")),
    ("dbm", "open", 0, True, (".db", ".dat", ".dir", ".pag", ".bak")),
    ("torch", "save", 1, True, ()),
    ("torch", "load", 0, False, ()),
    ("torch", "from_file", 0, False, ()),
    ("safetensors", "safe_open", 0, False, ()),
    ("safetensors.torch", "load_file", 0, False, ()),
    ("safetensors.torch", "save_file", 1, True, ()),
    ("safetensors.numpy", "load_file", 0, False, ()),
    ("safetensors.numpy", "save_file", 1, True, ()),
)
_HERE = os.path.dirname(__file__)
_BETWEEN_FILES = (_HERE + os.sep, os.path.join(os.path.dirname(_HERE), "patch."))
_PROBE_FILES = os.path.dirname(os.path.dirname(_HERE)) + os.sep
# `_BETWEEN`: of the probe, between a call and its factor
_TRAINING, _PROBE, _BETWEEN, _OTHER = range(4)
_RESOLVING = ("realpath", "_joinrealpath")  # they ask about every folder above a file
# `on` while this file or `private.py` is at work: what it calls is nobody's use
_INSIDE = threading.local()
_lstat, _unlink, _open_file = os.lstat, os.unlink, io.open


def wanted(config: Dict[str, Any]) -> bool:
    """Whether files outside are to be watched, pinned or hidden, or files that children write."""
    outside = any((config.get("outside") or {}).values())
    return (
        outside
        or not {NAME, LEFTOVERS}.isdisjoint(config.get("pin", ()))
        or commands.wanted(config)
    )


def install(uses: Uses) -> None:
    """Wrap what opens, lists, asks for and changes files by their paths."""
    whole = uses.pinned(NAME, ("", 0)) or uses.pinned(LEFTOVERS, ("", 0))
    outside = Outside(
        session.current().config, uses.config.get("outside") or {}, recording_of(uses.config), whole
    )
    files = _Files(uses, outside)
    for owner in (builtins, io, os):
        wrap(owner, "open", files.open)
    for name in _ASKING:
        wrap(os, name, files.ask)
    for name in ("listdir", "scandir"):
        wrap(os, name, functools.partial(files.listed, name))
    if outside.redirects:
        for name in _CHANGING:
            wrap(os, name, files.change)
        for name in _MOVING:
            wrap(os, name, functools.partial(files.move, name))
        wrap(os, "symlink", files.symlink)
    for module, name, at, writes, beside in _IN_C:
        imports.after_import(
            module,
            functools.partial(_arrived, name, functools.partial(files.in_c, at, writes, beside)),
        )


def _arrived(name: str, around: Callable[..., Any], module: Any) -> None:
    wrap(module, name, around)


class _Files:
    """What stands between the training and the files outside."""

    def __init__(self, uses: Uses, outside: Outside) -> None:
        self._uses, self._outside = uses, outside

    def open(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        """`open`, `io.open`, `os.open`."""
        how = args[0] if args else kwargs.get("mode", kwargs.get("flags", "r"))
        if kwargs.get("dir_fd") is not None:
            return original(path, *args, **kwargs)
        if isinstance(how, int):
            writes, empties = bool(how & _WRITING), bool(how & (os.O_TRUNC | os.O_EXCL))
        else:
            writes, empties = (
                any(letter in str(how) for letter in "wax+"),
                "w" in str(how) or "x" in str(how),
            )
        return original(self._seen(path, not empties, writes), *args, **kwargs)

    def in_c(
        self,
        at: int,
        writes: bool,
        beside: Tuple[str, ...],
        original: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """A function in C, or one that hands the path to C."""
        if len(args) <= at:
            return original(*args, **kwargs)
        path = self._seen(args[at], not (writes and at), writes, beside)
        return original(*args[:at], path, *args[at + 1 :], **kwargs)

    def ask(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        """`os.stat` and its like: `os.path.exists` and `isfile` too."""
        if kwargs.get("dir_fd") is not None or getattr(_INSIDE, "on", False):
            return original(path, *args, **kwargs)
        with _Guard():
            frame = _caller(sys._getframe(1))
            place = self._outside.place(path) if frame is not None else None
            target = self._outside.private(place) if place else None
            if (
                place
                and self._uses.watch
                and frame is not None
                and frame.f_code.co_name not in _RESOLVING
            ):
                self._note(place, _state(target or place), frame, ASKED)
        return original(path if target is None else target, *args, **kwargs)

    def listed(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """`os.listdir` and `os.scandir`."""
        given = args[0] if args else kwargs.get("path", ".")
        if getattr(_INSIDE, "on", False) or given is None or isinstance(given, int):
            return original(*args, **kwargs)
        with _Guard():
            frame = _caller(sys._getframe(1))
            place = self._outside.place(given) if frame is not None else None
            names = self._outside.names(place) if place else None
            if place and self._uses.watch:
                self._note_names(place, names, frame)
        if place is None or names is None:
            return original(*args, **kwargs)
        text = os.fsdecode(given)
        if not os.path.isdir(text):
            return original(*args, **kwargs)
        as_given: Callable[[str], Any] = os.fsencode if isinstance(given, bytes) else str
        return (
            [as_given(item) for item in names]
            if name == "listdir"
            else Entries([_Entry(text, item) for item in names])
        )

    def change(self, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        """What changes a file by its path."""
        if kwargs.get("dir_fd") is not None:
            return original(path, *args, **kwargs)
        return original(self._seen(path, False, True), *args, **kwargs)

    def move(self, name: str, original: Any, source: Any, target: Any, **kwargs: Any) -> Any:
        """`os.rename`, `os.replace`, `os.link`: from or to a private copy."""
        if kwargs:
            return original(source, target, **kwargs)
        a, b = self._seen(source, False, True), self._seen(target, False, True)
        try:
            return original(a, b)
        except OSError as error:
            if error.errno != errno.EXDEV or (a is source) == (b is target):
                raise
        with _Guard():  # one of both is a private copy on another file system
            with _open_file(a, "rb") as reader, _open_file(b, "wb") as writer:
                while piece := reader.read(1 << 20):
                    writer.write(piece)
            if name != "link":
                _unlink(a)
        return None

    def symlink(self, original: Any, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        """`os.symlink`: only where the link lies may be a private copy's place."""
        return original(
            source,
            target if kwargs.get("dir_fd") is not None else self._seen(target, False, True),
            *args,
            **kwargs,
        )

    def _seen(self, path: Any, reads: bool, writes: bool, beside: Tuple[str, ...] = ()) -> Any:
        """The path to use in place of `path`; the use is noted."""
        if getattr(_INSIDE, "on", False):
            return path
        with _Guard():
            frame = _caller(sys._getframe(2))
            if frame is None:
                return path
            place = self._outside.place(path, machine=not writes)
            if place is None:
                return self._in_workspace(path, writes)
            copy = self._outside.private(place)
            for suffix in beside if copy else ():
                self._outside.private(place + suffix)
            if reads and self._uses.watch:
                self._note(place, digest(copy or place), frame)
            if writes:
                self._outside.wrote(place, now=True)
        if copy is None:
            return path
        return os.fsencode(copy) if isinstance(path, bytes) else copy

    def _in_workspace(self, path: Any, writes: bool) -> Any:
        """A file of the workspace: a child without the probe may have written it."""
        if not isinstance(path, (str, os.PathLike)) or not source_line.inside(
            os.path.abspath(path)
        ):
            return path
        if writes:
            self._outside.wrote(os.path.realpath(path), now=True)
            return path
        return commands.written_by_child(os.fspath(path), self._outside.wrote)

    def _note_names(
        self, place: str, names: Optional[List[str]], frame: Optional[FrameType]
    ) -> None:
        try:
            found = sorted(os.listdir(place)) if names is None else names
        except OSError as error:
            found = [type(error).__name__]
        self._note(place, "\0".join(found), frame)

    def _note(self, place: str, answer: str, frame: Optional[FrameType], about: str = "") -> None:
        """Note what came back, where it is not what this run put there itself."""
        if not busy() and not self._outside.wrote(place):
            factor = LEFTOVERS if self._outside.left(place) else NAME
            frame = source_line.nearest_frame(frame)
            self._uses.note(factor, label(place) + about, source_line.nearest(frame), answer, frame)


class _Guard:
    """What is called inside is this file's own doing. Nests."""

    def __enter__(self) -> None:
        self._was = getattr(_INSIDE, "on", False)
        _INSIDE.on = True

    def __exit__(self, *unused: Any) -> None:
        _INSIDE.on = self._was


class _Entry:
    """One entry of a folder that has private copies in it, as `os.scandir` gives them."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, os.path.join(folder, name)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return "<DirEntry %r>" % self.name

    def inode(self) -> int:
        """The inode's number."""
        return self.stat(follow_symlinks=False).st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """What `os.stat` says."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())

    def is_symlink(self) -> bool:
        """Whether it is a link."""
        return os.path.islink(self.path)


def _caller(frame: Optional[FrameType]) -> Optional[FrameType]:
    """Who called; None where the probe did, for ends of its own. Raises nothing."""
    if imports.calling_back():
        return None
    try:
        while frame is not None and _whose(frame.f_code.co_filename) == _BETWEEN:
            frame = frame.f_back
        above = frame
        while above is not None and (whose := _whose(above.f_code.co_filename)) != _TRAINING:
            if whose == _PROBE:
                return None
            above = above.f_back
    except Exception:
        return None
    return frame


@functools.lru_cache(maxsize=100_000)
def _whose(filename: str) -> int:
    """Whose code a file holds. Remembered: an import of torch asks for thousands of files, a
    hundred frames deep."""
    if filename.startswith(_BETWEEN_FILES):
        return _BETWEEN
    if filename.startswith(_PROBE_FILES):
        return _PROBE
    return _TRAINING if source_line.inside(filename) else _OTHER


def _state(path: str) -> str:
    try:
        found = _lstat(path)
    except OSError:
        return "absent"
    return "%o %d" % (found.st_mode >> 12, found.st_size if found.st_mode >> 12 == 0o10 else 0)
