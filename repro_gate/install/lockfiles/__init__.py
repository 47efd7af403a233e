"""Lockfiles: what each pins, and what it leaves open. One reader for each format; `read_lock` chooses by the file's name.
A lockfile is an untrusted: sizes, counts and depths are bounded, and every fault is a LockfileError.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from repro_gate.install.lockfiles import conda, pipfile, requirements, toml_locks
from repro_gate.install.lockfiles.model import Lock, LockfileError, Package, Pin

__all__ = ["KINDS", "Lock", "LockfileError", "Package", "Pin", "kind_of", "read_lock"]

_READERS = {
    "uv.lock": toml_locks.read_uv,
    "poetry.lock": toml_locks.read_poetry,
    "pdm.lock": toml_locks.read_pdm,
    "pylock.toml": toml_locks.read_pylock,
    "Pipfile.lock": pipfile.read,
    "conda-lock": conda.read,
    "requirements": requirements.read,
}
_NAMES = (
    ("uv.lock", "uv.lock"),
    ("poetry.lock", "poetry.lock"),
    ("pdm.lock", "pdm.lock"),
    ("pylock.toml", "pylock.toml"),
    ("pylock.*.toml", "pylock.toml"),
    ("Pipfile.lock", "Pipfile.lock"),
    ("*conda-lock.yml", "conda-lock"),
    ("*conda-lock.yaml", "conda-lock"),
    ("*.txt", "requirements"),
    ("*.lock", "requirements"),
)
KINDS = "requirements.txt or requirements.lock, uv.lock, poetry.lock, pdm.lock, pylock.toml, Pipfile.lock and conda-lock.yml"


def kind_of(name: str) -> str | None:
    """The format that a file of this name has; None for a name that no format has."""
    return next((kind for pattern, kind in _NAMES if fnmatchcase(name, pattern)), None)


def read_lock(path: Path, root: Path) -> Lock:
    """What the lockfile at `path` pins; it and all that it includes must lie in the checkout at `root`. Raises LockfileError."""
    shown = os.path.relpath(path, root)
    kind = kind_of(path.name)
    if kind is None:
        raise LockfileError(f"{shown}: is of no kind that the gate reads, which are {KINDS}")
    return _READERS[kind](path, root)
