"""The sandbox around all untrusted processes: what is made unreadable meanwhile, what stays within
reach, what is ended and removed.

Where gate and training are one user, nothing here does anything.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from repro_gate.errors import Inconclusive, held, obeyed
from repro_gate.files import leads_out, own_lock
from repro_gate.sandbox.cleanup import sweep
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.reexec import hide_memory
from repro_gate.sandbox.start import end_all
from repro_gate.sandbox.unreadable import private_folders, unreadable

_UMASK = 0o022  # what the gate makes for the training must be readable to another user
_LOCKS = Path("/run")
WAIT_SECONDS = 3600.0  # for another gate, with all of its runs
_LOOK_EVERY = 0.5  # seconds
PACKAGE = Path(__file__).resolve().parent.parent


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
        unreadable(sandbox, roots, _apart(keep, roots)),
    ):
        hide_memory()
        end_all(sandbox)  # what a gate that was killed has left running, and left behind
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
    return not leads_out(real, root) and not any(real.is_relative_to(other) for other in inner)


def _apart(keep: Iterable[Path], roots: Iterable[Path]) -> list[Path]:
    """Leave out paths that hold a whole folder that is to be made unreadable: they would leave it
    open."""
    return [path for path in keep if not any(root.is_relative_to(path) for root in roots)]


@contextlib.contextmanager
def _process_state() -> Iterator[None]:
    """Hold no groups beside root's (they would still read files of theirs in `as_training_user`),
    no core files, and a umask that others can read."""
    groups, umask, core = os.getgroups(), os.umask(_UMASK), resource.getrlimit(resource.RLIMIT_CORE)
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
        tell(f"waiting for another gate on this machine, which trains as user {sandbox.uid} too")
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
