"""Where environments are kept: one folder for each key, made once, used by many gates at a time, and removed when it was not used for long.
 A folder counts only once its marker lies beside it, and that is written last: what was killed half-way is made anew.
A lock on a file of its own is held alone while a folder is made or removed, and shared as long as it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro_gate.data.cache import default_cache_path
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.files import read_start, remove_tree
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.permissions import closed_to

KEPT = 5  # environments; the ones used longest ago go first
LAYOUT = 1
SYSTEM_CACHE = Path("/var/cache/repro-gate")
_WAIT_SECONDS = 2400.0  # for another gate that makes the same environment: longer than its own limit
_TICK = 0.2
_KEY = re.compile(r"[0-9a-f]{32}")
_MOST_MARKER = 64 * 1024
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def environments_root(environment: Mapping[str, str], cache_root: Path | None, isolation: Isolation) -> Path:
    """The folder that holds the environments, made where it is missing.

    `cache_root` is what a person named. Else it is the gate's cache below HOME; that is closed to others, so a training with a user of its
    own has its environments in /var/cache. Raises UsageError or Inconclusive where the training's user could not get there.
    """
    root = cache_root or (SYSTEM_CACHE if isolation.own_user else _of_home(environment))
    folder = Path(os.path.abspath(root)) / "environments"
    try:
        if not root.exists():
            root.mkdir(parents=True, mode=0o700)
            root.chmod(0o755 if isolation.own_user else 0o700)
        folder.mkdir(exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
    except OSError as error:
        raise _unusable(f"{folder} cannot be made: {error.strerror or error}") from None
    _require_own(folder, isolation)
    closed = closed_to(isolation, folder)
    if closed is not None:
        raise UsageError(
            f"env.install: the cache folder {root} cannot be entered by the training's user {isolation.uid}: {closed} is closed to it",
            remedy=f"name a cache folder that every user may enter, or run `chmod o+x {closed}`",
            reason_id="install/cache",
        )
    return folder


def _of_home(environment: Mapping[str, str]) -> Path:
    path = default_cache_path(environment)
    if path is None:
        raise _unusable("there is no HOME and no XDG_CACHE_HOME to keep environments below")
    return path.parent


def _require_own(path: Path, isolation: Isolation) -> None:
    """Nobody but the gate may have written there: the training's user, who could plant an environment, least of all."""
    status = os.lstat(path)
    theirs = status.st_uid == isolation.uid if isolation.own_user else status.st_uid not in (os.geteuid(), 0)
    if not stat.S_ISDIR(status.st_mode) or theirs or status.st_mode & _OTHERS_WRITE:
        raise _unusable(f"{path} belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}, so others may write to it")


@dataclass
class Slot:
    """One key's place, held. `folder` is the environment, `work` a scratch folder beside it while it is made."""

    root: Path
    key: str
    _descriptor: int
    _sleep: Callable[[float], None]

    @property
    def folder(self) -> Path:
        """Where the environment lies; virtual environments hold their own path, so it is made there and never moved."""
        return self.root / self.key

    @property
    def work(self) -> Path:
        """Scratch."""
        return self.root / f"{self.key}.work"

    @property
    def marker(self) -> Path:
        """Says that the environment is whole."""
        return self.root / f"{self.key}.json"

    def share(self) -> None:
        """Wait until nobody makes or removes it. Raises Inconclusive after three quarters of an hour."""
        self._wait(fcntl.LOCK_SH)

    def take(self) -> None:
        """Wait until nobody else holds it."""
        self._wait(fcntl.LOCK_EX)

    def alone(self) -> bool:
        """Whether nobody else uses it now; what was held of it may be lost by asking, so this is for the end. Raises nothing."""
        with contextlib.suppress(Inconclusive):
            return _locked(self._descriptor, fcntl.LOCK_EX)
        return False

    def whole(self, isolation: Isolation) -> bool:
        """Whether the environment is there, was finished at this very path, and cannot have been written to by a training since."""
        try:
            content = json.loads(read_start(self.marker, _MOST_MARKER))
            _require_own(self.folder, isolation)
        except (OSError, ValueError, RecursionError, Inconclusive):
            return False
        said = (content.get("layout"), content.get("path")) if isinstance(content, dict) else None
        return said == (LAYOUT, str(self.folder)) and os.path.exists(self.folder / "bin" / "python")

    def finish(self, facts: Mapping[str, object]) -> None:
        """Write the marker: from here on the environment counts."""
        fresh = self.root / f"{self.key}.json.new"
        fresh.unlink(missing_ok=True)
        fresh.write_text(
            json.dumps({"layout": LAYOUT, "path": str(self.folder), **facts}, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
        fresh.replace(self.marker)

    def clear(self) -> None:
        """Remove the environment and all that was left of making it; the marker first."""
        self.marker.unlink(missing_ok=True)
        remove_tree(self.folder)
        remove_tree(self.work)

    def _wait(self, kind: int) -> None:
        waited = 0.0
        while not _locked(self._descriptor, kind):
            if waited >= _WAIT_SECONDS:
                raise _unusable(f"{self.root / self.key} is held by another gate for {_WAIT_SECONDS / 60:g} minutes")
            with obeyed():
                self._sleep(_TICK)
            waited += _TICK


@contextlib.contextmanager
def opened(root: Path, key: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[Slot]:
    """The place of one key; what is held of it is given back at the end."""
    try:
        descriptor = _open_lock(root / f"{key}.lock")
    except OSError as error:
        raise _unusable(f"{root} cannot be written to: {error.strerror or error}") from None
    try:
        yield Slot(root, key, descriptor, sleep)
    finally:
        os.close(descriptor)


def prune(root: Path) -> None:
    """Remove what was used longest ago beyond the number that is kept, and what was never finished; what somebody holds stays."""
    names = {name.partition(".")[0] for name in os.listdir(root)}
    keys = [name for name in names if _KEY.fullmatch(name)]
    for key in sorted(keys, key=lambda key: _used(root, key), reverse=True)[KEPT:] + [key for key in keys if _used(root, key) < 0]:
        with contextlib.suppress(OSError, Inconclusive):
            descriptor = _open_lock(root / f"{key}.lock")
            try:
                if _locked(descriptor, fcntl.LOCK_EX):
                    Slot(root, key, descriptor, time.sleep).clear()
            finally:
                os.close(descriptor)


def touch(slot: Slot) -> None:
    """Remember that it is used now."""
    with contextlib.suppress(OSError):
        os.utime(slot.marker)


def _used(root: Path, key: str) -> float:
    """When it was last used, in seconds since 1970; -1 where it was never finished."""
    try:
        return os.lstat(root / f"{key}.json").st_mtime
    except OSError:
        return -1.0


def _open_lock(path: Path) -> int:
    """The lock files stay for good: a lock on one that was removed meanwhile would hold nothing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unusable(f"files in it cannot be locked: {error.strerror or error}") from None
    return True


def _unusable(why: str) -> Inconclusive:
    remedy = "name another cache folder (XDG_CACHE_HOME, or the action's input `cache`)"
    return Inconclusive(f"env.install: the cache of environments cannot be used: {why}", remedy=remedy, reason_id="install/cache")
