"""The gate run's temporary folder, and what the training's user left outside the folders that it
was given: found and removed, so that no run tells the next one anything.

The folder is at the same path each time, so that training that looks at its own path does the same
in each run: the first free of a row of slots, fixed for a user and a machine. A slot is held by a
lock on a file beside its folder for as long as the gate lives; what a gate that was killed has left
in it is removed. Looked through for leftovers are the folders that everybody may write to, the
kernel's own objects between processes (System V), and its keyrings.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import make_folder, own_lock, remove_tree
from repro_gate.sandbox.identity import Sandbox, let_group_pass
from repro_gate.sandbox.start import run_program

OPEN_TO_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108  looked through, not written to
MOST = 100_000  # entries of others that are looked at in one search
_MOUNTS = Path("/proc/self/mountinfo")
_SYSTEM_V = Path("/proc/sysvipc")
_KINDS = {"shm": "shmid", "msg": "msqid", "sem": "semid"}
_SECONDS = 20.0
_JOIN_SESSION_KEYRING = 1  # keyctl(2)
# Only its owner may remove such an object, or who has more than Docker grants: so it is done as
# that user, by a program of the gate's.
_AS_USER = """
import ctypes, os, sys
uid, gid = map(int, sys.argv[1:3])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
"""
_REMOVE = """
libc, IPC_RMID = ctypes.CDLL(None), 0
for kind, number in (item.split(":") for item in sys.argv[3:]):
    if kind == "sem":
        libc.semctl(int(number), 0, IPC_RMID)
    else:
        getattr(libc, kind + "ctl")(int(number), IPC_RMID, None)
"""
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # the system call's number
# keyctl(2): KEYCTL_CLEAR (7) of that user's keyring (-4), its user session keyring (-5) and its
# persistent one (KEYCTL_GET_PERSISTENT: 22).
_FORGET = """
call, keyctl = ctypes.CDLL(None).syscall, int(sys.argv[3])
call.restype, call.argtypes = ctypes.c_long, [ctypes.c_long] * 4
for keyring in (-4, -5, call(keyctl, 22, -1, -2)):
    if keyring != -1:
        call(keyctl, 7, keyring, 0)
"""
SLOTS = 32
_SAME_USER = Sandbox()


@dataclass(frozen=True)
class Left:
    """`removed` are paths, and `shm 3` and the like; `unsearched` are folders that there was too
    much in to look through."""

    removed: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()


def sweep(sandbox: Sandbox, keep: Iterable[Path] = ()) -> Left:
    """Remove what belongs to the training's user and lies where everybody may write, but for `keep`
    (declared data).

    Where gate and training are one user nothing is done: what is whose cannot be told. Raises
    Inconclusive for what cannot be removed.
    """
    if not sandbox.own_user or not sandbox.uid:
        return Left()
    _forget_keys(sandbox)
    declared = {Path(os.path.realpath(path)) for path in keep}
    declared |= {above for path in declared for above in path.parents}
    removed = list[str]()
    others = 0
    waiting = deque(_open_folders())
    while waiting and others < MOST:
        folder = waiting.popleft()
        for path, state in _entries(folder):
            is_ours = state.st_uid == sandbox.uid and path not in declared
            # nobody left anything where nobody can write
            if is_ours and os.access(folder, os.W_OK):
                remove_tree(path)
                removed.append(os.fspath(path))
            else:
                others += 1
                if stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_IWOTH:
                    waiting.append(path)
    return Left((*removed, *_objects(sandbox)), tuple(map(os.fspath, waiting)))


def _open_folders() -> list[Path]:
    """Return real paths of the folders to begin with: the usual ones, and every mounted one, that
    everybody may write to."""
    candidates = [*OPEN_TO_ALL, tempfile.gettempdir()]
    with contextlib.suppress(OSError):
        table = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        # a blank in a path stands there as `\040`
        octal = partial(re.sub, r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)))
        candidates += [octal(line.split(" ")[4]) for line in table.splitlines()]
    folders = []
    for path in dict.fromkeys(map(os.path.realpath, candidates)):
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IWOTH:
                folders.append(Path(path))
    return folders


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield folder / name, os.lstat(folder / name)


def _objects(sandbox: Sandbox) -> tuple[str, ...]:
    """Remove the System V shared memory, queues and semaphores of that user. Raise Inconclusive
    where one stays."""
    objects = _listed(sandbox)
    if not objects:
        return ()
    _run_as_user(sandbox, _REMOVE, *objects)
    left = _listed(sandbox)
    if left:
        raise Inconclusive(
            f"what a run left behind cannot be removed: {', '.join(left[:5]).replace(':', ' ')}",
            remedy="remove it by hand (`ipcs`, `ipcrm`) and run again",
            reason_id="sandbox/left-behind",
        )
    return tuple(item.replace(":", " ") for item in objects)


def _run_as_user(sandbox: Sandbox, program: str, *arguments: object) -> None:
    ids = sandbox.uid, sandbox.gid
    run_program(_AS_USER + program, *ids, *arguments, seconds=_SECONDS)


def _forget_keys(sandbox: Sandbox) -> None:
    """Clear the keyrings of that user. What is started from here on has a new session keyring, or
    it would share one with the run before.

    Where the kernel or the container has no keyrings, the training has none either.
    """
    keyctl = _KEYCTL.get(os.uname().machine)
    if keyctl is None:
        return
    call = ctypes.CDLL(None).syscall
    if call(*map(ctypes.c_long, (keyctl, _JOIN_SESSION_KEYRING, 0))) != -1:
        _run_as_user(sandbox, _FORGET, keyctl)


def _listed(sandbox: Sandbox) -> list[str]:
    """Return `shm:3` and the like: made by that user, or its own by now."""
    listed = []
    for kind, number in _KINDS.items():
        with contextlib.suppress(OSError):  # a kernel without them
            table = (_SYSTEM_V / kind).read_text(encoding="ascii", errors="replace")
            head, *lines = map(str.split, table.splitlines())
            for line in lines:
                fields = dict(zip(head, line, strict=False))
                if str(sandbox.uid) in (fields.get("uid"), fields.get("cuid")):
                    listed.append(f"{kind}:{fields[number]}")
    return listed


@contextlib.contextmanager
def fixed_folder(
    sandbox: Sandbox = _SAME_USER, parent: Path | None = None
) -> Iterator[Path]:
    """Make a folder of mode 0700 that nobody else uses, in `parent` or the temporary folder;
    removed at the end whatever happens. Raise OSError where none can be made.

    A training with a user of its own may pass through it to what it is given there, and sees
    nothing else of it. Signals wait inside. Raise Inconclusive where nothing can be started in it.
    """
    base = (parent or Path(tempfile.gettempdir())).resolve()
    _require_exec(base)
    with held():
        lock = None
        for number in range(SLOTS):
            folder = base / f"repro-gate-{os.getuid()}-{number}"
            if (lock := _take(folder)) is not None:
                break
        else:
            folder = Path(tempfile.mkdtemp(prefix="repro-gate-", dir=base))
        try:
            let_group_pass(sandbox, folder)
            yield folder
        finally:
            remove_tree(folder)
            if lock is not None:
                _lock_path(folder).unlink()
                os.close(lock)


def _require_exec(base: Path) -> None:
    """Raise Inconclusive where nothing can be started: the runs' own `python` is a script in that
    folder, and another interpreter would be found, without torch."""
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
    """Return the descriptor that holds a slot, its folder made anew; None where it is
    somebody's."""
    try:
        lock = own_lock(_lock_path(slot))
    except OSError:
        return None
    if lock is None:
        return None
    with contextlib.suppress(OSError, Inconclusive):
        left = os.lstat(slot) if os.path.lexists(slot) else None
        if left is None or (stat.S_ISDIR(left.st_mode) and left.st_uid == os.getuid()):
            make_folder(slot)
            return lock
    _lock_path(slot).unlink()
    os.close(lock)
    return None


def _lock_path(slot: Path) -> Path:
    return slot.with_name(f"{slot.name}.lock")
