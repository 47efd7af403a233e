"""Gives a made environment over to the gate, so that no training can write to what later trainings start from.

The tree was written by pip, and by whatever code was built, as the training's user: links to elsewhere, second names of other files and
special files may be in it. It is gone through from the top: once a folder is the gate's, nobody can put anything else into it. Where gate
and training are one user only permissions are taken away, which stops mistakes and not intent. In a folder that a person named they are
given back when nobody uses the environment: in a folder that may not be written to nobody can remove anything, so a cache in the workspace
would break the runner's next checkout.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.sandbox.identity import Isolation

_MOST = 2_000_000  # files and folders; an environment with torch has some 40,000


def seal(folder: Path, isolation: Isolation) -> int:
    """Make the tree the gate's and read-only. The number of files and folders. Raises Inconclusive for what must not be in it."""
    waiting, count = [folder], 0
    while waiting:
        place = waiting.pop()
        _settle(place, isolation)
        with os.scandir(place) as found:
            entries = list(found)
        count += len(entries)
        if count > _MOST:
            raise _refused(folder, f"it holds more than {_MOST} files")
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            path = Path(entry.path)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                _settle(path, isolation)
            elif stat.S_ISLNK(status.st_mode):
                if isolation.own_user:
                    os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            else:
                what = "another name of a file that may not be its own" if stat.S_ISREG(status.st_mode) else "no file, folder or link"
                raise _refused(path, f"it is {what}")
    return count


def shut(folder: Path, isolation: Isolation) -> None:
    """Seal a kept environment again where `let_go` has opened it."""
    if not isolation.own_user and os.lstat(folder).st_mode & stat.S_IWUSR:
        seal(folder, isolation)


def let_go(folder: Path, isolation: Isolation) -> None:
    """Let the owner remove a kept environment: its folders become writable for it. Raises nothing: what cannot be opened stays closed."""
    if isolation.own_user:
        return  # sealed so already: they are root's, whom no mode holds back
    with contextlib.suppress(OSError):
        for _, _, _, place in os.fwalk(folder):
            os.fchmod(place, stat.S_IMODE(os.fstat(place).st_mode) | stat.S_IWUSR)


def _settle(path: Path, isolation: Isolation) -> None:
    """A file or folder: the gate's, readable for all where the training is another user, writable for nobody (root apart). A folder of
    root's keeps its owner's part: whoever it is given to later, with the workspace that it lies in, has to be able to remove it."""
    if isolation.own_user:
        os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise _refused(path, "it became a link while it was looked at")
    mode = stat.S_IMODE(status.st_mode) & 0o555
    if isolation.own_user:
        mode |= 0o755 if stat.S_ISDIR(status.st_mode) else 0o555 if mode & 0o111 else 0o444
    os.chmod(path, mode)


def _refused(path: Path, why: str) -> Inconclusive:
    return Inconclusive(
        f"env.install: {path} was left by the install, and {why}",
        remedy="lock wheels in place of source archives, whose code may leave anything",
        reason_id="install/left-behind",
    )
