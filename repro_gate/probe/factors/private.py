"""The private copies of files outside that a pinned run works on: it reads what the recording
holds, and what it writes stays its own.

A copy lies below the run's trace folder, at the file's own path; a mark beside it says that the
file was looked at, so that all processes of the run see one state. From then on the copy alone is
what is there, or is not.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
from typing import Any, Dict, List, Optional, Set

from .. import session
from ..opened import Opened
from .recording import MAX_BYTES, Recording, read_all

_lstat, _link, _mkdir, _makedirs, _unlink, _access, _listdir = (
    os.lstat,
    os.link,
    os.mkdir,
    os.makedirs,
    os.unlink,
    os.access,
    os.listdir,
)
_open, _close, _read, _write, _fchmod, _utime, _realpath = (
    os.open,
    os.close,
    os.read,
    os.write,
    os.fchmod,
    os.utime,
    os.path.realpath,
)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_MACHINE = ("/proc/", "/sys/")
_MACHINE_BYTES = 1 << 20
_ABSENT, _FILE, _FOLDER, _OTHER = b"-", b"f", b"d", b"o"
_HEADER = struct.Struct(">IQ")  # permissions, time of the last change in ns


class Outside:
    """What lies outside the run's own places. `given` is the gate's: `left`, the paths that its
    first runs left behind, and `paths`, the labels of those that are pinned; `whole`: all are.

    Of what was left the run has copies of its own. In the first run of a pair they are not there
    when it begins, in the second they are, unless they are pinned: so the pair differs as the first
    two runs of the gate did.
    """

    def __init__(
        self, config: Dict[str, Any], given: Dict[str, Any], recording: Recording, whole: bool
    ) -> None:
        self._judge = Opened(config)
        self._recording = recording
        self._began, self._started = config.get("began"), float(config.get("started", 0.0))
        self._top = os.path.join(config["traces"], "outside")
        self._whole, self._pinned = whole, frozenset(given.get("paths", ()))
        self._left = frozenset(given.get("left", ()))
        self._hidden = frozenset(
            path for path in self._left if not recording.replays or self._pins(path)
        )
        self._beside = tuple(
            {
                os.path.dirname(path) + os.sep
                for path in self._left
                if not _shared(os.path.dirname(path))
            }
        )
        self._wrote: Set[str] = set()

    @property
    def redirects(self) -> bool:
        """Whether there are private copies in this run."""
        return bool(self._whole or self._left or self._pinned)

    def place(self, given: Any, machine: bool = False) -> Optional[str]:
        """The real path of a file outside; None for any other, for a descriptor, and for what the
        machine says about itself (`/proc`, `/sys`) unless it is asked for."""
        if not isinstance(given, (str, bytes, os.PathLike)):
            return None
        path = os.path.abspath(os.fsdecode(given))
        if path.startswith(_MACHINE):
            return (
                _realpath(path)
                if machine and not path.startswith("/proc/sys/kernel/random/")
                else None
            )
        real = os.path.join(_realpath(os.path.dirname(path)), os.path.basename(path))
        if os.path.islink(real):
            real = _realpath(real)
        return (
            real
            if real != os.sep and self._judge.beyond(path) and self._judge.beyond(real)
            else None
        )

    def left(self, place: str) -> bool:
        """Whether an earlier run of this gate run left it, as far as its times say: a file that
        something else keeps writing is newer."""
        if place in self._left:
            return True
        try:
            return self._began is not None and self._began <= _lstat(place).st_ctime < self._started
        except OSError:
            return False

    def wrote(self, place: str, now: bool = False) -> bool:
        """Whether a process of this run has written the file (`now`: it is about to)."""
        mark = self._mark(place, ".wrote")
        if now and place not in self._wrote:
            self._wrote.add(place)
            self._make(mark, b"")
        return place in self._wrote or _access(mark, os.F_OK)

    def private(self, place: str) -> Optional[str]:
        """Where the run's own copy of a file outside lies, made at the first call; None where it
        has none."""
        if not self._redirected(place):
            return None
        copy, mark = self._top + place, self._mark(place, ".seen")
        try:
            state = _first_byte(mark)
            late = (
                state == _ABSENT
                and not self._is_hidden(place)
                and not _there(copy)
                and _there(place)
            )
            # late: a process without the probe has made it meanwhile, or another program
            if not state or late:
                _makedirs(os.path.dirname(copy), exist_ok=True)
                state = self._fill(place, copy, late)
                self._make(mark, state)
        except OSError:
            return None
        return None if state == _OTHER else copy

    def names(self, place: str) -> Optional[List[str]]:
        """What a folder outside holds as this run sees it; None where it sees what is there."""
        if not self._redirected(place) and not any(
            os.path.dirname(path) == place for path in self._left | self._pinned
        ):
            return None
        key = ("names", place)
        given = self._recording.given(key) if self._pins(place) else None
        real = os.fsdecode(given).split("\0") if given is not None else _names(place)
        if given is None and self._pins(place) and not self._recording.replays:
            self._recording.keep(key, os.fsencode("\0".join(real)), place, whole=True)
        kept = [name for name in real if name and not self._decided(os.path.join(place, name))]
        return sorted({*kept, *_names(self._top + place)})

    def _decided(self, place: str) -> bool:
        """Whether the run's own copy says if a path is there."""
        return self._is_hidden(place) or _first_byte(self._mark(place, ".seen")) not in (
            b"",
            _OTHER,
        )

    def _pins(self, place: str) -> bool:
        return self._whole or label(place) in self._pinned

    def _redirected(self, place: str) -> bool:
        """What lies beside a leftover, in a folder that not everybody writes to, belongs to it."""
        return place in self._left or self._pins(place) or place.startswith(self._beside)

    def _is_hidden(self, place: str) -> bool:
        beside = bool(self._hidden) and place.startswith(self._beside) and place not in self._left
        return place in self._hidden or (beside and self.left(place))

    def _fill(self, place: str, copy: str, late: bool) -> bytes:
        """Make the private copy. Returns what there was: a file, a folder, nothing, or something
        that cannot be copied."""
        if self._is_hidden(place):
            return _ABSENT
        pinned = self._pins(place) and place not in self._left
        key = ("file", label(place), late)
        content = self._recording.given(key) if pinned else None
        if content is None:
            content = _content(place)
            if (
                pinned
                and not self._recording.replays
                and not self._recording.keep(key, content, place, whole=True)
            ):
                return _OTHER
        kind = content[:1]
        if kind == _FOLDER and not _there(copy):
            _mkdir(copy)
        elif kind == _FILE:
            self._put(copy, content[1:])
        return kind if kind in (_ABSENT, _FILE, _FOLDER) else _OTHER

    def _put(self, copy: str, content: bytes) -> None:
        mode, changed = _HEADER.unpack_from(content)
        part = os.path.join(self._top, ".part.%d.%d" % (os.getpid(), threading.get_ident()))
        file = _open(part, _NEW, 0o600)
        try:
            rest = memoryview(content)[_HEADER.size :]
            while rest:
                rest = rest[_write(file, rest) :]
            _fchmod(file, 0o600 | mode & 0o777)
            _utime(file, ns=(changed, changed))
        finally:
            _close(file)
        try:
            _link(part, copy)
        except FileExistsError:
            pass  # another process of the run was quicker
        finally:
            _unlink(part)

    def _mark(self, place: str, kind: str) -> str:
        return os.path.join(
            self._top, kind, hashlib.blake2b(os.fsencode(place), digest_size=16).hexdigest()
        )

    def _make(self, mark: str, state: bytes) -> None:
        try:
            _makedirs(os.path.dirname(mark), exist_ok=True)
            file = _open(mark, os.O_WRONLY | os.O_CREAT, 0o600)
            _write(file, state)
            _close(file)
        except OSError:
            pass


def label(place: str) -> str:
    """What a path is called in a trace: itself, `/proc/self` for this process's own folder; a long
    one ends in its digest."""
    own = "/proc/%d/" % os.getpid()
    name = "/proc/self/" + place[len(own) :] if place.startswith(own) else place
    if len(name) > 170:
        name = name[:130] + hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return name.encode("utf-8", "backslashreplace").decode()


def digest(path: str) -> str:
    """A digest of what a file holds; of a large one, of its size and its two ends."""
    try:
        file = _open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return type(error).__name__
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            return "no regular file"
        found = hashlib.blake2b(read_all(file, 16 << 20), digest_size=8)
        if state.st_size > 16 << 20:
            os.lseek(file, -(1 << 20), os.SEEK_END)
            found.update(b"%d" % state.st_size + read_all(file, 1 << 20))
        return found.hexdigest()
    except OSError as error:
        return type(error).__name__
    finally:
        _close(file)


def _content(place: str) -> bytes:
    """What is at a path now, in the form of a recording. Never waits, and never reads more than a
    recording may hold."""
    try:
        state = _lstat(place)
    except OSError:
        return _ABSENT
    if stat.S_ISDIR(state.st_mode):
        return _FOLDER
    if not stat.S_ISREG(state.st_mode):
        return _OTHER
    if state.st_size > MAX_BYTES:
        session.current().note(
            "not-held-fixed", "%s: larger than a recording may be" % label(place)
        )
        return _OTHER
    try:
        file = _open(place, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return _OTHER
    try:
        most = _MACHINE_BYTES if place.startswith(_MACHINE) else MAX_BYTES
        return (
            _FILE
            + _HEADER.pack(stat.S_IMODE(state.st_mode), state.st_mtime_ns)
            + read_all(file, most)
        )
    except OSError:
        return _OTHER
    finally:
        _close(file)


def _first_byte(mark: str) -> bytes:
    """What a mark says; empty where there is none."""
    try:
        file = _open(mark, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return _read(file, 1)
    finally:
        _close(file)


def _there(path: str) -> bool:
    try:
        _lstat(path)
    except OSError:
        return False
    return True


def _names(folder: str) -> List[str]:
    try:
        return _listdir(folder)
    except OSError:
        return []


def _shared(folder: str) -> bool:
    """Whether everybody may write to a folder (`/tmp`): what lies beside a file there has nothing
    to do with it."""
    try:
        return bool(_lstat(folder).st_mode & stat.S_IWOTH)
    except OSError:
        return True
