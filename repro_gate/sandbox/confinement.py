"""The sandbox around all untrusted processes: what is made unreadable meanwhile, what stays within
reach, what is ended and removed.

Where gate and training are one user, nothing here does anything.

The runner mounts its own folders into the container with modes for everybody: its file commands,
the event, a home, the checkout with the credential in its `.git/config`. What is taken is the
group's and the others' part of a mode, never the owner's (the runner's user keeps access all the
time, so even a gate that was killed leaves the next job working), and each mode is restored
exactly. Declared data inside such a folder stays reachable where others could pass before: the
folders that lead to it may be passed, not listed, and all else in them is restricted one by one. No
permission is ever added.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.files import closing, is_below, leads_out, own_lock, walk
from repro_gate.sandbox.cleanup import sweep
from repro_gate.sandbox.identity import Sandbox, as_training_user
from repro_gate.sandbox.reexec import hide_memory
from repro_gate.sandbox.start import end_all, processes_of

_UMASK = 0o022  # what the gate makes for the training must be readable to another user
_LOCKS = "/run"
PACKAGE = Path(__file__).resolve().parent.parent
GITHUB = Path("/github")  # where the runner mounts its folders into a container action
FILE_COMMANDS = (
    "GITHUB_OUTPUT",
    "GITHUB_ENV",
    "GITHUB_PATH",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
)
MOST = 20_000  # entries restricted one by one, beside declared data
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PASS = stat.S_IXOTH
# where Docker and Kubernetes mount theirs, readable to everybody
_MOUNTED_SECRETS = Path("/run/secrets")
_IN_CONTAINER = ("/.dockerenv", "/run/.containerenv")
_SOCKETS = (
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
)


@contextlib.contextmanager
def confined(
    sandbox: Sandbox,
    environment: Mapping[str, str],
    checkout: Path,
    data: Iterable[Path] = (),
    within_reach: Iterable[Path] = (),
) -> Iterator[None]:
    """Keep up everything that must hold while the training's user has processes; undone at the end,
    whatever happens.

    `data` are the declared data's paths, which an untrusted spec names: inside a folder that is
    made unreadable only what lies in the checkout, outside any `.git`, stays within reach.
    `within_reach` are the gate's own choice: its temporary folder, installed environments. Signals
    wait inside. Raise Inconclusive, also where another gate trains as this user.
    """
    if not sandbox.own_user:
        yield
        return
    roots = private_folders(environment, checkout)
    data = tuple(data)
    top = Path(os.path.realpath(checkout))
    # the runner's, inside it
    inner = [os.fspath(root) for root in roots if top in root.parents]
    declared = (
        path
        for path in data
        if not leads_out(path, top) and not is_below(os.path.realpath(path), inner)
    )
    # A path that holds a whole root would leave it open.
    keep = [
        path
        for path in (*within_reach, PACKAGE, *interpreters(environment), *declared)
        if not any(root.is_relative_to(path) for root in roots)
    ]
    with (
        held(),
        _alone(sandbox),
        _process_state(),
        unreadable(sandbox, roots, keep),
    ):
        hide_memory()
        # what a gate that was killed has left running, and left behind
        end_all(sandbox)
        sweep(sandbox, data)
        try:
            yield
        finally:
            end_all(sandbox)
            sweep(sandbox, data)


def interpreters(environment: Mapping[str, str]) -> set[Path]:
    """Return the folders of the environments whose `python` the training finds: as it is named on
    PATH, and where links lead."""
    search = environment.get("PATH", os.defpath)
    paths = {shutil.which(name, path=search) for name in ("python", "python3")}
    return {
        Path(resolve(path)).parent.parent
        for path in paths
        if path
        for resolve in (os.path.abspath, os.path.realpath)
    }


@contextlib.contextmanager
def _process_state() -> Iterator[None]:
    """Hold no groups beside root's (they would still read files of theirs in `as_training_user`),
    no core files, and a umask that others can read."""
    groups = os.getgroups()
    umask = os.umask(_UMASK)
    core = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        os.setgroups([])
        resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))
        yield
    finally:
        os.umask(umask)
        os.setgroups(groups)
        resource.setrlimit(resource.RLIMIT_CORE, core)


@contextlib.contextmanager
def _alone(sandbox: Sandbox) -> Iterator[None]:
    """Hold a lock in /run, which is root's own, else in the temporary folder: another gate that
    trains as this user would end our runs. Raise Inconclusive where it cannot be had."""
    folder = _LOCKS if os.access(_LOCKS, os.W_OK) else tempfile.gettempdir()
    path = Path(folder, f"repro-gate-{sandbox.uid}.lock")
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(own_lock(path))
        except OSError as error:
            raise Inconclusive(
                f"another gate may be training as user {sandbox.uid} on this machine: "
                f"{path}: {error.strerror}",
                remedy="run one after the other, or each in its own container, and let the gate "
                "write to /run or TMPDIR",
                reason_id="sandbox/not-alone",
            ) from error
        yield


# ---- what is made unreadable


def runner_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the runner's own files that this job was told of: the event, and the files that
    commands are written to."""
    names = ("GITHUB_EVENT_PATH", *FILE_COMMANDS)
    return tuple(
        Path(os.path.abspath(environment[name]))
        for name in names
        if environment.get(name)
    )


def sockets(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where container engines listen; whoever may connect there is root on the host."""
    scheme, _, address = environment.get("DOCKER_HOST", "").partition("://")
    ours = [address] if scheme == "unix" and address.startswith("/") else []
    return tuple(Path(path) for path in dict.fromkeys([*_SOCKETS, *ours]))


def private_folders(environment: Mapping[str, str], checkout: Path) -> tuple[Path, ...]:
    """Return what is made unreadable: the checkout, the runner's workspace, home and temporary
    folder, its files' folders, everything below /github, and in a container mounted secrets and a
    folder with a container engine's socket that others may connect to. Real paths of folders that
    are there."""
    folders = [checkout, *(path.parent for path in runner_files(environment))]
    named = (
        environment.get(name, "")
        for name in ("GITHUB_WORKSPACE", "HOME", "RUNNER_TEMP")
    )
    folders += [*map(Path, filter(os.path.isabs, named)), *sorted(GITHUB.glob("*"))]
    if any(map(os.path.exists, _IN_CONTAINER)):
        listening = filter(_open_to_others, sockets(environment))
        folders += [_MOUNTED_SECRETS, *(path.parent for path in listening)]
    real = dict.fromkeys(Path(os.path.realpath(path)) for path in folders)
    return tuple(path for path in real if path.is_dir() and len(path.parts) > 1)


@contextlib.contextmanager
def unreadable(
    sandbox: Sandbox, roots: Iterable[Path], keep_open: Iterable[Path] = ()
) -> Iterator[None]:
    """Restrict `roots` to their owners; restore every mode at the end, whatever happens, unless the
    user still has processes.

    `keep_open` stays reachable where it lies inside a root, and is itself left as it is, but for
    `.git` folders in it. Signals wait inside. Raise Inconclusive naming what cannot be restricted,
    and at the end what cannot be restored.
    """
    real = {Path(os.path.realpath(root)) for root in roots}
    keep = [Path(os.path.realpath(path)) for path in keep_open]
    entries = (
        entry
        for root in real
        # one inside another is restricted with that
        if not any(other in root.parents for other in real)
        for entry in _to_restrict(root, keep)
    )
    path = Path()
    with held(), contextlib.ExitStack() as restored:
        try:
            for number, (path, remaining) in enumerate(entries):
                if number > MOST:
                    why = (
                        f"there is too much beside declared data: over {MOST:,} entries"
                    )
                    raise OSError(errno.E2BIG, why)
                _restrict(path, remaining, sandbox, restored)
        except OSError as error:
            raise Inconclusive(
                f"{path} cannot be made unreadable for the training user: {error.strerror}",
                remedy="put declared data in a folder of its own, and mount the runner's folders "
                "from a file system that keeps modes",
                reason_id="sandbox/not-closed",
            ) from error
        try:
            yield
        finally:
            # What could not be ended would read what is opened here, so it stays closed.
            if processes_of(sandbox.uid):
                restored.pop_all()


def _to_restrict(path: Path, keep: list[Path]) -> Iterator[tuple[Path, int]]:
    """Yield what to restrict of a folder, with all that is in it but what is to be kept open, and
    the bits that others keep of each. Raise OSError where one cannot be listed."""
    if path in keep:
        # a clone that is declared as data may have a credential in its `.git`
        found = walk(path) if path.is_dir() else ()
        names = (name.rstrip("/") for name in found)
        yield from ((path / it, 0) for it in names if os.path.basename(it) == ".git")
        return
    inside = [item for item in keep if path in item.parents]
    yield path, _PASS if inside else 0
    for name in os.listdir(path) if inside else ():
        if any(item.is_relative_to(path / name) for item in inside):
            yield from _to_restrict(path / name, inside)
        else:
            yield path / name, 0


def _restrict(
    path: Path, remaining: int, sandbox: Sandbox, restored: contextlib.ExitStack
) -> None:
    """Take everything from group and others but `remaining`; give nothing. A link is left alone,
    not followed. Raise OSError."""
    with contextlib.suppress(FileNotFoundError), _entry(path) as handle:
        state = os.fstat(handle)
        mode = stat.S_IMODE(state.st_mode)
        restricted = mode & ~(_OTHERS & ~remaining)
        if stat.S_ISLNK(state.st_mode):
            return
        if state.st_uid == sandbox.uid:
            raise PermissionError(errno.EPERM, "it belongs to the training's user")
        if restricted != mode:
            os.chmod(f"/proc/self/fd/{handle}", restricted)
            restored.callback(_restore, path, state)


def _restore(path: Path, before: os.stat_result) -> None:
    """Restore a mode as it was; an entry that has been replaced since is left alone. Raise
    Inconclusive where it cannot be restored."""
    mode = stat.S_IMODE(before.st_mode)
    try:
        with contextlib.suppress(FileNotFoundError), _entry(path) as handle:
            if os.path.samestat(os.fstat(handle), before):
                os.chmod(f"/proc/self/fd/{handle}", mode)
    except OSError as error:
        raise Inconclusive(
            f"permissions of {path} cannot be restored: {error.strerror}",
            remedy=f"set its mode by hand (`chmod {mode:o}`), and see what lies beside it",
            reason_id="sandbox/not-restored",
        ) from error


def _entry(path: Path) -> contextlib.AbstractContextManager[int]:
    """Name the entry itself, never what a link leads to, by a descriptor; nothing is opened, so
    sockets and pipes are as good as files."""
    return closing(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))


def barrier_to(sandbox: Sandbox, path: Path) -> Path | None:
    """Return the first folder on the way to `path`, itself included, that the training's user may
    not enter. Raise OSError."""
    with as_training_user(sandbox):
        for folder in reversed([path, *path.parents]):
            try:
                os.stat(os.path.join(folder, "."))
            except PermissionError:
                return folder
    return None


def _open_to_others(path: Path) -> bool:
    """Return whether anybody may write to `path` by the modes on the way to it: to connect to a
    socket is to write to it."""
    real = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        return bool(os.stat(real).st_mode & stat.S_IWOTH) and all(
            os.stat(folder).st_mode & _PASS for folder in real.parents
        )
    return False
