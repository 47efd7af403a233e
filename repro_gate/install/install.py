"""The story of `env.install`: read the lock, ask the interpreter, take the environment from the cache or make it, and hand on its PATH."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from repro_gate.errors import UsageError, held
from repro_gate.escape import for_terminal
from repro_gate.files import remove_tree, scratch_folder
from repro_gate.install import store
from repro_gate.install.base import Base, base_of
from repro_gate.install.making import make
from repro_gate.install.pip import pip_environment
from repro_gate.install.requirements import Wanted, wanted
from repro_gate.install.seal import let_go, seal, shut
from repro_gate.install.store import Slot, environments_root, opened, prune
from repro_gate.runs.interpreter import training_interpreter
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.ownership import give
from repro_gate.spec.model import Spec


def _nobody(line: str) -> None:
    """Tells nobody."""


@contextlib.contextmanager
def installed(
    spec: Spec,
    root: Path,
    outer: Mapping[str, str],
    isolation: Isolation,
    *,
    cache_root: Path | None = None,
    tell: Callable[[str], None] = _nobody,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Mapping[str, str]]:
    """The environment that trainings are started from: `outer`, with the locked environment first on PATH where `env.install` asks for it.

    `root` is the checkout's; `cache_root` a folder that a person named. `tell` is given a line that is safe to print before anything that
    takes long. The environment is held until the end. Raises UsageError for a lock that cannot be installed from, Inconclusive where the
    install fails.
    """
    if not spec.env.install:
        yield outer
        return
    if "PATH" in spec.train.env:
        raise UsageError(
            "env.install: train.env.PATH would hide the environment that the lock is installed into",
            remedy="take PATH out of train.env, or leave env.install out",
            reason_id="install/path",
        )
    lock = wanted(spec, root)
    base = _base(spec, outer, isolation)
    with held(), opened(environments_root(outer, cache_root, isolation), _key(lock, base), sleep) as slot:
        slot.share()
        while not slot.whole(isolation):
            slot.take()
            if not slot.whole(isolation):  # another gate may have made it while this one waited
                tell(f"installing what {for_terminal(lock.name, 200)} pins ({len(lock.names)}), to be kept for later gate runs")
                _made(slot, lock, base, outer, isolation)
                prune(slot.root)
            slot.share()  # no longer alone, and for a moment nobody's: look again
        store.touch(slot)
        shut(slot.folder, isolation)
        try:
            yield _with(outer, slot.folder)
        finally:
            if cache_root is not None and slot.alone():
                let_go(slot.folder, isolation)


def _base(spec: Spec, outer: Mapping[str, str], isolation: Isolation) -> Base:
    """The interpreter that the training would start, without the lock's environment."""
    with scratch_folder() as scratch:
        environment = pip_environment(outer, scratch)
        return base_of(training_interpreter(spec, environment), environment, isolation)


def _key(lock: Wanted, base: Base) -> str:
    return hashlib.sha256(f"{store.LAYOUT}\n{lock.digest}\n{base.digest}".encode()).hexdigest()[:32]


def _made(slot: Slot, lock: Wanted, base: Base, outer: Mapping[str, str], isolation: Isolation) -> None:
    """Make the environment anew. Whatever happens on the way, nothing counts before the marker, and nothing is left of a failure."""
    slot.clear()
    try:
        for place in (slot.work, slot.folder, slot.work / "home", slot.work / "tmp"):
            place.mkdir()
            place.chmod(0o755)
            if place != slot.work:
                give(isolation, place)
        make(slot.folder, slot.work, lock, base, pip_environment(outer, slot.work), isolation)
        count = seal(slot.folder, isolation)
        slot.finish({"lock": lock.name, "python": base.version, "base": base.executable, "entries": count, "made": int(time.time())})
    except BaseException:
        slot.clear()
        raise
    remove_tree(slot.work)


def _with(outer: Mapping[str, str], folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in outer.items() if name != "PYTHONHOME"}
    path = os.pathsep.join([str(folder / "bin"), outer.get("PATH", os.defpath)])
    return {**environment, "PATH": path, "VIRTUAL_ENV": str(folder)}
