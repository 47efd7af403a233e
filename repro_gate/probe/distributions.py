"""Which installed distributions this process imported, with their versions: what a lockfile has to
name.

Reads the metadata folders on `sys.path` by hand: importing `importlib.metadata` here would import,
for its own needs, whatever modules of those names lie beside the training's script. A module or
library counts for the distribution that installed its file (without a RECORD: that has its
top-level name); a distribution that is installed as a
link to a checkout (editable) has no files of its own and is not listed, its files are among the
opened ones.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from ..trace.format import MAX_DISTRIBUTIONS, MAX_IMPORTS
from .process import imported_files, mapped_files, printable


def imported(checkout: Any = None) -> tuple[dict[str, str], list[list[str]]]:
    """Return canonical name (PEP 503) -> version, by name; and of those that are copies of what the
    `checkout` holds (`checkout_imports.CheckoutImports`), module, path and name."""
    versions: dict[str, str] = {}
    copies: list[list[str]] = []
    for site, loaded in _loaded().items():
        for entry in sorted(os.listdir(site) if os.path.isdir(site) else ()):
            metadata = os.path.join(site, entry)
            is_one = entry.endswith((".dist-info", ".egg-info"))
            own = sorted(_owned(metadata, loaded)) if is_one else []
            fields = _fields(metadata) if own else {}
            name = re.sub(r"[-_.]+", "-", fields.get("name", "")).lower()[:200]
            if not name or len(versions) >= MAX_DISTRIBUTIONS:
                continue
            versions.setdefault(name, fields.get("version", "")[:200])
            room = checkout is not None and len(copies) < MAX_IMPORTS
            if room and checkout.has_copy(metadata, name, own):
                copy = (_top(own[0]), os.path.join(site, own[0]), name)
                copies.append(list(map(printable, copy)))
    return dict(sorted(versions.items())), copies


def _loaded() -> dict[str, set[str]]:
    """Return site folder -> files loaded below it, relative to the folder: modules, and libraries
    mapped into memory."""
    files = [file for _, file in imported_files()]
    sites = {
        os.path.abspath(entry) + os.sep for entry in filter(os.path.isdir, sys.path)
    }
    innermost = sorted(sites, key=len, reverse=True)
    loaded: dict[str, set[str]] = {}
    for file in (*files, *mapped_files()):
        site = next(filter(file.startswith, innermost), None)
        if site is not None:
            relative = file[len(site) :].replace(os.sep, "/")
            loaded.setdefault(os.path.realpath(site), set()).add(relative)
    return loaded


def _owned(metadata: str, loaded: set[str]) -> set[str]:
    """Return those of the `loaded` files that a distribution lists; if it has no list, those below
    its top-level names."""
    files = set()
    for line in _lines(os.path.join(metadata, "RECORD")):
        quoted = line.startswith('"')
        files.add(line.split('"')[1] if quoted else line.partition(",")[0].strip())
    if files:
        return loaded & files
    tops = set(map(str.strip, _lines(os.path.join(metadata, "top_level.txt"))))
    return {file for file in loaded if _top(file) in tops}


def _top(relative: str) -> str:
    """Return `numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of
    `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _fields(metadata: str) -> dict[str, str]:
    """Return the header of a distribution's metadata, by lowercase key."""
    fields: dict[str, str] = {}
    places = [os.path.join(metadata, name) for name in ("METADATA", "PKG-INFO")]
    for line in next(filter(None, map(_lines, [*places, metadata])), []):
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields.setdefault(key.lower(), value.strip())
    return fields


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
