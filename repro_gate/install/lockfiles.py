"""What a lockfile pins and what it leaves open, whichever tool wrote it. The file comes from the
checkout and is untrusted: sizes, counts and depths are bounded, and whatever is wrong is a
LockfileError."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from repro_gate.files import Unreadable, is_inside, parse_toml, read_text
from repro_gate.install.requirements import (
    MAX_BYTES,
    Entry,
    LockfileError,
    Reading,
    read_requirements,
)

MAX_PACKAGES = 50_000
KINDS = "requirements.txt or requirements.lock, uv.lock, poetry.lock, pdm.lock and pylock.toml"
_NAMES = {
    **{name: name for name in ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")},
    "pylock.*.toml": "pylock.toml",
    "*.txt": "requirements",
    "*.lock": "requirements",
}
# Hex digits of the digests that a tool may pin a file with. MD5 and SHA-1 can be forged, so they
# pin nothing.
_DIGITS = {
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
    "sha3_256": 64,
    "sha3_384": 96,
    "sha3_512": 128,
    "blake2b": 128,
    "blake2s": 64,
}
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.IGNORECASE)
# markers that a person's choice decides, not the machine
_CHOSEN = re.compile(r"\b(?:extra|extras|dependency_groups)\b")
Table = Mapping[str, Any]


@dataclass(frozen=True)
class Pin:
    """One distribution of the lock: its normalised name, and its version (None where a commit or a
    URL pins it, or, `open`, nothing)."""

    name: str
    version: str | None
    place: str  # `path:line`
    marker: str = ""
    open: bool = False


@dataclass(frozen=True)
class Lock:
    """A lockfile. `faults` are `path:line: what is not pinned`; `files` all files that were read,
    by their paths in the checkout; `own` the names of distributions whose code lies in the
    checkout."""

    kind: str
    pins: tuple[Pin, ...]
    faults: tuple[str, ...]
    files: tuple[str, ...]
    own: frozenset[str] = frozenset()


def kind_of(name: str) -> str | None:
    """The format that a file of this name has; None for a name that no format has."""
    if name == "Pipfile.lock":
        return None
    return next((kind for pattern, kind in _NAMES.items() if fnmatchcase(name, pattern)), None)


def read_lock(path: Path, root: Path) -> Lock:
    """What the lockfile at `path` pins; it and all that it includes must lie in the checkout at
    `root`. Raises LockfileError."""
    shown, kind = os.path.relpath(path, root), kind_of(path.name)
    if kind is None:
        raise LockfileError(f"{shown}: is not a lockfile that the gate reads; it reads {KINDS}")
    reading = Reading(root)
    entries = (
        read_requirements(path, reading)
        if kind == "requirements"
        else _toml(path, root, shown, kind)
    )
    pins, faults, own = list[Pin](), list[str](), set[str]()
    for count, entry in enumerate(entries):
        if count >= MAX_PACKAGES:
            raise LockfileError(f"{shown}: more than {MAX_PACKAGES} packages")
        fault, name = (
            entry.fault or _fault(entry, path.parent, root),
            str(canonicalize_name(entry.name)),
        )
        if fault:
            faults.append(
                f"{entry.place}: {entry.name}: {fault}" if name else f"{entry.place}: {fault}"
            )
        if name and entry.folder is not None:
            own.add(name)
        elif name:
            pins.append(
                Pin(
                    name,
                    entry.version,
                    entry.place,
                    entry.marker,
                    bool(fault) and entry.version is None,
                )
            )
    if not pins and not own and not faults:
        raise LockfileError(f"{shown}: pins nothing")
    return Lock(kind, tuple(pins), tuple(faults), tuple(reading.files or [shown]), frozenset(own))


def strong(digest: str) -> bool:
    """Whether `algorithm:hex` is a digest that pins a file."""
    algorithm, _, figure = digest.partition(":")
    return (
        bool(re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS.get(algorithm.lower(), 1)}}}", figure))
        and algorithm.lower() in _DIGITS
    )


def same_version(locked: str, installed: str) -> bool:
    """Whether two versions are the same release; the local label of the installed one counts where
    the locked one has a label."""
    try:
        wanted, found = Version(locked), Version(installed)
    except InvalidVersion:
        return locked.strip().lower() == installed.strip().lower()
    return wanted == found if wanted.local else wanted == Version(found.public)


def applies(marker: str, python: str | None) -> bool:
    """Whether a lock's marker holds on this machine under the training's Python (`3.12.7`). What
    cannot be judged holds."""
    if not marker or _CHOSEN.search(marker):
        return True
    environment = (
        {}
        if python is None
        else {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    )
    try:
        return Marker(marker).evaluate(environment)
    except (
        InvalidMarker,
        UndefinedComparison,
        UndefinedEnvironmentName,
        ValueError,
        RecursionError,
    ):
        return True


def _fault(entry: Entry, base: Path, root: Path) -> str:
    """What is not pinned about an entry; empty where it is pinned."""
    if not entry.name:
        return "a package without a name"
    if entry.folder is not None:
        return (
            ""
            if "\0" not in entry.folder and is_inside(base / entry.folder, root)
            else "its folder lies outside the checkout"
        )
    if entry.commit is not None:
        return "" if _COMMIT.fullmatch(entry.commit) else "a repository at no commit"
    if not entry.hashes:
        return "no hash" if entry.version else "neither a version nor a hash"
    weak = next((digest for digest in entry.hashes if not strong(digest)), None)
    if weak is None:
        return ""
    return f"{weak[:80]} is not a digest that pins a file" if weak else "a file of it has no hash"


def _toml(path: Path, root: Path, shown: str, kind: str) -> list[Entry]:
    """The packages of a TOML lockfile. tomllib keeps no lines, so headers are counted; where they
    do not add up, no place has a line."""
    key = "packages" if kind == "pylock.toml" else "package"
    try:
        text = read_text(path, root, MAX_BYTES)
        document = parse_toml(text)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise LockfileError(f"{shown}: `{key}` is not a list of tables")
    header = re.compile(rf"\s*\[\[\s*{key}\s*\]\]")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if header.match(line)]
    places = (
        [f"{shown}:{line}" for line in lines]
        if len(lines) == len(tables)
        else [shown] * len(tables)
    )
    if kind == "pylock.toml":
        return _pylock(document, places, shown)
    entries = [_of_tool(table, place) for table, place in zip(tables, places, strict=True)]
    hashed = {(entry.name, entry.version) for entry in entries if entry.hashes}
    # pdm's `black[jupyter]` stands beside `black`, in some versions without files of its own
    return [
        entry
        for entry, table in zip(entries, tables, strict=True)
        if entry.hashes
        or not isinstance(table.get("extras"), list)
        or (entry.name, entry.version) not in hashed
    ]


def _of_tool(table: Table, place: str) -> Entry:
    """One `[[package]]` of uv, poetry or pdm, whose keys do not collide."""
    name, version, source = (
        _text(table.get("name")),
        _text(table.get("version")),
        _table(table.get("source")),
    )
    files = table.get("files") or []
    listed = (
        [*files, table.get("sdist"), *(table.get("wheels") or [])]
        if isinstance(files, list)
        else [{}]
    )
    commit = folder = None
    if "git" in source:  # uv
        commit = str(source["git"]).rpartition("#")[2]
    elif source.get("type") == "git":  # poetry
        commit = _text(source.get("resolved_reference"))
    elif any(key in table for key in ("git", "hg", "svn", "bzr")):  # pdm
        commit = _text(table.get("revision"))
    elif source.get("type") == "directory":
        folder = str(source.get("url"))
    else:
        where = {
            key: source[key] for key in ("editable", "virtual", "directory") if key in source
        } or ({} if files else table)
        folder = next(
            (
                str(where[key])
                for key in ("editable", "virtual", "directory", "path")
                if key in where
            ),
            None,
        )
    hashes = tuple(_text(_table(file).get("hash")) for file in listed if file is not None)
    marker = _text(table.get("markers")) or _text(table.get("marker"))
    return Entry(
        name=name,
        version=version or None,
        place=place,
        hashes=hashes,
        marker=marker,
        commit=commit,
        folder=folder,
    )


def _pylock(document: dict[str, Any], places: list[str], shown: str) -> list[Entry]:
    """The packages of a pylock.toml, as PEP 751 defines it."""
    # 20 ms, for this format alone
    from packaging.pylock import (
        Pylock,
        PylockUnsupportedVersionError,
        PylockValidationError,
    )

    try:
        packages = Pylock.from_dict(document).packages
    except PylockUnsupportedVersionError as error:
        raise LockfileError(f"{shown}: {error}; PEP 751 describes version 1.0") from None
    except (PylockValidationError, RecursionError) as error:
        raise LockfileError(f"{shown}: does not follow PEP 751: {str(error)[:300]}") from None
    entries = []
    for item, place in zip(packages, places, strict=True):
        files = [
            file for file in (item.sdist, *(item.wheels or ()), item.archive) if file is not None
        ]
        hashes = [
            [f"{algorithm}:{figure}" for algorithm, figure in file.hashes.items()] for file in files
        ]
        best = tuple(
            next((digest for digest in file if strong(digest)), file[0]) for file in hashes
        )
        marker, version = str(item.marker or ""), str(item.version) if item.version else None
        commit, folder = (
            item.vcs.commit_id if item.vcs else None,
            item.directory.path if item.directory else None,
        )
        entries.append(
            Entry(
                name=item.name,
                version=version,
                place=place,
                hashes=best,
                marker=marker,
                commit=commit,
                folder=folder,
            )
        )
    return entries


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
