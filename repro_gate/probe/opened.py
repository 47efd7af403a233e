"""Collects the files that this process opens for reading and that were there before the run: what a
rerun needs. Fed by `audit`.

Left out, so that what remains is worth a look: the interpreter with what is installed in it, the
system, the gate's own files, the run's HOME and TMPDIR, declared data, and what the run made itself
(its inode changed after the run began). Byte code stands for its source.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import sys
from typing import Any, Dict, List, Sequence, Set, Tuple

from ..trace import notebook
from ..trace.format import MAX_NAME, MAX_OPENED
from . import session, source_line
from .process import mapped_files, printable

_SYSTEM = (
    "/usr /lib /lib32 /lib64 /libx32 /bin /sbin /etc /boot /proc /sys /dev /nix/store /opt/nvidia "
    "/opt/rocm /opt/intel /opt/homebrew /System /Library /private/etc"
)
_OF_SYSTEM = {  # the system's own folders where others keep data too
    "/run": "NetworkManager booted-system current-system dbus lock log nscd opengl-driver "
    "resolvconf sssd systemd udev wrappers",
    "/var/lib": "alternatives apt ca-certificates ca-certificates-java dbus dkms dnf dpkg "
    "extrausers fontconfig locales nscd pacman python rpm snapd/lib sss systemd ucf",
    "/var/cache": "apt debconf dnf fontconfig ldconfig man nscd pacman yum",
}
_DRIVERS = "/run/nvidia"  # /run/nvidia-persistenced, /run/nvidia-container-runtime, …
_MEMORY = "/dev/shm/"  # noqa: S108  nothing is made there: what others put there is data like any other
_OF_A_VENV = ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg")
INSTALLED = ("/site-packages/", "/dist-packages/")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# paths remembered as dealt with; a training on a million files must not grow by them
_SEEN = 50_000
_EVENT = 1_000  # files in one event
_AT_ONCE = 64  # files that a forked child, which may be killed at any time, writes as they come


# A file of Hugging Face's cache is a link whose path names the commit; what it leads to does not.
_HUB = re.compile(r"/(?:models|datasets|spaces)--[^/]+/snapshots/[0-9a-f]{40}/")


class Opened:
    """The files of one process. `read` and `appended` are called inside an audit hook: they raise
    nothing and open nothing."""

    def __init__(self, config: Dict[str, Any]) -> None:
        self._workspace = os.path.realpath(config["workspace"]) + os.sep
        self._given = os.path.abspath(config["workspace"]) + os.sep
        self._started = config["started"]
        # when the first run of the gate run may have begun; None: nobody knows
        self._began = config["began"]
        own = [
            config["traces"],
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            *config["own"],
            *config["data"],
        ]
        self._own = with_separator([*interpreter(), *own])
        self._seen: Set[Any] = set()
        # files from before the run that it then changed, and whether they were an earlier run's
        self._old: Dict[str, bool] = {}
        self._found: Set[str] = set()
        self._pending: List[Tuple[str, bool, Any, bool]] = []
        self._forked = False

    def read(self, path: Any) -> None:
        """A file is about to be opened for reading. `path` is what was given: text, bytes, a path
        object, or a descriptor (left alone)."""
        with contextlib.suppress(Exception):
            if path not in self._seen and self._look(path, True):
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen.add(path)

    def changes(self, path: Any, reads: bool) -> None:
        """A file is about to be opened for writing without being emptied: what it holds is from
        before, for this and for later readers."""
        with contextlib.suppress(Exception):
            self._look(path, reads)

    def beyond(self, path: str) -> bool:
        """Whether an absolute path, free of links, lies outside of what is the run's, the
        interpreter's, the system's and declared data."""
        return not (path + os.sep).startswith(
            (self._given, self._workspace)
        ) and not self._excluded(path)

    def folder_changed(self) -> None:
        """The working directory changes: relative paths mean other files from here on."""
        self._seen.clear()

    def flush(self, current: "session.Session", last: bool) -> None:
        """Write what was found since the last time; at the `last`, also files that are mapped into
        memory (Linux): libraries and data sets that were opened without Python."""
        for path in mapped_files() if last else ():
            self.read(path)
        while self._pending:
            part, self._pending = self._pending[:_EVENT], self._pending[_EVENT:]
            current.event("opened", rows=[list(item) for item in part])

    def forked(self) -> None:
        """This is a forked child: what its parent found is its parent's to write."""
        self._pending, self._forked = [], True

    def _look(self, given: Any, reads: bool) -> bool:
        """Note a file, and return whether it is dealt with once and for all."""
        if isinstance(given, int):
            return False
        path = os.path.abspath(os.fsdecode(given))
        if self._excluded(path):
            return True
        real = path if _HUB.search(path) else _source_of(os.path.realpath(path))
        within = real.startswith(self._workspace)
        left_out = not within and (of_system(real) or (real + os.sep).startswith(self._own))
        if left_out or real in self._found:
            return True
        state = os.stat(real)  # OSError: there is no such file, and there may be one later
        if not stat.S_ISREG(state.st_mode) or not os.access(real, os.R_OK):
            return False
        left = self._old.get(real)
        if left is None and state.st_ctime >= self._started:
            return True
        if left is None:
            earlier = self._began is not None and state.st_ctime >= self._began
            left = earlier and not within and state.st_size > 0
        if reads:
            self._note(real, left)
        elif len(self._old) < MAX_OPENED:
            self._old[real] = left
        return reads

    def _excluded(self, path: str) -> bool:
        """Whether a path is left out as it is given: installed files may be links to a package
        manager's cache."""
        below = path + os.sep
        return not below.startswith((self._given, self._workspace)) and (
            of_system(path)
            or below.startswith(self._own)
            or any(part in path for part in INSTALLED)
        )

    def _note(self, real: str, left: bool) -> None:
        if len(self._found) >= MAX_OPENED:
            if "" not in self._found:
                self._found.add("")  # said once
                session.current().note(
                    "opened-not-all",
                    "more than %d files were opened; the others are not listed" % MAX_OPENED,
                )
            return
        self._found.add(real)
        inside = real.startswith(self._workspace)
        path = printable(real[len(self._workspace) :] if inside else real)
        file, line = source_line.nearest(sys._getframe(2))
        file = printable(file)
        by = {"file": file, "line": line} if file else None
        if len(path) <= MAX_NAME and len(file) <= MAX_NAME:
            self._pending.append((path, inside, by, left))
        if self._forked and (len(self._found) < _AT_ONCE or len(self._pending) >= _AT_ONCE):
            session.current().flush()


def of_system(path: str) -> bool:
    """Whether an absolute path is the operating system's, its packages' or its drivers': no place
    for a training's data."""
    below = path + os.sep
    return below.startswith(_system_folders()) and not below.startswith(_MEMORY)


@functools.lru_cache(maxsize=None)
def _system_folders() -> Tuple[str, ...]:
    some = [
        folder + os.sep + name for folder, names in _OF_SYSTEM.items() for name in names.split()
    ]
    return (*with_separator([*_SYSTEM.split(), *some]), _DRIVERS)


def _source_of(path: str) -> str:
    """The source of a file of byte code, where there is one: it decides what the byte code is."""
    if not path.endswith(".pyc"):
        return path
    folder, name = os.path.split(path)
    if os.path.basename(folder) == "__pycache__":
        folder, name = os.path.dirname(folder), name.partition(".")[0] + ".pyc"
    source = os.path.join(folder, name[:-1])
    return source if os.path.exists(source) else path


def interpreter() -> List[str]:
    """Where the interpreter and what is installed for it lie. A virtual environment may share its
    folder with a checkout."""
    folders = [sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.abspath(os.__file__))]
    for prefix in {sys.prefix, sys.exec_prefix}:
        shared = os.path.exists(os.path.join(prefix, "pyvenv.cfg"))
        folders += [os.path.join(prefix, name) for name in _OF_A_VENV] if shared else [prefix]
    return folders


def with_separator(folders: Sequence[str]) -> Tuple[str, ...]:
    """Each folder as it is written and as it is, with a separator behind it; the root of all is
    none of them."""
    both = [
        form
        for folder in folders
        if folder
        for form in (os.path.abspath(folder), os.path.realpath(folder))
    ]
    return tuple(dict.fromkeys(folder + os.sep for folder in both if folder != os.sep))


def purpose(mode: Any, flags: Any) -> Tuple[bool, bool]:
    """Return whether opening keeps what was there, and whether it may write."""
    if isinstance(mode, str):
        return "w" not in mode and "x" not in mode, any(letter in mode for letter in "wax+")
    return not flags & (os.O_TRUNC | os.O_EXCL), bool(flags & _WRITING)
