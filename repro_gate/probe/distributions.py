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
from collections.abc import Iterator
from typing import NamedTuple

from .process import imported_files, mapped_files


class Distribution(NamedTuple):
    """One that this process imported: its folder of metadata, and which of its `files`, relative to
    the site folder, were loaded."""

    name: str  # canonical (PEP 503)
    version: str
    metadata: str
    files: list[str]


def imported() -> Iterator[Distribution]:
    """Yield the imported distributions, site by site."""
    for site, loaded in _loaded().items():
        for entry in metadata_in(site):
            files = sorted(_owned(entry, loaded))
            fields = _fields(entry) if files else {}
            name = canonical(fields.get("name", ""))
            version = fields.get("version", "")[:200]
            if name:
                yield Distribution(name, version, entry, files)


def canonical(name: str) -> str:
    """Return a distribution's name as PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()[:200]


def metadata_in(site: str) -> Iterator[str]:
    """Yield the folders of metadata, or files, in a folder of `sys.path`, if it is one."""
    for name in sorted(os.listdir(site)) if os.path.isdir(site) else ():
        if name.endswith((".dist-info", ".egg-info")):
            yield os.path.join(site, name)


def _loaded() -> dict[str, set[str]]:
    """Return site folder -> files loaded below it, relative to the folder: modules, and libraries
    mapped into memory."""
    sites = [os.path.abspath(entry) for entry in sys.path if os.path.isdir(entry)]
    innermost = sorted(sites, key=len, reverse=True)
    files = [file for _, file in imported_files()]
    loaded: dict[str, set[str]] = {}
    for file in files + mapped_files():
        for site in innermost:
            if file.startswith(site + os.sep):
                below = loaded.setdefault(os.path.realpath(site), set())
                below.add(file[len(site) + 1 :])
                break
    return loaded


def _owned(
    metadata: str,
    loaded: set[str],
) -> set[str]:
    """Return those of the `loaded` files that a distribution lists; if it has no list, those below
    its top-level names."""
    files = set()
    for line in _lines(metadata, "RECORD"):
        separator = '"' if line.startswith('"') else ","
        files.add(line.lstrip('"').partition(separator)[0].strip())
    if files:
        return loaded & files
    lines = _lines(metadata, "top_level.txt")
    tops = set(map(str.strip, lines))
    return {file for file in loaded if top(file) in tops}


def top(relative: str) -> str:
    """Return `numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of
    `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _fields(metadata: str) -> dict[str, str]:
    """Return the header of a distribution's metadata, by lowercase key."""
    fields: dict[str, str] = {}
    lines = _lines(metadata, "METADATA") or _lines(metadata, "PKG-INFO")
    if not lines:
        lines = _lines(metadata)
    for line in lines:
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields.setdefault(key.lower(), value.strip())
    return fields


def _lines(*path: str) -> list[str]:
    try:
        with open(
            os.path.join(*path),
            encoding="utf-8",
            errors="replace",
        ) as file:
            return file.readlines()
    except OSError:
        return []
