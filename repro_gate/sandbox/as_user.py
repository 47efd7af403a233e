"""Reading what a hostile user wrote, with that user's own rights to files.

The gate is root, and a training may put a link to `/proc/1/environ` or `/etc/shadow` where a trace
or an artifact is expected, in the middle of a path, at any moment. So the kernel is asked to judge:
inside `as_training_user` this thread's file-system user is the training's (setfsuid(2)), root's
rights to files are gone, and whatever a path leads to is at most what the training could have read
itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import NotRegular
from repro_gate.sandbox.identity import Sandbox

# an invalid user: nothing is changed, and the one in force is given
_NOBODY = ctypes.c_uint(0xFFFFFFFF)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def as_training_user(sandbox: Sandbox) -> Iterator[None]:
    """This thread sees files as the training's user does; nothing changes where that is the gate's
    own.

    Nothing is to be started inside: a process or a thread would inherit it. Signals wait inside.
    Raises Inconclusive where the kernel does not grant it.
    """
    if not sandbox.own_user:
        yield
        return
    libc = ctypes.CDLL(None)
    before_uid, before_gid = libc.setfsuid(_NOBODY), libc.setfsgid(_NOBODY)
    with held():
        try:
            _set(libc.setfsgid, sandbox.gid)
            _set(libc.setfsuid, sandbox.uid)
            yield
        finally:
            _set(libc.setfsuid, before_uid)
            _set(libc.setfsgid, before_gid)


def open_written(path: Path, sandbox: Sandbox) -> int:
    """A descriptor for reading a file that the training was to write: a regular file, no link, and
    with a user of its own: that user's, and under no other name (a hard link to somebody's file).
    Raises NotRegular, else OSError.
    """
    with as_training_user(sandbox):
        handle = os.open(path, _FLAGS)
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        problem = "is not a regular file"
    elif sandbox.own_user and state.st_uid != sandbox.uid:
        problem = "is not the training's own file"
    elif sandbox.own_user and state.st_nlink != 1:
        problem = "has more than one name"
    else:
        return handle
    os.close(handle)
    raise NotRegular(problem)


def _set(change: ctypes._NamedFuncPointer, wanted: int | None) -> None:
    """Set one id and look whether it holds: these calls report no error."""
    change(ctypes.c_uint(wanted if wanted is not None else 0xFFFFFFFF))
    if change(_NOBODY) != wanted:
        raise Inconclusive(
            f"the gate cannot look at files as user {wanted}: setfsuid was not granted",
            remedy="give the container CAP_SETUID and CAP_SETGID",
            reason_id="sandbox/own-user",
        )
