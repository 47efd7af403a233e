"""What the training may not read, and how that is kept from it for as long as untrusted code runs
as a user of its own.

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
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from repro_gate.errors import Inconclusive, held
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.start import processes_of

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


def runner_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the runner's own files that this job was told of: the event, and the files that
    commands are written to."""
    names = ("GITHUB_EVENT_PATH", *FILE_COMMANDS)
    return tuple(
        Path(os.path.abspath(environment[name])) for name in names if environment.get(name)
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
    named = [environment.get(name, "") for name in ("GITHUB_WORKSPACE", "HOME", "RUNNER_TEMP")]
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
    outermost = [path for path in real if not any(other in path.parents for other in real)]
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
                path, f"there is too much beside the declared data: more than {MOST:,} entries"
            )

    def _listed(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError as error:
            raise _not_restricted(folder, error.strerror or str(error)) from error

    def _restrict_repositories(self, kept: Path) -> None:
        """Restrict each `.git`: a clone that is declared as data may have a credential in it."""
        for folder, names, files in os.walk(kept):
            if ".git" in (*names, *files):
                self._take(Path(folder, ".git"), 0)
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
