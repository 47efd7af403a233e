"""Collects the files that this process opens for reading and that were there before the run: what a
rerun needs; and what it looks for in its workspace: files that are absent, folders that it lists.
Fed by `audit`.

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
from collections.abc import Sequence
from typing import Any

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
_PROBE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# the most remembered paths, so that a million files do not fill the memory
_KNOWN = 50_000
_EVENT = 1_000  # files in one event
_AT_ONCE = 64  # files that a forked child, which may be killed at any time, writes as they come


# A file of Hugging Face's cache is a link whose path names the commit; what it leads to does not.
_HUB = re.compile(r"/(?:models|datasets|spaces)--[^/]+/snapshots/[0-9a-f]{40}/")


class Opened:
    """The files of one process. `read` and `look` are called inside an audit hook, which lets no
    exception through: they open nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        workspace = config["workspace"]
        self._workspace = os.path.realpath(workspace) + os.sep
        self._within = (os.path.abspath(workspace) + os.sep, self._workspace)
        self._started = config["started"]
        # when the first run of the gate run may have begun; None: nobody knows
        self._began = config["began"]
        own = [config["traces"], *config["own"], *config["data"]]
        self._own = with_separator([*interpreter(), *own])
        # paths that are dealt with, in this working directory
        self.known: set[Any] = set()
        # files from before the run that it then changed, and whether they were an earlier run's
        self._old: dict[str, bool] = {}
        self._files: set[str] = set()
        self._pending: list[tuple[str, bool, Any, bool, bool]] = []
        self._forked = False

    def read(self, path: Any) -> None:
        """Note a file that is about to be opened for reading. `path` is the argument of the call:
        text, bytes, a path object, or a descriptor, which is ignored."""
        with contextlib.suppress(Exception):
            if path not in self.known and self.look(path, True):
                if len(self.known) >= _KNOWN:
                    self.known.clear()
                self.known.add(path)

    def listed(self, path: Any) -> None:
        """Note a folder of the workspace that is about to be listed, whether it is there or not.
        Those that the import system and the probe list are left out."""
        with contextlib.suppress(Exception):
            # from here over the handler and the hook to whoever lists
            caller = sys._getframe(3).f_code.co_filename
            if not caller.startswith(("<frozen ", _PROBE)) and not isinstance(
                path, int
            ):
                real = os.path.realpath(os.fsdecode(path or os.curdir))
                if real.startswith(self._workspace):
                    self._note(real, True, False, sought=True)

    def beyond(self, path: str) -> bool:
        """Return whether an absolute path lies outside of what is the run's, the interpreter's, the
        system's and declared data. Installed files may be links to a package manager's cache."""
        below = path + os.sep
        is_own = below.startswith((*self._within, *self._own))
        return not (is_own or of_system(path) or installed(path))

    def flush(self, current: session.Session, last: bool) -> None:
        """Write what was found since the last time; at the `last`, also files that are mapped into
        memory (Linux): libraries and data sets that were opened without Python."""
        for path in mapped_files() if last else ():
            self.read(path)
        while self._pending:
            part = self._pending[:_EVENT]
            self._pending = self._pending[_EVENT:]
            current.event("opened", rows=part)

    def forked(self) -> None:
        """Start empty in a forked child, since the parent writes what it has found itself."""
        self._pending = []
        self._forked = True

    def look(self, item: Any, reads: bool) -> bool:
        """Note a file, and return whether it never needs to be looked at again. Not `reads`: it is
        about to be opened for writing without being emptied, and what it holds is from before, for
        this and for later readers."""
        if isinstance(item, int):
            return False
        path = os.path.abspath(os.fsdecode(item))
        if not (path.startswith(self._within) or self.beyond(path)):
            return True
        real = path
        if not _HUB.search(path):
            real = _source_of(os.path.realpath(path))
        within = real.startswith(self._workspace)
        left_out = of_system(real) or (real + os.sep).startswith(self._own)
        if (left_out and not within) or real in self._files:
            return True
        try:
            state = os.stat(real)
        except (FileNotFoundError, NotADirectoryError):  # there may be one later
            if reads and within:
                self._note(real, True, False, sought=True)
            return False
        if not stat.S_ISREG(state.st_mode):
            return False
        if not os.access(real, os.R_OK):
            return False
        changed = state.st_ctime
        if real in self._old:
            left = self._old[real]
        elif changed >= self._started:
            return True
        else:
            earlier = self._began is not None and changed >= self._began
            left = earlier and not within and state.st_size > 0
        if reads:
            self._note(real, within, left)
        elif len(self._old) < MAX_OPENED:
            self._old[real] = left
        return reads

    def _note(
        self, real: str, within: bool, left: bool, *, sought: bool = False
    ) -> None:
        key = real + os.sep * sought
        if key in self._files:
            return
        if len(self._files) >= MAX_OPENED:
            limit = (
                f"more than {MAX_OPENED} files were opened; the others are not listed"
            )
            session.current().note("opened-not-all", limit)
            return
        self._files.add(key)
        start = len(self._workspace) if within else 0
        path = printable(real[start:])
        file, line = source_line.nearest(sys._getframe(2))
        by = {"file": file, "line": line} if file else None
        if len(path) <= MAX_NAME:
            self._pending.append((path, within, by, left, sought))
        if not self._forked:
            return
        if len(self._files) < _AT_ONCE or len(self._pending) >= _AT_ONCE:
            session.current().flush()


def of_system(path: str) -> bool:
    """Return whether an absolute path is the operating system's, its packages' or its drivers': no
    place for a training's data."""
    below = path + os.sep
    if below.startswith(_MEMORY):
        return False
    return below.startswith(_system_folders())


def installed(path: str) -> bool:
    """Return whether a file is that of an installed package; those in a folder of PYTHONPATH have
    at least what describes them there."""
    places = "/site-packages/", "/dist-packages/", ".dist-info/", ".egg-info/"
    return any(place in path for place in places)


@functools.lru_cache(maxsize=None)
def _system_folders() -> tuple[str, ...]:
    folders = _SYSTEM.split()
    for folder, names in _OF_SYSTEM.items():
        folders += [f"{folder}/{name}" for name in names.split()]
    return (*with_separator(folders), _DRIVERS)


def _source_of(path: str) -> str:
    """Return the source of a byte-code file, if there is one, since the byte code is made from
    it."""
    if not path.endswith(".pyc"):
        return path
    folder, name = os.path.split(path)
    if os.path.basename(folder) == "__pycache__":
        folder = os.path.dirname(folder)
        name = name.partition(".")[0] + ".pyc"
    source = os.path.join(folder, name[:-1])
    return source if os.path.exists(source) else path


def interpreter() -> list[str]:
    """Return where the gate, the interpreter and what is installed for it lie. A virtual
    environment may share its folder with a checkout."""
    probe = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sys.base_prefix,
        sys.base_exec_prefix,
        os.path.dirname(os.path.abspath(os.__file__)),
        os.path.dirname(probe),
    ]
    for prefix in {sys.prefix, sys.exec_prefix}:
        is_venv = os.path.exists(f"{prefix}/pyvenv.cfg")
        names = _OF_A_VENV if is_venv else [""]
        folders += [os.path.join(prefix, name) for name in names]
    return folders


def with_separator(folders: Sequence[str]) -> tuple[str, ...]:
    """Return each folder as it is written and as it is, with a separator behind it; the root of all
    is none of them."""
    both: dict[str, None] = {}
    for folder in filter(None, folders):
        both[os.path.abspath(folder) + os.sep] = None
        both[os.path.realpath(folder) + os.sep] = None
    both.pop(os.sep * 2, None)
    return tuple(both)


def purpose(mode: Any, flags: Any) -> tuple[bool, bool]:
    """Return whether opening keeps what was there, and whether it may write."""
    if isinstance(mode, str):
        letters = {*mode}
        return letters.isdisjoint("wx"), not letters.isdisjoint("wax+")
    empties = flags & (os.O_TRUNC | os.O_EXCL)
    return not empties, bool(flags & _WRITING)
