"""The temporary folder of one gate run, at the same path each time, so that training that looks at its own path does the same in each.
The path is fixed for a user and a machine: the first free of a row of slots. A slot is taken by making its folder, held
by a lock on a file in it for as long as the gate lives, and given back when it ends; one whose holder was killed is taken over.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import remove_tree, try_lock
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.ownership import let_in

SLOTS = 32
_HELD = "held"
_SAME_USER = Isolation()
_FRESH = 60.0  # seconds in which a folder without its lock file may still be somebody's who is just making it


@contextlib.contextmanager
def fixed_folder(isolation: Isolation = _SAME_USER) -> Iterator[Path]:
    """A folder of mode 0700 that nobody else uses; removed at the end whatever happens. Raises OSError where none can be made.

    A training with a user of its own may pass through it to what it is given there, and sees nothing else of it. Signals wait inside.
    Raises Inconclusive where nothing can be started in it.
    """
    base = Path(tempfile.gettempdir()).resolve()
    _require_exec(base)
    with held():
        place, lock = next(
            (found for slot in range(SLOTS) if (found := _take(base / f"repro-gate-{os.getuid()}-{slot}")) is not None), (None, -1)
        )
        if place is None:
            place = Path(tempfile.mkdtemp(prefix="repro-gate-", dir=base))
        try:
            let_in(isolation, place)
            yield place
        finally:
            remove_tree(place)
            if lock >= 0:
                os.close(lock)


def _require_exec(base: Path) -> None:
    """The runs' own `python` is a script in that folder: where it cannot be started, another interpreter would be found, without torch."""
    if os.statvfs(base).f_flag & getattr(os, "ST_NOEXEC", 0):
        mount = next(path for path in (base, *base.parents) if os.path.ismount(path))
        raise Inconclusive(
            f"the temporary folder {base} lies on {mount}, which is mounted noexec: nothing can be started in it",
            remedy=f"set TMPDIR to a folder on another file system, or `mount -o remount,exec {mount}`",
            reason_id="preflight/temporary-folder",
        )


def _take(place: Path) -> tuple[Path, int] | None:
    """The folder and the descriptor that holds it; None where it is somebody's."""
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        if not _cleared(place):
            return None
        try:
            place.mkdir(mode=0o700)
        except OSError:
            return None
    except OSError:
        return None
    lock = os.open(place / _HELD, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if not try_lock(lock):
        os.close(lock)
        return None
    return place, lock


def _cleared(place: Path) -> bool:
    """Move the folder away and remove it, where it is this user's own and nobody holds it any more.

    Its lock is held until it has been moved: whoever looks in between finds it held, or a new folder.
    """
    try:
        found = os.lstat(place)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    try:
        lock = os.open(place / _HELD, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - found.st_mtime > _FRESH and _moved_away(place)
    except OSError:
        return False
    try:
        return try_lock(lock) and _moved_away(place)
    finally:
        os.close(lock)


def _moved_away(place: Path) -> bool:
    away = Path(tempfile.mkdtemp(prefix="repro-gate-", dir=place.parent))
    try:
        place.rename(away / "abandoned")
    except OSError:
        return False
    finally:
        remove_tree(away)
    return True
