"""The sandbox of a training, as data: the user that it runs as. Made by `selection`, taken by
whatever starts a process of the training.

A run's folders are the training user's before the run (`chown_to_training`), and root's again and
read-only after it (`seal`). Both change owners as root in trees that the training may have written
to, so both are called only while no process of its user lives (`start.end_all`), and neither
follows a link.

What a hostile user wrote is read with that user's own rights to files. The gate is root, and a
training may put a link to `/proc/1/environ` or `/etc/shadow` where a trace or an artifact is
expected, in the middle of a path, at any moment. So the kernel is asked to judge: inside
`as_training_user` this thread's file-system user is the training's (setfsuid(2)), root's rights to
files are gone, and whatever a path leads to is at most what the training could have read itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import NotRegular, closing, open_regular, remove_tree, walk

# an invalid user: nothing is changed, and the one in force is returned
_NOBODY = ctypes.c_uint(0xFFFFFFFF)
SAME_USER = "same-user"
OWN_USER = "own-user"
# A user and a group, in the range that systemd leaves for those without a name (61184 … 65519),
# below what a remapped Docker maps.
UID = 64180


@dataclass(frozen=True)
class Sandbox:
    """Who the training runs as: the user `uid` and the group of the same number; 0: as the gate.
    `notes` say what is weaker than it could be, one sentence each."""

    uid: int = 0
    notes: tuple[str, ...] = ()

    @property
    def own_user(self) -> bool:
        """Return whether training is another user than the gate."""
        return self.uid != 0

    @property
    def level(self) -> str:
        """Return what stands in the report."""
        return OWN_USER if self.own_user else SAME_USER


_ENTER = 0o710
_READ_LATER = 0o440
_READ_NEVER = 0o400


def chown_to_training(sandbox: Sandbox, *trees: Path) -> None:
    """Make everything in `trees` (which root made) the training's own; links themselves, not what
    they lead to."""
    if not sandbox.own_user:
        return
    for tree in trees:
        is_folder = stat.S_ISDIR(os.lstat(tree).st_mode)
        for name in ("", *(walk(tree) if is_folder else ())):
            os.lchown(tree / name, sandbox.uid, sandbox.uid)


def let_group_pass(sandbox: Sandbox, folder: Path) -> None:
    """Let the training's group pass through a folder of the gate's, without seeing what is in it;
    nobody else."""
    if sandbox.own_user:
        os.chown(folder, 0, sandbox.uid)
        os.chmod(folder, _ENTER)


def seal(sandbox: Sandbox, folder: Path, for_later: str) -> None:
    """Take back what a run wrote into `folder`: root's from now on, so that no later run rewrites
    it, or learns from it what to write.

    A later run may still read files whose names end in `for_later`. What is no plain file of
    the training's under one name (a link, a folder, a hard link to somebody's file) is removed.
    """
    if not sandbox.own_user:
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(os.open(folder, flags)) as handle:
        os.fchown(handle, 0, sandbox.uid)
        os.fchmod(handle, _ENTER)
        for name in os.listdir(handle):
            mode = _READ_LATER if name.endswith(for_later) else _READ_NEVER
            try:
                with closing(open_written(folder / name, sandbox)) as file:
                    os.fchown(file, 0, sandbox.uid)
                    os.fchmod(file, mode)
            except OSError:
                remove_tree(folder / name)


@contextlib.contextmanager
def as_training_user(sandbox: Sandbox) -> Iterator[None]:
    """Let this thread see files as the training's user does; nothing changes where that is the
    gate's own.

    Nothing is to be started inside: a process or a thread would inherit it. Signals wait inside.
    Raise Inconclusive where the kernel does not grant it."""
    if not sandbox.own_user:
        yield
        return
    libc = ctypes.CDLL(None)
    before_uid = libc.setfsuid(_NOBODY)
    before_gid = libc.setfsgid(_NOBODY)
    with held():
        try:
            _set(libc.setfsgid, sandbox.uid)
            _set(libc.setfsuid, sandbox.uid)
            yield
        finally:
            _set(libc.setfsuid, before_uid)
            _set(libc.setfsgid, before_gid)


def open_written(path: Path, sandbox: Sandbox) -> int:
    """Return a descriptor for reading a file that the training was to write: a regular file, no
    link, and with a user of its own: that user's, and under no other name (a hard link to
    somebody's file). Raise NotRegular, else OSError."""
    with as_training_user(sandbox):
        handle = open_regular(path)
    state = os.fstat(handle)
    if sandbox.own_user and state.st_uid != sandbox.uid:
        problem = "is not the training's own file"
    elif sandbox.own_user and state.st_nlink != 1:
        problem = "has more than one name"
    else:
        return handle
    os.close(handle)
    raise NotRegular(problem)


def _set(change: ctypes._NamedFuncPointer, number: int) -> None:
    """Set one id and look whether it holds: these calls report no error."""
    change(ctypes.c_uint(number))
    if change(_NOBODY) != number:
        raise Inconclusive(
            f"the gate cannot look at files as user {number}: setfsuid was not granted",
            remedy="give the container CAP_SETUID and CAP_SETGID",
            reason_id="sandbox/own-user",
        )
