"""`env.install`: what the lockfile pins, installed by uv into a fresh environment on top of the
Python that the gate finds.

uv runs as a user that is neither the gate nor the training, so no training can write to the
environment or to uv's cache. Only wheels go through the cache that later gate runs use, since
installing one runs no code of it; what has to be built is built as another user.

No interpreter starts in the environment after a wheel was unpacked: its `.pth` files, or a script
of it that is called `python`, would run. So the base's interpreter compiles the environment, with
no site folder in sight, as a user who can write to nothing that a later gate run reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from uv import find_uv_bin

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import cache_folder, make_folder, walk
from repro_gate.install.lockfiles import (
    REMEDY,
    Lock,
    LockfileError,
    applies,
    read_lock,
)
from repro_gate.runs.interpreter import training_interpreter
from repro_gate.runs.process import supervise
from repro_gate.sandbox.cleanup import fixed_folder
from repro_gate.sandbox.confinement import barrier_to
from repro_gate.sandbox.identity import Sandbox, chown_to_training
from repro_gate.spec.model import Spec

SYSTEM_CACHE = Path("/var/cache/repro-gate")
SECONDS = 1800.0
# The variable that names a folder of this job alone for what had to be built.
BUILT = "REPRO_GATE_BUILT"
# users above the training's: one writes the cache and runs no code of a distribution, one builds,
# one compiles what was installed
_INSTALLER = 10
_BUILDER = 20
_COMPILER = 30
# The cache's name: what an earlier version wrote, while it ran code of wheels, is not read.
_CACHE = "uv-2"
_PASSED = re.compile(
    r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|PYENV_\w+|CC|CXX|CUDA_HOME|SSL_CERT_(?:FILE|DIR)"
    r"|UV_(?:(?:DEFAULT_|EXTRA_)?INDEX(?:_URL)?|FIND_LINKS|OFFLINE|INSECURE_HOST|HTTP_\w+)"
    r"|(?i:https?|all|no)_(?i:proxy)"
)
_OF_UV = re.compile(r"UV_|PIP_|\w+_proxy", re.IGNORECASE)
_PASSWORD = re.compile(r"(?<=//)[^/\s@]+(?=@)")
# Run in the new environment: the base's site folders go behind its own (what
# `--system-site-packages` shows of a virtual environment is the one below it). What the base has as
# it is locked stays the base's, and its commands, such as torchrun, start the new interpreter.
_ON_TOP = r"""
import importlib.metadata, json, os, re, subprocess, sys, sysconfig
ask = "import json, sys; print(); print(json.dumps(sys.path))"
paths = json.loads(subprocess.check_output([sys.argv[1], "-I", "-c", ask]).splitlines()[-1])
sites, locked = [path for path in paths if path.endswith("-packages")], json.load(sys.stdin)
with open(os.path.join(sysconfig.get_path("purelib"), "_repro_gate_base.pth"), "w") as file:
    file.writelines(f"import site; site.addsitedir({path!r})\n" for path in sites)
for item in importlib.metadata.distributions(path=sites):
    name = re.sub("[-_.]+", "-", item.metadata["Name"] or "").lower()
    version, locks = str(item.version), locked.pop(name, [None])
    if not all(lock in (version, version.partition("+")[0]) for lock in locks):
        continue
    print(name)
    for point in item.entry_points:
        path = os.path.join(sysconfig.get_path("scripts"), os.path.basename(point.name))
        entry = re.match(r"([\w.]+):([\w.]+)", point.value)
        if point.group == "console_scripts" and entry and not os.path.lexists(path):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o755), "w") as file:
                file.write(f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n")
                file.write(f"import sys, {entry[1]}\nsys.exit({entry[1]}.{entry[2]}())\n")
"""
_SCRIPT = r"""
base=$1 on_top=$2 && shift 2
./uv venv --quiet --clear --python "$base" venv
venv/bin/python -I -c "$on_top" "$base" < locked.json > work/excluded.txt
./uv pip install --quiet --python venv/bin/python --no-deps --require-hashes \
    --index-strategy unsafe-best-match --excludes work/excluded.txt -r requirements.txt "$@"
"""
# Without network where the kernel lets a user do that.
_COMPILE = r"""
alone="unshare --map-current-user --net --"
$alone true 2>&- || alone=
exec $alone "$1" -I -S -m compileall -q -j 0 venv/lib
"""


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
    """Yield the environment that trainings are started from: `outer`, with the locked environment
    first on PATH if `env.install` asks for it.

    `root` is the checkout's; `cache_root` a folder that a person named. `tell` is given a line that
    is safe to print before anything that takes long. Raises UsageError for a lock that cannot be
    installed from, Inconclusive if the install fails.
    """
    if not spec.env.install:
        yield outer
        return
    if "PATH" in spec.train.env:
        raise UsageError(
            "env.install: train.env.PATH would hide what is installed",
            remedy="take PATH out of train.env, or leave env.install out",
            reason_id="install/path",
        )
    lock, files = installable(spec, root)
    base = training_interpreter(spec, {"PATH": os.defpath, **outer})
    with fixed_folder(sandbox, environments_root(outer, cache_root, sandbox)) as place:
        place.chmod(0o755)
        tell(f"installing what {for_terminal(lock.path, 200)} pins ({len(lock.pins)})")
        _install(place, base, files, outer, sandbox)
        search = os.pathsep.join([f"{place}/venv/bin", outer.get("PATH", os.defpath)])
        made = {**outer, "PATH": search, "VIRTUAL_ENV": f"{place}/venv"}
        made.pop("PYTHONHOME", None)
        yield made


def installable(spec: Spec, root: Path) -> tuple[Lock, dict[str, str]]:
    """Return what `env.lockfile` pins, and the files to install from, by name. Raises UsageError if
    an entry cannot be installed by version and hash; the checkout's own code is not installed."""
    folder = Path(os.path.realpath(spec.path.parent))
    root = Path(os.path.realpath(root))
    path = Path(os.path.normpath(folder / (spec.env.lockfile or "")))
    try:
        lock = read_lock(path, root, everything=False)
        for pin in lock.pins:
            if not pin.requirement:
                why = "is no version with hashes; name an index in UV_INDEX"
                raise LockfileError(pin.described(pin.fault or why))
        text = "".join(f"{pin.requirement}\n" for pin in lock.pins)
        if "$" in text:
            raise LockfileError(
                f"{lock.path}: has a `$`, and variables are not filled in"
            )
    except LockfileError as error:
        message = f"env.install: {error}"
        raise UsageError(message, remedy=REMEDY, reason_id="install/lockfile") from None
    versions: dict[str, list[str | None]] = {}
    for pin in lock.pins:
        # The training's Python may be another.
        if "python" in pin.marker or applies(pin.marker, None):
            versions.setdefault(pin.name, []).append(pin.version)
    return lock, {"requirements.txt": text, "locked.json": json.dumps(versions)}


def environments_root(
    environment: Mapping[str, str], cache_root: Path | None, sandbox: Sandbox
) -> Path:
    """Return the folder that holds uv's cache and the environments in use, made if it is missing.

    `cache_root` is what a person named. Else it is the gate's cache below HOME; that is closed to
    others, so a training with a user of its own has its environments in /var/cache. Raises
    Inconclusive if the training's user could not get there, or others could write to it.
    """
    own = SYSTEM_CACHE if sandbox.own_user else cache_folder(environment)
    root = cache_root or own
    if root is None:
        raise _failed("there is no HOME and no XDG_CACHE_HOME for a cache")
    folder = Path(os.path.abspath(root)) / "environments"
    try:
        if not root.exists():
            root.mkdir(parents=True, mode=0o700)
            root.chmod(0o755 if sandbox.own_user else 0o700)
        folder.mkdir(exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise PermissionError(f"it is a link, a file, or of user {status.st_uid}")
        folder.chmod(0o755)
        if closed := barrier_to(sandbox, folder):
            why = f"{closed} is closed to the training's user: `chmod o+x` it"
            raise PermissionError(why)
    except OSError as error:
        raise _failed(f"the cache folder {folder}: {error}") from None
    return folder


def _install(
    place: Path,
    base: str,
    files: Mapping[str, str],
    outer: Mapping[str, str],
    sandbox: Sandbox,
) -> None:
    """Make `place / "venv"`: of wheels in the cache, else of wheels, else, if no address has a
    password that could be read meanwhile, of source archives that are built, too."""
    try:
        shutil.copy(find_uv_bin(), place)  # where every user can start it
    except OSError as error:
        why = f"uv is missing, `pip install uv`: {error}"
        raise _failed(why) from None
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    venv = place / "venv"
    work = place / "work"
    shared = place.parent / _CACHE
    environment = {name: outer[name] for name in filter(_PASSED.fullmatch, outer)}
    wheels = ["--only-binary", ":all:"]
    attempts = [
        (_INSTALLER, shared, [*wheels, "--offline"]),
        (_INSTALLER, shared, wheels),
    ]
    # what is built is kept only where its folder ends with the job
    kept = outer.get(BUILT, "")
    built = Path(kept) if kept else work / "cache"
    if not any(map(_PASSWORD.search, environment.values())):
        attempts.append((_BUILDER, built, []))
    environment |= {"HOME": str(work), "TMPDIR": str(work)}
    environment |= {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
    message = ""
    for above, cache, flags in attempts:
        user = _user(sandbox, above)
        make_folder(venv).chmod(0o755)
        new = [venv, make_folder(work)]
        if cache.parent != work:  # it outlives this install
            cache.mkdir(mode=0o700, exist_ok=True)
            new += [cache] if os.lstat(cache).st_uid != user.uid else []
        chown_to_training(user, *new)
        ended = supervise(
            ["/bin/sh", "-euc", _SCRIPT, "sh", base, _ON_TOP, *flags],
            cwd=place,
            env={**environment, "UV_CACHE_DIR": str(cache)},
            timeout=SECONDS,
            sandbox=user,
        )
        if not ended.exit_code and not ended.timed_out:
            break
        lines = _PASSWORD.sub("***", "; ".join(map(str.strip, ended.tail[-20:])))
        lines = for_terminal(lines[-1000:], 1000)
        message = f"uv ended after {ended.seconds:.0f} s: {lines}"
    else:
        raise _failed(message)
    _compile(place, base, environment, _user(sandbox, _COMPILER))
    # This stops mistakes alone, such as writing into uv's hard links.
    if not sandbox.own_user:
        subprocess.run(["chmod", "-R", "a-w", venv], check=False)


def _user(sandbox: Sandbox, above: int) -> Sandbox:
    """Return the user so many above the training's; the gate's own if the training has none."""
    uid = sandbox.uid + above if sandbox.own_user else 0
    return replace(sandbox, uid=uid)


def _compile(
    place: Path, base: str, environment: Mapping[str, str], user: Sandbox
) -> None:
    """Compile what is installed, as a user who owns the environment's folders alone: its files are
    the cache's. A source that does not compile is no error."""
    venv = place / "venv"
    if user.own_user:
        for name in ("", *walk(venv)):
            if not name or name.endswith("/"):
                os.lchown(venv / name, user.uid, user.uid)
    supervise(
        ["/bin/sh", "-c", _COMPILE, "sh", base],
        cwd=place,
        env={name: environment[name] for name in environment if not _OF_UV.match(name)},
        timeout=SECONDS,
        sandbox=user,
    )


def _failed(why: str) -> Inconclusive:
    return Inconclusive(
        f"env.install: {why}",
        remedy="lock wheels for this Python and platform, name their index in UV_INDEX, and let "
        "the job reach it and its cache folder (XDG_CACHE_HOME, or the input `cache`)",
        reason_id="install/failed",
    )
