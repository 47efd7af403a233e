"""`env.install`: what the lockfile pins, installed by uv into a fresh environment on top of the
Python that the gate finds.

uv runs as a user that is neither the gate nor the training, so no training can write to the
environment or to uv's cache. Only wheels go through the cache that later gate runs use, since
installing one runs no code of it; what has to be built is built as another user.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from uv import find_uv_bin

from repro_gate.data.cache import default_cache_path
from repro_gate.errors import Inconclusive, UsageError, held
from repro_gate.escape import and_more, for_terminal
from repro_gate.files import Unreadable, read_text, remove_tree, try_lock
from repro_gate.install.base_python import base_of, double_scripts, show_base
from repro_gate.install.lockfiles import Lock, applies, read_lock, same_version
from repro_gate.install.requirements import MAX_BYTES, LockfileError
from repro_gate.install.uv import (
    NoWheel,
    holds_credentials,
    install_command,
    pip_settings,
    run,
    uv_environment,
)
from repro_gate.runs.interpreter import training_interpreter
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.ownership import chown_to_training
from repro_gate.sandbox.unreadable import barrier_to
from repro_gate.spec.model import Spec

SYSTEM_CACHE = Path("/var/cache/repro-gate")
# users above the training's: one writes the cache and runs no code of a distribution, one builds
_INSTALLER, _BUILDER = (
    10,
    20,
)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HASHED = "lock with hashes: `uv pip compile --generate-hashes pyproject.toml -o requirements.lock`"
_EXPORT = {
    "uv.lock": "`uv export --format requirements-txt --no-emit-project -o requirements.lock`",
    "poetry.lock": "`poetry export --format requirements.txt -o requirements.lock` (plugin "
    "poetry-plugin-export)",
    "pdm.lock": "`pdm export --format requirements -o requirements.lock`",
    "pylock.toml": "`uv pip compile --generate-hashes pyproject.toml -o requirements.lock`",
}
_CONSTRAINTS = re.compile(r"\s*(?:-c|--constraint)(?:[\s=]|$)")
_SOURCES = re.compile(r"--no-binary(?:[\s=]|$)", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")  # as pip and uv have it
_FIND_LINKS = re.compile(r"^([ \t]*(?:-f|--find-links)[ \t=]+)(?!/|\w+://)(\S+)", re.MULTILINE)


@contextlib.contextmanager
def installed(
    spec: Spec,
    root: Path,
    outer: Mapping[str, str],
    sandbox: Sandbox,
    *,
    cache_root: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Mapping[str, str]]:
    """The environment that trainings are started from: `outer`, with the locked environment first
    on PATH where `env.install` asks for it.

    `root` is the checkout's; `cache_root` a folder that a person named. `tell` is given a line that
    is safe to print before anything that takes long. Raises UsageError for a lock that cannot be
    installed from, Inconclusive where the install fails.
    """
    if not spec.env.install:
        yield outer
        return
    if "PATH" in spec.train.env:
        message = (
            "env.install: train.env.PATH would hide the environment that the lock is installed into"
        )
        raise UsageError(
            message,
            remedy="take PATH out of train.env, or leave env.install out",
            reason_id="install/path",
        )
    lock, texts = wanted(spec, root)
    with held(), _own_folder(environments_root(outer, cache_root, sandbox)) as place:
        tell(
            f"installing what {for_terminal(spec.env.lockfile or '', 200)} pins ({len(lock.pins)})"
        )
        _make(place, spec, lock, texts, outer, sandbox)
        environment = {name: value for name, value in outer.items() if name != "PYTHONHOME"}
        path = os.pathsep.join([str(place / "venv" / "bin"), outer.get("PATH", os.defpath)])
        yield {**environment, "PATH": path, "VIRTUAL_ENV": str(place / "venv")}


def wanted(spec: Spec, root: Path) -> tuple[Lock, dict[str, str]]:
    """What `env.lockfile` pins, and the text of it and of the files that it includes, by their
    paths in the checkout. Raises UsageError for a lock that cannot be read, of another format, or
    that leaves something open."""
    declared, root = spec.env.lockfile or "", Path(os.path.realpath(root))
    try:
        lock = read_lock(
            Path(os.path.normpath(Path(os.path.realpath(spec.path.parent)) / declared)), root
        )
        if lock.kind != "requirements":
            remedy = (
                f"write a requirements file with {_EXPORT[lock.kind]}, and name it in env.lockfile"
            )
            raise _refused(
                f"{declared} is a {lock.kind}, and a requirements file is installed from", remedy
            )
        if lock.faults:
            more = f" ({and_more(len(lock.faults) - 1)})" if len(lock.faults) > 1 else ""
            raise _refused(f"{for_terminal(lock.faults[0], 300)}{more}", _HASHED)
        texts = {name: read_text(root / name, root, MAX_BYTES) for name in lock.files}
    except (LockfileError, Unreadable) as error:
        raise _refused(str(error), "commit the lockfile, or correct env.lockfile") from None
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{for_terminal(name, 200)}:{number}"
            if _CONSTRAINTS.match(line):
                remedy = (
                    "take the line out: a lock of all distributions leaves nothing to constrain"
                )
                raise _refused(f"{place}: constraints are not read", remedy)
            if _VARIABLE.search(line):
                # It would be filled in: an index of the lock's own could be sent what an index of
                # the workflow's is opened with.
                raise _refused(
                    f"{place}: variables are not filled in",
                    "name the index in PIP_EXTRA_INDEX_URL, in the workflow",
                )
    return lock, {
        name: _FIND_LINKS.sub(rf"\1{root / os.path.dirname(name)}/\2", text)
        for name, text in texts.items()
    }


def environments_root(
    environment: Mapping[str, str], cache_root: Path | None, sandbox: Sandbox
) -> Path:
    """The folder that holds uv's cache and the environments in use, made where it is missing.

    `cache_root` is what a person named. Else it is the gate's cache below HOME; that is closed to
    others, so a training with a user of its own has its environments in /var/cache. Raises
    UsageError or Inconclusive where the training's user could not get there.
    """
    home = default_cache_path(environment)
    root = cache_root or (
        SYSTEM_CACHE if sandbox.own_user else home.parent if home is not None else None
    )
    if root is None:
        raise _unusable("there is no HOME and no XDG_CACHE_HOME to keep it below")
    folder = Path(os.path.abspath(root)) / "environments"
    try:
        if not root.exists():
            root.mkdir(parents=True, mode=0o700)
            root.chmod(0o755 if sandbox.own_user else 0o700)
        folder.mkdir(exist_ok=True)
        if not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
        status = os.lstat(folder)
    except OSError as error:
        raise _unusable(f"{folder} cannot be made: {error.strerror or error}") from None
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid not in (os.geteuid(), 0)
        or status.st_mode & _OTHERS_WRITE
    ):
        raise _unusable(
            f"{folder} belongs to user {status.st_uid} with mode "
            f"{stat.S_IMODE(status.st_mode):04o}, so others may write to it"
        )
    closed = barrier_to(sandbox, folder)
    if closed is not None:
        message = (
            f"env.install: the cache folder {root} cannot be entered by the training's user "
            f"{sandbox.uid}: {closed} is closed to it"
        )
        remedy = f"name a cache folder that every user may enter, or run `chmod o+x {closed}`"
        raise UsageError(message, remedy=remedy, reason_id="install/cache")
    return folder


@contextlib.contextmanager
def _own_folder(root: Path) -> Iterator[Path]:
    """A folder below `root` for this gate run alone: the first that no living gate holds, emptied
    of what a killed one left in it."""
    for number in itertools.count():
        try:
            lock = os.open(
                root / f"{number}.lock",
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
            )
        except OSError as error:
            raise _unusable(f"{root} cannot be written to: {error.strerror or error}") from None
        place = root / str(number)
        try:
            if not try_lock(lock):
                continue
            remove_tree(place)
            place.mkdir()
            place.chmod(0o755)
            try:
                yield place
            finally:
                remove_tree(place)
            return
        finally:
            os.close(lock)


def _make(
    place: Path,
    spec: Spec,
    lock: Lock,
    texts: Mapping[str, str],
    outer: Mapping[str, str],
    sandbox: Sandbox,
) -> None:
    """The environment at `place / "venv"`: from wheels, else, where one has to be built and no
    password could be read, anew with builds."""
    settings, shared = pip_settings(outer), place.parent / "uv"
    secret = holds_credentials(uv_environment(outer, settings, place, shared))
    from_source = any(_SOURCES.search(text) for text in texts.values())
    if from_source and secret:
        raise UsageError(
            f"env.install: {spec.env.lockfile} asks for source archives (--no-binary), whose code "
            "could read what the index is opened with",
            remedy="take --no-binary out of the lock, or give the index without credentials",
            reason_id="install/lockfile",
        )
    for (
        name,
        text,
        # as they were read: somebody may change the checkout meanwhile, and another user reads them
    ) in texts.items():
        _write(place / "lock" / name, text, place)
    requirements = place / "lock" / lock.files[0]
    _write(place / "names.json", json.dumps(sorted({pin.name for pin in lock.pins})), place)
    python = training_interpreter(spec, {"PATH": os.defpath, **outer})
    uv, base = _reachable_uv(place, sandbox), base_of(python, place / "names.json", outer, sandbox)
    excluded = [
        name
        for name, version in base.installed.items()
        if version and _pins(lock, name, version, base.python)
    ]
    _write(place / "excluded.txt", "".join(f"{name}\n" for name in sorted(excluded)), place)
    folder = (
        place
        if sandbox.own_user
        else Path(os.path.realpath(spec.path.parent)) / os.path.dirname(spec.env.lockfile or "")
    )
    for builds in (True,) if from_source else (False, True):
        installer, cache = (
            _user(sandbox, _BUILDER if builds else _INSTALLER),
            place / "cache" if builds else shared,
        )
        environment = uv_environment(outer, settings, place, cache)
        for item in (place / "venv", place / "home", place / "tmp", cache):
            if item != shared:
                remove_tree(item)
            item.mkdir(mode=0o755 if item == place / "venv" else 0o700, exist_ok=True)
            if os.lstat(item).st_uid != (installer.uid if sandbox.own_user else os.geteuid()):
                chown_to_training(installer, item)
        run(
            [uv, "venv", "--quiet", "--clear", "--python", base.executable, str(place / "venv")],
            "`uv venv`",
            place,
            environment,
            installer,
        )
        show_base(place / "venv", base)
        double_scripts(place / "venv", base)
        chown_to_training(installer, place / "venv")
        command = install_command(
            uv, place / "venv/bin/python", requirements, place / "excluded.txt", settings, builds
        )
        try:
            _run_install(command, f"installing {spec.env.lockfile}", folder, environment, installer)
            break
        except NoWheel:
            if builds or secret:
                raise
    if not sandbox.own_user:
        _make_read_only(place / "venv")


def _run_install(
    command: list[str], what: str, folder: Path, environment: Mapping[str, str], installer: Sandbox
) -> None:
    """Install, and where no index answers, from what the cache holds. Raises Inconclusive."""
    try:
        run(command, what, folder, environment, installer)
    except Inconclusive as error:
        if error.reason_id != "install/network":
            raise
        with contextlib.suppress(Inconclusive):
            return run([*command, "--offline"], what, folder, environment, installer)
        raise


def _user(sandbox: Sandbox, above: int) -> Sandbox:
    """A user that is neither the gate nor the training, where the two are not one."""
    return (
        replace(sandbox, uid=sandbox.uid + above, gid=(sandbox.gid or sandbox.uid) + above)
        if sandbox.uid
        else sandbox
    )


def _reachable_uv(place: Path, sandbox: Sandbox) -> str:
    """uv where the installing user can start it: as it is installed, or a copy."""
    uv = find_uv_bin()
    if barrier_to(sandbox, Path(uv)) is None:
        return uv
    shutil.copyfile(uv, place / "uv")
    (place / "uv").chmod(0o755)
    return str(place / "uv")


def _pins(lock: Lock, name: str, version: str, python: str) -> bool:
    """Whether the lock asks for this version on this machine: then what the base has stays, as pip
    would leave it."""
    pins = [pin.version for pin in lock.pins if pin.name == name and applies(pin.marker, python)]
    return bool(pins) and all(pin is not None and same_version(pin, version) for pin in pins)


def _make_read_only(folder: Path) -> None:
    """Take the right to write from files and folders. Gate and training are one user, so this stops
    mistakes and not intent; the files are hard links into uv's cache, which it protects the same
    way."""
    for _, _, files, place in os.fwalk(folder):
        for name in files:
            mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, stat.S_IMODE(mode) & 0o555, dir_fd=place)
        os.fchmod(place, stat.S_IMODE(os.fstat(place).st_mode) & 0o555)


def _write(path: Path, text: str, below: Path) -> None:
    """A file that every user may read, and the folders to it below `below` that every user may
    enter, whatever the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    for folder in path.relative_to(below).parents:
        (below / folder).chmod(0o755)


def _refused(message: str, remedy: str) -> UsageError:
    return UsageError(f"env.install: {message}", remedy=remedy, reason_id="install/lockfile")


def _unusable(why: str) -> Inconclusive:
    remedy = "name another cache folder (XDG_CACHE_HOME, or the action's input `cache`)"
    return Inconclusive(
        f"env.install: the cache folder cannot be used: {why}",
        remedy=remedy,
        reason_id="install/cache",
    )
