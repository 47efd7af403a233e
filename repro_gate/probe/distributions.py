"""Which installed distributions this process imported, with their versions: what a lockfile has to
name.

Reads the metadata folders on `sys.path` by hand: importing `importlib.metadata` here would import,
for its own needs, whatever modules of those names lie beside the training's script. A module or
library counts for the distribution that installed its file (without a RECORD: that has its
top-level name); a distribution that is installed as a link to a checkout (editable) has no files
of its own and is not listed, its files are among the opened ones.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from os.path import abspath, isdir, join, realpath
from typing import NamedTuple

from .process import imported_files, mapped_files


class Distribution(NamedTuple):
    """One that this process imported, and those of its files that were loaded, in order, relative
    to the site folder."""

    name: str  # canonical, cut off
    version: str
    metadata: str  # its folder, or file
    files: list[str]


def imported() -> Iterator[Distribution]:
    """Yield the imported distributions, site by site."""
    for site, loaded in _loaded().items():
        for entry in sorted(os.listdir(site)):
            if not entry.endswith((".dist-info", ".egg-info")):
                continue
            metadata = join(site, entry)
            files = sorted(_owned(metadata, loaded))
            if not files:
                continue
            fields = _fields(metadata)
            name = canonical(fields.get("name", ""))[:200]
            version = fields.get("version", "")[:200]
            if name:
                yield Distribution(name, version, metadata, files)


def canonical(name: str) -> str:
    """Return the name of a distribution as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _loaded() -> dict[str, set[str]]:
    """Return site folder -> files loaded below it, relative to the folder: modules, and libraries
    mapped into memory."""
    folders = filter(isdir, sys.path)
    sites = {abspath(folder) + os.sep for folder in folders}
    files = mapped_files()
    files += [file for _, file in imported_files()]
    loaded: dict[str, set[str]] = {}
    for file in files:
        # One site may lie in another.
        site = max(filter(file.startswith, sites), key=len, default="")
        if site:
            below = loaded.setdefault(realpath(site), set())
            below.add(file[len(site) :])
    return loaded


def _owned(metadata: str, loaded: set[str]) -> set[str]:
    """Return those of the `loaded` files that a distribution lists; if it has no list, those below
    its top-level names."""
    record = _lines(metadata, "RECORD")
    if record:
        return loaded.intersection(map(_path_of, record))
    names = {line.strip() for line in _lines(metadata, "top_level.txt")}
    return {file for file in loaded if top_level(file) in names}


def _path_of(line: str) -> str:
    """Return the path that a line of a RECORD begins with, in quotes where it holds a comma."""
    if line.startswith('"'):
        return line.split('"')[1]
    return line.partition(",")[0].strip()


def top_level(relative: str) -> str:
    """Return `numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of
    `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _fields(metadata: str) -> dict[str, str]:
    """Return the header of a distribution's metadata, by lowercase key."""
    fields: dict[str, str] = {}
    lines = (
        _lines(metadata, "METADATA")
        or _lines(metadata, "PKG-INFO")
        or _lines(metadata)  # an old `.egg-info` may be a file
    )
    for line in lines:
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields.setdefault(key.lower(), value.strip())
    return fields


def _lines(*parts: str) -> list[str]:
    """Return the lines of a file, none if it cannot be read."""
    path = join(*parts)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
