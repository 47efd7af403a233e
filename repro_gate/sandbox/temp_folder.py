"""The temporary folder of one gate run, at the same path each time, so that training that looks at
its own path does the same in each.

The path is fixed for a user and a machine: the first free of a row of slots. A slot is held by a
lock on a file beside its folder for as long as the gate lives; what a gate that was killed has left
in it is removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import make_folder, own_lock, remove_tree
from repro_gate.sandbox.identity import Sandbox, let_group_pass

SLOTS = 32
_SAME_USER = Sandbox()


@contextlib.contextmanager
def fixed_folder(sandbox: Sandbox = _SAME_USER, parent: Path | None = None) -> Iterator[Path]:
    """A folder of mode 0700 that nobody else uses, in `parent` or the temporary folder; removed at
    the end whatever happens. Raises OSError where none can be made.

    A training with a user of its own may pass through it to what it is given there, and sees
    nothing else of it. Signals wait inside. Raises Inconclusive where nothing can be started in it.
    """
    base = (parent or Path(tempfile.gettempdir())).resolve()
    _require_exec(base)
    with held():
        slots = (base / f"repro-gate-{os.getuid()}-{number}" for number in range(SLOTS))
        folder, lock = next(
            ((slot, lock) for slot in slots if (lock := _take(slot)) is not None), (None, -1)
        )
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="repro-gate-", dir=base))
        try:
            let_group_pass(sandbox, folder)
            yield folder
        finally:
            remove_tree(folder)
            if lock >= 0:
                _lock_path(folder).unlink()
                os.close(lock)


def _require_exec(base: Path) -> None:
    """The runs' own `python` is a script in that folder: where it cannot be started, another
    interpreter would be found, without torch."""
    if os.statvfs(base).f_flag & getattr(os, "ST_NOEXEC", 0):
        mount = next(path for path in (base, *base.parents) if os.path.ismount(path))
        raise Inconclusive(
            f"the temporary folder {base} lies on {mount}, which is mounted noexec: nothing can be "
            "started in it",
            remedy="set TMPDIR to a folder on another file system, or `mount -o remount,exec "
            f"{mount}`",
            reason_id="preflight/temporary-folder",
        )


def _take(slot: Path) -> int | None:
    """The descriptor that holds a slot, its folder made anew; None where it is somebody's."""
    try:
        lock = own_lock(_lock_path(slot))
    except OSError:
        return None
    if lock is None:
        return None
    try:
        found = os.lstat(slot) if os.path.lexists(slot) else None
        if found is None or (stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()):
            make_folder(slot)
            return lock
    except (OSError, Inconclusive):
        pass
    _lock_path(slot).unlink()
    os.close(lock)
    return None


def _lock_path(slot: Path) -> Path:
    return slot.with_name(f"{slot.name}.lock")
