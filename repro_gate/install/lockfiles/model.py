"""What a lockfile pins, as data, whatever its format. Built by the readers beside this file, read by the checks of `env`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from repro_gate.files import is_inside

MAX_BYTES = 32 * 1024 * 1024
MAX_PACKAGES = 50_000
# Hex digits of the digests that a tool may pin a file with. MD5 and SHA-1 can be forged, so they pin nothing.
_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128, "sha3_256": 64, "sha3_384": 96, "sha3_512": 128, "blake2b": 128, "blake2s": 64}
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)


class LockfileError(Exception):
    """A lockfile that cannot be used. The message starts with `path` or `path:line`."""


@dataclass(frozen=True)
class Package:
    """One entry as a reader found it. `hashes` are `algorithm:hex`, one for each file, empty text where a file has none; `commit` and
    `folder` are set where the entry is a git repository or a folder. `fault` is what the reader itself found wrong."""

    name: str
    version: str | None
    place: str  # `path:line`
    hashes: tuple[str, ...] = ()
    marker: str = ""
    commit: str | None = None
    folder: str | None = None
    fault: str = ""


@dataclass(frozen=True)
class Pin:
    """One distribution of the lock: its normalised name, and its version (None where a commit or a URL pins it, or, `open`, nothing)."""

    name: str
    version: str | None
    place: str
    marker: str = ""
    open: bool = False


@dataclass(frozen=True)
class Lock:
    """A lockfile. `faults` are `path:line: what is not pinned`; `files` all files that were read, by their paths in the checkout; `own`
    the names of distributions whose code lies in the checkout. `conda` names packages by another register than Python does."""

    kind: str
    pins: tuple[Pin, ...]
    faults: tuple[str, ...]
    files: tuple[str, ...]
    own: frozenset[str] = frozenset()
    conda: bool = False


def build_lock(kind: str, packages: Iterable[Package], files: Iterable[str], base: Path, root: Path, conda: bool = False) -> Lock:
    """The lock of these entries. Folders are relative to `base` and must lie in `root`. Raises LockfileError where nothing is pinned."""
    names = tuple(files)
    pins: list[Pin] = []
    faults: list[str] = []
    own: set[str] = set()
    for count, package in enumerate(packages):
        if count >= MAX_PACKAGES:
            raise LockfileError(f"{names[0]}: more than {MAX_PACKAGES} packages")
        fault = package.fault or _fault(package, base, root)
        name = str(canonicalize_name(package.name))
        if fault:
            faults.append(f"{package.place}: {package.name}: {fault}" if package.name else f"{package.place}: {fault}")
        if name and package.folder is not None:
            own.add(name)
        elif name:
            pins.append(Pin(name, package.version, package.place, package.marker, bool(fault) and package.version is None))
    if not pins and not own and not faults:
        raise LockfileError(f"{names[0]}: pins nothing")
    return Lock(kind, tuple(pins), tuple(faults), names, frozenset(own), conda)


def strong(digest: str) -> bool:
    """Whether `algorithm:hex` is a digest that pins a file."""
    algorithm, _, figure = digest.partition(":")
    return bool(re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS.get(algorithm.lower(), 1)}}}", figure)) and algorithm.lower() in _DIGITS


def _fault(package: Package, base: Path, root: Path) -> str:
    if package.folder is not None:
        return "" if "\0" not in package.folder and is_inside(base / package.folder, root) else "its folder lies outside the checkout"
    if package.commit is not None:
        return "" if _COMMIT.fullmatch(package.commit) else "a repository at no commit"
    if not package.hashes:
        return "no hash" if package.version else "neither a version nor a hash"
    weak = next((digest for digest in package.hashes if not strong(digest)), None)
    if weak is None:
        return ""
    return f"{weak[:80]} is not a digest that pins a file" if weak else "a file of it has no hash"
