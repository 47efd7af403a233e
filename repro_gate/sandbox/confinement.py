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
import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from repro_gate.errors import Inconclusive, held, obeyed
from repro_gate.files import leads_out, own_lock
from repro_gate.sandbox.cleanup import sweep
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.reexec import hide_memory
from repro_gate.sandbox.start import end_all, processes_of

_UMASK = 0o022  # what the gate makes for the training must be readable to another user
_LOCKS = Path("/run")
WAIT_SECONDS = 3600.0  # for another gate, with all of its runs
_LOOK_EVERY = 0.5  # seconds
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
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Keep up everything that must hold while the training's user has processes; undone at the end,
    whatever happens.

    `data` are the declared data's paths, which an untrusted spec names: inside a folder that is
    made unreadable only what lies in the checkout, outside any `.git`, stays within reach.
    `within_reach` are the gate's own choice: its temporary folder, installed environments. Signals
    wait inside. `tell` is given a line before another gate that trains as this user is waited for.
    Raise Inconclusive.
    """
    if not sandbox.own_user:
        yield
        return
    roots, data = private_folders(environment, checkout), tuple(data)
    keep = [*within_reach, PACKAGE, *interpreters(environment)]
    keep += [path for path in data if _may_stay_open(path, checkout, roots)]
    with (
        held(),
        _alone(sandbox, tell),
        _process_state(),
        unreadable(sandbox, roots, _without_roots(keep, roots)),
    ):
        hide_memory()
        end_all(
            sandbox
        )  # what a gate that was killed has left running, and left behind
        sweep(sandbox, data)
        try:
            yield
        finally:
            end_all(sandbox)
            sweep(sandbox, data)


def interpreters(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of the environments whose `python` the training finds: as it is named on
    PATH, and where links lead."""
    found = list[Path]()
    for name in ("python", "python3"):
        path = shutil.which(name, path=environment.get("PATH", os.defpath))
        for start in (os.path.abspath(path), os.path.realpath(path)) if path else ():
            found.append(Path(start).parent.parent)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = environment.get(name, "")
        if os.path.isabs(folder):
            found.append(Path(os.path.realpath(folder)))
    return tuple(dict.fromkeys(found))


def _may_stay_open(path: Path, checkout: Path, roots: Iterable[Path]) -> bool:
    """Return whether a path of the spec's is data of this checkout: not a repository's own, and not
    in a folder of the runner's inside it."""
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(checkout))
    inner = [other for other in roots if root in other.parents]
    return not leads_out(real, root) and not any(
        real.is_relative_to(other) for other in inner
    )


def _without_roots(keep: Iterable[Path], roots: Iterable[Path]) -> list[Path]:
    """Leave out paths that hold a whole folder that is to be made unreadable: they would leave it
    open."""
    return [
        path for path in keep if not any(root.is_relative_to(path) for root in roots)
    ]


@contextlib.contextmanager
def _process_state() -> Iterator[None]:
    """Hold no groups beside root's (they would still read files of theirs in `as_training_user`),
    no core files, and a umask that others can read."""
    groups, umask, core = (
        os.getgroups(),
        os.umask(_UMASK),
        resource.getrlimit(resource.RLIMIT_CORE),
    )
    try:
        os.setgroups([])
        resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))
        yield
    finally:
        os.umask(umask)
        os.setgroups(groups)
        resource.setrlimit(resource.RLIMIT_CORE, core)


@contextlib.contextmanager
def _alone(sandbox: Sandbox, tell: Callable[[str], None]) -> Iterator[None]:
    """Wait for another gate that trains as this user: each would end the other's runs.

    Raise Inconclusive where the first does not end, or where nothing can be locked.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    lock = _lock(sandbox)
    if lock is None:
        tell(
            f"waiting for another gate on this machine, which trains as user {sandbox.uid} too"
        )
    while lock is None:
        if time.monotonic() > deadline:
            raise Inconclusive(
                f"another gate on this machine trains as user {sandbox.uid}, for more than "
                f"{WAIT_SECONDS / 60:g} minutes",
                remedy="run one after the other, or each in its own container",
                reason_id="sandbox/not-alone",
            )
        with obeyed():
            time.sleep(_LOOK_EVERY)
        lock = _lock(sandbox)
    try:
        yield
    finally:
        os.close(lock)


def _lock(sandbox: Sandbox) -> int | None:
    """Lock in /run, which is root's own, else in the temporary folder; None where another gate
    holds it."""
    problem = ""
    for folder in dict.fromkeys((_LOCKS, Path(tempfile.gettempdir()))):
        try:
            return own_lock(folder / f"repro-gate-{sandbox.uid}.lock")
        except OSError as error:
            problem = f"{folder}: {error.strerror}"
    raise Inconclusive(
        f"whether another gate trains as user {sandbox.uid} cannot be known: {problem}",
        remedy="let the gate write to /run, or set TMPDIR to a folder that it may write to",
        reason_id="sandbox/not-alone",
    )


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
    host = environment.get("DOCKER_HOST", "")
    named = [host[len("unix://") :]] if host.startswith("unix:///") else []
    return tuple(Path(path) for path in dict.fromkeys([*_SOCKETS, *named]))


def private_folders(environment: Mapping[str, str], checkout: Path) -> tuple[Path, ...]:
    """Return what is made unreadable: the checkout, the runner's workspace, home and temporary
    folder, its files' folders, everything below /github, and in a container mounted secrets and a
    folder with a container engine's socket that others may connect to. Real paths of folders that
    are there."""
    named = [
        environment.get(name, "")
        for name in ("GITHUB_WORKSPACE", "HOME", "RUNNER_TEMP")
    ]
    wanted = [
        checkout,
        *(Path(name) for name in named if os.path.isabs(name)),
        *(path.parent for path in runner_files(environment)),
    ]
    with contextlib.suppress(OSError):
        wanted += [GITHUB / name for name in sorted(os.listdir(GITHUB))]
    if any(os.path.exists(path) for path in _IN_CONTAINER):
        wanted += [
            _MOUNTED_SECRETS,
            *(path.parent for path in sockets(environment) if _open_to_others(path)),
        ]
    real = dict.fromkeys(Path(os.path.realpath(path)) for path in wanted)
    return tuple(path for path in real if path.is_dir() and len(path.parts) > 1)


@contextlib.contextmanager
def unreadable(
    sandbox: Sandbox, roots: Iterable[Path], keep_open: Iterable[Path] = ()
) -> Iterator[None]:
    """Restrict `roots` to their owners; restore every mode at the end, whatever happens, unless the
    user still has processes.

    `keep_open` stays reachable where it lies inside a root, and is itself left as it is, but for
    `.git` folders in it. Where gate and training are one user nothing is done. Signals wait inside.
    Raise Inconclusive naming what cannot be restricted, and at the end what cannot be restored.
    """
    if not sandbox.own_user:
        yield
        return
    real = {Path(os.path.realpath(root)) for root in roots}
    outermost = [
        path for path in real if not any(other in path.parents for other in real)
    ]
    keep = [Path(os.path.realpath(path)) for path in keep_open]
    restrictions = _Restrictions(sandbox)
    with held():
        try:
            for root in outermost:
                restrictions.restrict(root, keep)
            yield
        finally:
            # whatever could not be ended would read what is opened here
            if not processes_of(sandbox.uid or 0):
                restrictions.restore()


class _Restrictions:
    """The modes that were changed so far, in order."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        # path, device, inode, mode before
        self._changed: list[tuple[Path, int, int, int]] = []

    def restrict(self, path: Path, keep: list[Path]) -> None:
        """Restrict a folder, with all that is in it but what is to be kept open."""
        if path in keep:
            self._restrict_repositories(path)
            return
        inside = [item for item in keep if path in item.parents]
        self._take(path, _PASS if inside else 0)
        for name in self._listed(path) if inside else ():
            if any(item.is_relative_to(path / name) for item in inside):
                self.restrict(path / name, inside)
            else:
                self._take(path / name, 0)

    def restore(self) -> None:
        """Restore every mode as it was, the last that was changed first; an entry that has been
        replaced since is left alone."""
        failed = []
        while self._changed:
            path, *inode, mode = self._changed.pop()
            try:
                with _handle(path) as handle:
                    state = os.fstat(handle)
                    if [state.st_dev, state.st_ino] == inode:
                        os.chmod(f"/proc/self/fd/{handle}", mode)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed.append(f"{path} (mode {mode:o}): {error.strerror}")
        if failed:
            raise Inconclusive(
                f"permissions cannot be restored: {'; '.join(failed[:5])}",
                remedy="set these modes by hand (`chmod`)",
                reason_id="sandbox/not-restored",
            )

    def _take(self, path: Path, leave: int) -> None:
        """Take everything from group and others but `leave`; give nothing. A link is left alone,
        not followed."""
        try:
            with _handle(path) as handle:
                state = os.fstat(handle)
                if stat.S_ISLNK(state.st_mode):
                    return
                if state.st_uid == self._sandbox.uid:
                    raise _not_restricted(path, "it belongs to the training's user")
                mode = stat.S_IMODE(state.st_mode)
                wanted = mode & ~(_OTHERS & ~leave)
                if wanted != mode:
                    os.chmod(f"/proc/self/fd/{handle}", wanted)
                    self._changed.append((path, state.st_dev, state.st_ino, mode))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _not_restricted(path, error.strerror or str(error)) from error
        if len(self._changed) > MOST:
            raise _not_restricted(
                path,
                f"there is too much beside the declared data: more than {MOST:,} entries",
            )

    def _listed(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError as error:
            raise _not_restricted(folder, error.strerror or str(error)) from error

    def _restrict_repositories(self, folder: Path) -> None:
        """Restrict each `.git`: a clone that is declared as data may have a credential in it."""
        for place, names, files in os.walk(folder):
            if ".git" in (*names, *files):
                self._take(Path(place, ".git"), 0)
            names[:] = [name for name in names if name != ".git"]


def barrier_to(sandbox: Sandbox, path: Path) -> Path | None:
    """Return the first folder on the way to `path`, itself included, that the training's user may
    not enter. Raise OSError."""
    if not sandbox.own_user:
        return None
    for folder in reversed([path, *path.parents]):
        status = os.stat(folder)
        bit = stat.S_IXOTH
        if status.st_uid == sandbox.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == sandbox.gid:
            bit = stat.S_IXGRP
        if stat.S_ISDIR(status.st_mode) and not status.st_mode & bit:
            return folder
    return None


@contextlib.contextmanager
def _handle(path: Path) -> Iterator[int]:
    """Open the entry itself, never of what a link leads to; it opens nothing, so sockets
    and pipes are as good as files."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_to_others(path: Path) -> bool:
    """Return whether anybody may write to `path` by the modes on the way to it: to connect to a
    socket is to write to it."""
    real = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        return bool(os.stat(real).st_mode & stat.S_IWOTH) and all(
            os.stat(folder).st_mode & _PASS for folder in real.parents
        )
    return False


def _not_restricted(path: Path, why: str) -> Inconclusive:
    return Inconclusive(
        f"{path} cannot be made unreadable for the training user: {why}",
        remedy="put declared data in a folder of its own, and mount the runner's folders from a "
        "file system that keeps modes",
        reason_id="sandbox/not-closed",
    )
