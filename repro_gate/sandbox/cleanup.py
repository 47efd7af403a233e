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
import stat
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from repro_gate.errors import Inconclusive, held
from repro_gate.files import make_folder, own_lock, remove_tree
from repro_gate.sandbox.identity import Sandbox, let_group_pass
from repro_gate.sandbox.start import run_program

OPEN_TO_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108  looked through, not written to
MOST = 100_000  # entries of others that are looked at in one search
_SYSTEM_V = Path("/proc/sysvipc")
_KINDS = {"shm": "shmid", "msg": "msqid", "sem": "semid"}
_SECONDS = 20.0
_JOIN_SESSION_KEYRING = 1  # keyctl(2)
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # the system call's number
# Only its owner may remove such an object, or who has more than Docker grants: so it is done as
# that user, by a program of the gate's. It clears that user's keyring (-4), its user session
# keyring (-5) and its persistent one (KEYCTL_GET_PERSISTENT: 22) by KEYCTL_CLEAR (7), and removes
# the objects `shm:3` and the like by IPC_RMID (0).
_FORGET = """
import ctypes, os, sys
uid, keyctl = map(int, sys.argv[1:3])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
libc = ctypes.CDLL(None)
libc.syscall.restype, libc.syscall.argtypes = ctypes.c_long, [ctypes.c_long] * 4
for keyring in (-4, -5, libc.syscall(keyctl, 22, -1, -2)):
    if keyring != -1:
        libc.syscall(keyctl, 7, keyring, 0)
for kind, number in (item.split(":") for item in sys.argv[3:]):
    libc[kind + "ctl"](int(number), 0, 0)
"""
SLOTS = 32


@dataclass(frozen=True)
class Left:
    """`removed` are paths, and `shm:3` and the like; `unsearched` are folders that there was too
    much in to look through."""

    removed: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()


def sweep(sandbox: Sandbox, keep: Iterable[Path] = ()) -> Left:
    """Remove what belongs to the training's user and lies where everybody may write, but for `keep`
    (declared data).

    Where gate and training are one user nothing is done: what is whose cannot be told. Raises
    Inconclusive for what cannot be removed.
    """
    if not sandbox.own_user:
        return Left()
    objects = _forgotten(sandbox)
    declared = {os.path.realpath(path) for path in keep}
    declared |= {os.fspath(above) for path in declared for above in Path(path).parents}
    mounted = (mount.mountpoint for mount in psutil.disk_partitions(all=True))
    places = map(os.path.realpath, (*OPEN_TO_ALL, tempfile.gettempdir(), *mounted))
    waiting = deque(
        path for path, state in _states(dict.fromkeys(places)) if _is_open(state)
    )
    removed = list[str]()
    others = 0
    while waiting and others < MOST:
        folder = waiting.popleft()
        names = list[str]()
        with contextlib.suppress(OSError):
            names = os.listdir(folder)
        for path, state in _states(os.path.join(folder, name) for name in names):
            is_ours = state.st_uid == sandbox.uid and path not in declared
            # nobody left anything where nobody can write
            if is_ours and os.access(folder, os.W_OK):
                remove_tree(Path(path))
                removed.append(path)
            else:
                others += 1
                if _is_open(state):
                    waiting.append(path)
    return Left((*removed, *objects), (*waiting,))


def _states(paths: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each that is there, and what it is, links not followed."""
    for path in paths:
        with contextlib.suppress(OSError):
            yield path, os.lstat(path)


def _is_open(state: os.stat_result) -> bool:
    """Return whether it is a folder that everybody may write to."""
    return stat.S_ISDIR(state.st_mode) and bool(state.st_mode & stat.S_IWOTH)


def _forgotten(sandbox: Sandbox) -> list[str]:
    """Clear that user's keyrings, and remove its System V shared memory, queues and semaphores;
    returns these. Raise Inconclusive where one stays.

    What is started from here on has a new session keyring, or it would share one with the run
    before. Where the kernel or the container has no keyrings, the training has none either.
    """
    numbers = _KEYCTL.get(os.uname().machine, -1), _JOIN_SESSION_KEYRING, 0
    has_keys = ctypes.CDLL(None).syscall(*map(ctypes.c_long, numbers)) != -1
    objects = _objects(sandbox)
    if has_keys or objects:
        run_program(_FORGET, sandbox.uid, numbers[0], *objects, seconds=_SECONDS)
    if objects and (left := _objects(sandbox)):
        raise Inconclusive(
            f"what a run left behind cannot be removed: {', '.join(left[:5])}",
            remedy="remove it by hand (`ipcs`, `ipcrm`) and run again",
            reason_id="sandbox/left-behind",
        )
    return objects


def _objects(sandbox: Sandbox) -> list[str]:
    """Return `shm:3` and the like: made by that user, or its own by now."""
    objects = []
    for kind, number in _KINDS.items():
        with contextlib.suppress(OSError):  # a kernel without them
            table = (_SYSTEM_V / kind).read_text(encoding="ascii", errors="replace")
            head, *lines = map(str.split, table.splitlines())
            for line in lines:
                fields = dict(zip(head, line, strict=False))
                if str(sandbox.uid) in (fields.get("uid"), fields.get("cuid")):
                    objects.append(f"{kind}:{fields[number]}")
    return objects


@contextlib.contextmanager
def fixed_folder(sandbox: Sandbox, parent: Path | None) -> Iterator[Path]:
    """Make a folder of mode 0700 that nobody else uses, in `parent` or the temporary folder;
    removed at the end whatever happens. Raise OSError where none can be made.

    A training with a user of its own may pass through it to what it is given there, and sees
    nothing else of it. Signals wait inside. Raise Inconclusive where nothing can be started in it.
    """
    base = (parent or Path(tempfile.gettempdir())).resolve()
    _require_exec(base)
    # Where several machines share the parent, their locks may not be shared.
    host = f"-{os.uname().nodename}" if parent else ""
    with held(), contextlib.ExitStack() as locks:
        for number in range(SLOTS):
            folder = base / f"repro-gate-{os.getuid()}{host}-{number}"
            with contextlib.suppress(OSError, Inconclusive):
                locks.enter_context(own_lock(Path(f"{folder}.lock")))
                is_free = not os.path.lexists(folder)
                if is_free or os.lstat(folder).st_uid == os.getuid():
                    make_folder(folder)
                    break
        else:
            folder = Path(tempfile.mkdtemp(prefix="repro-gate-", dir=base))
        try:
            let_group_pass(sandbox, folder)
            yield folder
        finally:
            remove_tree(folder)


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
