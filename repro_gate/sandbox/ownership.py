"""Ownership of run folders: the training user's before a run, root's again and read-only after it.

Both change owners as root in trees that the training may have written to, so both are called only
while no process of its user lives (`start.end_all`), and neither follows a link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from repro_gate.files import remove_tree
from repro_gate.sandbox.identity import Sandbox

_ENTER, _READ_LATER, _READ_NEVER = 0o710, 0o440, 0o400


def chown_to_training(sandbox: Sandbox, *trees: Path) -> None:
    """Make everything in `trees` (which root made) the training's own; links themselves, not what
    they lead to."""
    if not sandbox.own_user:
        return
    waiting = [os.fspath(tree) for tree in trees]
    while waiting:
        path = waiting.pop()
        os.chown(path, sandbox.uid or -1, sandbox.gid or -1, follow_symlinks=False)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            with os.scandir(path) as found:
                waiting += [entry.path for entry in found]


def let_group_pass(sandbox: Sandbox, folder: Path) -> None:
    """Let the training's group pass through a folder of the gate's, without seeing what is in it;
    nobody else."""
    if sandbox.own_user:
        os.chown(folder, 0, sandbox.gid or -1)
        os.chmod(folder, _ENTER)


def seal(sandbox: Sandbox, folder: Path, for_later: str | tuple[str, ...]) -> None:
    """Take back what a run wrote into `folder`: root's from now on, so that no later run rewrites
    it, or learns from it what to write.

    A later run may still read files whose names end in one of `for_later`. What is no plain file of
    the training's under one name (a link, a folder, a hard link to somebody's file) is removed.
    """
    if not sandbox.own_user:
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(handle, 0, sandbox.gid or -1)
        os.fchmod(handle, _ENTER)
        for name in os.listdir(handle):
            if not _sealed(
                sandbox, name, handle, _READ_LATER if name.endswith(for_later) else _READ_NEVER
            ):
                remove_tree(folder / name)
    finally:
        os.close(handle)


def _sealed(sandbox: Sandbox, name: str, folder: int, mode: int) -> bool:
    """Seal one file by its descriptor; False where it is not one to keep."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    handle = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
    )
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != sandbox.uid or state.st_nlink != 1:
            return False
        os.fchown(handle, 0, sandbox.gid or -1)
        os.fchmod(handle, mode)
        return True
    finally:
        os.close(handle)
