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
from repro_gate.sandbox.identity import Sandbox, as_training_user
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
    roots = private_folders(environment, checkout)
    data = tuple(data)
    top = Path(os.path.realpath(checkout))
    inner = [root for root in roots if top in root.parents]  # the runner's, inside it
    keep = [*within_reach, PACKAGE, *interpreters(environment)]
    for path in data:
        real = Path(os.path.realpath(path))
        if not leads_out(real, top) and not any(map(real.is_relative_to, inner)):
            keep.append(path)
    # A path that holds a whole root would leave it open.
    keep = [
        path for path in keep if not any(root.is_relative_to(path) for root in roots)
    ]
    with (
        held(),
        _alone(sandbox, tell),
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


def interpreters(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of the environments whose `python` the training finds: as it is named on
    PATH, and where links lead."""
    folders = list[Path]()
    for name in ("python", "python3"):
        if path := shutil.which(name, path=environment.get("PATH", os.defpath)):
            starts = os.path.abspath(path), os.path.realpath(path)
            folders += [Path(start).parent.parent for start in starts]
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = environment.get(name, "")
        if os.path.isabs(folder):
            folders.append(Path(os.path.realpath(folder)))
    return tuple(dict.fromkeys(folders))


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
def _alone(sandbox: Sandbox, tell: Callable[[str], None]) -> Iterator[None]:
    """Wait for another gate that trains as this user: each would end the other's runs.

    Raise Inconclusive where the first does not end, or where nothing can be locked.
    """
    deadline = None
    while (lock := _lock(sandbox)) is None:
        if deadline is None:
            deadline = time.monotonic() + WAIT_SECONDS
            tell(
                "waiting for another gate on this machine, which trains as user "
                f"{sandbox.uid} too"
            )
        if time.monotonic() > deadline:
            raise Inconclusive(
                f"another gate on this machine trains as user {sandbox.uid}, for more than "
                f"{WAIT_SECONDS / 60:g} minutes",
                remedy="run one after the other, or each in its own container",
                reason_id="sandbox/not-alone",
            )
        with obeyed():
            time.sleep(_LOOK_EVERY)
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
    scheme, _, address = environment.get("DOCKER_HOST", "").partition("://")
    ours = [address] if scheme == "unix" and address.startswith("/") else []
    return tuple(Path(path) for path in dict.fromkeys([*_SOCKETS, *ours]))


def private_folders(environment: Mapping[str, str], checkout: Path) -> tuple[Path, ...]:
    """Return what is made unreadable: the checkout, the runner's workspace, home and temporary
    folder, its files' folders, everything below /github, and in a container mounted secrets and a
    folder with a container engine's socket that others may connect to. Real paths of folders that
    are there."""
    folders = [checkout, *(path.parent for path in runner_files(environment))]
    for name in ("GITHUB_WORKSPACE", "HOME", "RUNNER_TEMP"):
        path = environment.get(name, "")
        folders += [Path(path)] if os.path.isabs(path) else []
    with contextlib.suppress(OSError):
        folders += [GITHUB / name for name in sorted(os.listdir(GITHUB))]
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
    `.git` folders in it. Where gate and training are one user nothing is done. Signals wait inside.
    Raise Inconclusive naming what cannot be restricted, and at the end what cannot be restored.
    """
    if not sandbox.own_user:
        yield
        return
    real = {Path(os.path.realpath(root)) for root in roots}
    keep = [Path(os.path.realpath(path)) for path in keep_open]
    changed: list[tuple[Path, os.stat_result]] = []  # in order, as it was before
    with held():
        try:
            for root in real:
                # one inside another is restricted with that
                if not any(other in root.parents for other in real):
                    for path, remaining in _to_restrict(root, keep):
                        _restrict(path, remaining, sandbox, changed)
            yield
        finally:
            # whatever could not be ended would read what is opened here
            if not processes_of(sandbox.uid or 0):
                _restore(changed)


def _to_restrict(path: Path, keep: list[Path]) -> Iterator[tuple[Path, int]]:
    """Yield what to restrict of a folder, with all that is in it but what is to be kept open, and
    the bits that others keep of each. Raise Inconclusive where one cannot be listed."""
    if path in keep:
        # a clone that is declared as data may have a credential in its `.git`
        for place, names, files in os.walk(path):
            if ".git" in (*names, *files):
                yield Path(place, ".git"), 0
            names[:] = [name for name in names if name != ".git"]
        return
    inside = [item for item in keep if path in item.parents]
    yield path, _PASS if inside else 0
    try:
        names = os.listdir(path) if inside else []
    except OSError as error:
        raise _not_restricted(path, error.strerror or str(error)) from error
    for name in names:
        if any(item.is_relative_to(path / name) for item in inside):
            yield from _to_restrict(path / name, inside)
        else:
            yield path / name, 0


def _restrict(
    path: Path,
    remaining: int,
    sandbox: Sandbox,
    changed: list[tuple[Path, os.stat_result]],
) -> None:
    """Take everything from group and others but `remaining`; give nothing. A link is left alone,
    not followed."""
    try:
        with _handle(path) as handle:
            state = os.fstat(handle)
            if stat.S_ISLNK(state.st_mode):
                return
            if state.st_uid == sandbox.uid:
                raise _not_restricted(path, "it belongs to the training's user")
            mode = stat.S_IMODE(state.st_mode)
            restricted = mode & ~(_OTHERS & ~remaining)
            if restricted != mode:
                os.chmod(f"/proc/self/fd/{handle}", restricted)
                changed.append((path, state))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _not_restricted(path, error.strerror or str(error)) from error
    if len(changed) > MOST:
        why = f"there is too much beside the declared data: more than {MOST:,} entries"
        raise _not_restricted(path, why)


def _restore(changed: list[tuple[Path, os.stat_result]]) -> None:
    """Restore every mode as it was, the last that was changed first; an entry that has been
    replaced since is left alone. Raise Inconclusive naming what cannot be restored."""
    failed = []
    for path, before in reversed(changed):
        mode = stat.S_IMODE(before.st_mode)
        try:
            with _handle(path) as handle:
                if os.path.samestat(os.fstat(handle), before):
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


@contextlib.contextmanager
def _handle(path: Path) -> Iterator[int]:
    """Name the entry itself, never what a link leads to, by a descriptor; nothing is opened, so
    sockets and pipes are as good as files."""
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
