"""The lockfiles that are TOML: uv.lock, poetry.lock, pdm.lock and pylock.toml (PEP 751).

TOML's reader keeps no lines, so the lines of the `[[package]]` headers are counted beside it; where they do not add up, places have none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repro_gate.files import Unreadable, parse_toml, read_text
from repro_gate.install.lockfiles.model import MAX_BYTES, Lock, LockfileError, Package, build_lock, strong

Entry = Mapping[str, Any]


def read_uv(path: Path, root: Path) -> Lock:
    """uv.lock: each package has a `source`, an `sdist` and `wheels`."""
    _, entries, shown = _tables(path, root, "package")
    return build_lock("uv.lock", (_uv(entry, place) for entry, place in entries), [shown], path.parent, root)


def read_poetry(path: Path, root: Path) -> Lock:
    """poetry.lock: each package has `files`; before lock version 2 these stood under `metadata.files`, by name."""
    document, entries, shown = _tables(path, root, "package")
    apart = _table(_table(document.get("metadata")).get("files"))
    return build_lock("poetry.lock", (_poetry(entry, place, apart) for entry, place in entries), [shown], path.parent, root)


def read_pdm(path: Path, root: Path) -> Lock:
    """pdm.lock: each package has `files`; before lock version 4.2 these stood under `metadata.files`, by name and version."""
    document, entries, shown = _tables(path, root, "package")
    apart = _table(_table(document.get("metadata")).get("files"))
    packages = [_pdm(entry, place, apart) for entry, place in entries]
    hashed = {(package.name, package.version) for package in packages if package.hashes}
    extras = [  # `black[jupyter]` stands beside `black`, in some versions without files of its own
        package.hashes == () and bool(entry.get("extras")) and (package.name, package.version) in hashed
        for package, (entry, _) in zip(packages, entries, strict=True)
    ]
    kept = (package for package, extra in zip(packages, extras, strict=True) if not extra)
    return build_lock("pdm.lock", kept, [shown], path.parent, root)


def read_pylock(path: Path, root: Path) -> Lock:
    """pylock.toml, as PEP 751 lays it out."""
    document, entries, shown = _tables(path, root, "packages")
    if not str(document.get("lock-version", "")).startswith("1."):
        raise LockfileError(f"{shown}: its lock-version is {document.get('lock-version')!r}, 1.0 is the one that PEP 751 describes")
    return build_lock("pylock.toml", (_pylock(entry, place) for entry, place in entries), [shown], path.parent, root)


def _tables(path: Path, root: Path, key: str) -> tuple[Entry, list[tuple[Entry, str]], str]:
    """The document, its packages with their places, and the file's path in the checkout."""
    shown = os.path.relpath(path, root)
    try:
        text = read_text(path, root, MAX_BYTES)
        document = parse_toml(text)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise LockfileError(f"{shown}: `{key}` is no list of tables")
    header = re.compile(rf"\s*\[\[\s*{key}\s*\]\]")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if header.match(line)]
    places = [f"{shown}:{line}" for line in lines] if len(lines) == len(entries) else [shown] * len(entries)
    return document, list(zip(entries, places, strict=True)), shown


def _uv(entry: Entry, place: str) -> Package:
    source = _table(entry.get("source"))
    folder = next((str(source[key]) for key in ("editable", "virtual", "directory") if key in source), None)
    commit = str(source["git"]).rpartition("#")[2] if "git" in source else None
    hashes = tuple(_text(file.get("hash")) or "" for file in [*_files([entry.get("sdist")]), *_files(entry.get("wheels"))])
    return _package(entry, place, hashes, commit=commit, folder=folder)


def _poetry(entry: Entry, place: str, apart: Entry) -> Package:
    source = _table(entry.get("source"))
    kind = source.get("type")
    files = entry.get("files") or apart.get(str(entry.get("name")))
    return _package(
        entry,
        place,
        tuple(_text(file.get("hash")) or "" for file in _files(files)),
        marker=_text(entry.get("markers")) or "",
        commit=(_text(source.get("resolved_reference")) or "") if kind == "git" else None,
        folder=str(source.get("url")) if kind == "directory" else None,
    )


def _pdm(entry: Entry, place: str, apart: Entry) -> Package:
    files = entry.get("files") or apart.get(f"{entry.get('name')} {entry.get('version')}")
    vcs = any(key in entry for key in ("git", "hg", "svn", "bzr"))
    return _package(
        entry,
        place,
        tuple(_text(file.get("hash")) or "" for file in _files(files)),
        marker=_text(entry.get("marker")) or "",
        commit=(_text(entry.get("revision")) or "") if vcs else None,
        folder=str(entry["path"]) if "path" in entry and not files else None,
    )


def _pylock(entry: Entry, place: str) -> Package:
    vcs, directory = _table(entry.get("vcs")), _table(entry.get("directory"))
    files = [*_files([entry.get("sdist")]), *_files(entry.get("wheels")), *_files([entry.get("archive")])]
    digests = [_table(file.get("hashes")) for file in files]
    return _package(
        entry,
        place,
        tuple(_strongest(item) for item in digests),
        marker=_text(entry.get("marker")) or "",
        commit=(_text(vcs.get("commit-id")) or "") if vcs else None,
        folder=str(directory.get("path", ".")) if directory else None,
    )


def _strongest(hashes: Entry) -> str:
    """Of a file's hashes one that pins it, else any, else empty text."""
    digests = [f"{algorithm}:{figure}" for algorithm, figure in hashes.items()]
    return next((digest for digest in digests if strong(digest)), next(iter(digests), ""))


def _package(
    entry: Entry, place: str, hashes: tuple[str, ...], marker: str = "", commit: str | None = None, folder: str | None = None
) -> Package:
    name, version = _text(entry.get("name")), _text(entry.get("version"))
    if name is None:
        return Package("", None, place, fault="a package without a name")
    return Package(name, version, place, hashes, marker, commit, folder)


def _files(value: object) -> Iterator[Entry]:
    """The tables of a list of files. What is no table counts as a file without a hash."""
    if isinstance(value, list):
        yield from (item if isinstance(item, dict) else {} for item in value if item is not None)


def _table(value: object) -> Entry:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
