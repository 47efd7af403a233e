"""Pipfile.lock: JSON with one mapping of packages for each category (`default`, `develop`, …)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repro_gate.files import Unreadable, read_text
from repro_gate.install.lockfiles.model import MAX_BYTES, Lock, LockfileError, Package, build_lock

_ENTRY = re.compile(r'\s*"([^"]+)":\s*\{')


def read(path: Path, root: Path) -> Lock:
    """Every package of every category. Raises LockfileError."""
    shown = os.path.relpath(path, root)
    try:
        text = read_text(path, root, MAX_BYTES)
        document = json.loads(text)
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise LockfileError(f"{shown}: is no JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("_meta"), dict):
        raise LockfileError(f"{shown}: has no `_meta`, so pipenv did not write it")
    return build_lock("Pipfile.lock", _packages(document, text, shown), [shown], path.parent, root)


def _packages(document: Mapping[str, Any], text: str, shown: str) -> Iterator[Package]:
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if found := _ENTRY.match(line):
            lines.setdefault(found[1], number)
    for category, entries in document.items():
        if category == "_meta" or not isinstance(entries, dict):
            continue
        for name, entry in entries.items():
            place = f"{shown}:{lines[name]}" if name in lines else shown
            yield _package(name, entry if isinstance(entry, dict) else {}, place)


def _package(name: str, entry: Mapping[str, Any], place: str) -> Package:
    marker = entry.get("markers")
    version = entry.get("version")
    hashes = entry.get("hashes")
    vcs = any(key in entry for key in ("git", "hg", "svn", "bzr"))
    folder = entry.get("path")
    return Package(
        name,
        version.removeprefix("==") if isinstance(version, str) and version.startswith("==") else None,
        place,
        tuple(str(item) for item in hashes) if isinstance(hashes, list) else (),
        marker if isinstance(marker, str) else "",
        str(entry.get("ref", "")) if vcs else None,
        str(folder) if folder is not None and not hashes else None,
    )
