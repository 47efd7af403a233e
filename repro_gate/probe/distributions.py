"""Which installed distributions this process imported, with their versions: what a lockfile has to
name.

Reads the metadata folders on `sys.path` by hand: importing `importlib.metadata` here would import,
for its own needs, whatever modules of those names lie beside the training's script. A module or
library counts for the distribution that installed its file; a distribution that is installed as a
link to a checkout (editable) has no files of its own and is not listed, its files are among the
opened ones.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, Iterator, List, Set, Tuple

from ..trace.format import MAX_DISTRIBUTIONS, MAX_IMPORTS
from .process import mapped_files, printable

# of files, relative to the site folder or (the second) to the metadata folder
_LISTS = ("RECORD", "installed-files.txt", "SOURCES.txt")


def imported(checkout: Any = None) -> Tuple[Dict[str, str], List[List[str]]]:
    """Return canonical name (PEP 503) -> version, by name; and of those that are copies of what the
    `checkout` holds (`checkout_imports.CheckoutImports`), module, path and name."""
    found: Dict[str, str] = {}
    copies: List[List[str]] = []
    for site, loaded in _loaded().items():
        for metadata, own in _owners(site, loaded):
            fields = _fields(metadata)
            name = re.sub(r"[-_.]+", "-", fields.get("name", "")).lower()[:200]
            if not name or len(found) >= MAX_DISTRIBUTIONS:
                continue
            found.setdefault(name, fields.get("version", "")[:200])
            room = checkout is not None and len(copies) < MAX_IMPORTS
            if room and checkout.has_copy(metadata, name, own):
                copy = (_top(own[0]), os.path.join(site, own[0]), name)
                copies.append(list(map(printable, copy)))
    return dict(sorted(found.items())), copies


def _loaded() -> Dict[str, Set[str]]:
    """Return site folder -> files loaded below it, relative to the folder: modules, and libraries
    mapped into memory."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    sites = {
        os.path.abspath(entry) + os.sep for entry in sys.path if os.path.isdir(entry)
    }
    innermost = sorted(sites, key=len, reverse=True)
    loaded: Dict[str, Set[str]] = {}
    for file in (*files, *mapped_files()):
        if isinstance(file, str):
            site = next(filter(file.startswith, innermost), None)
            if site is not None:
                relative = file[len(site) :].replace(os.sep, "/")
                loaded.setdefault(os.path.realpath(site), set()).add(relative)
    return loaded


def _owners(site: str, loaded: Set[str]) -> Iterator[Tuple[str, List[str]]]:
    """Yield the metadata of each distribution of one site folder that owns any of the `loaded`
    files, and those files: by its list of files; without one, by its top-level names."""
    for name in sorted(os.listdir(site)) if os.path.isdir(site) else ():
        if name.endswith((".dist-info", ".egg-info")):
            metadata = os.path.join(site, name)
            files = set(_files(metadata))
            own = loaded & files
            if not files:
                tops = {
                    line.strip()
                    for line in _lines(os.path.join(metadata, "top_level.txt"))
                }
                own = {file for file in loaded if _top(file) in tops}
            if own:
                yield metadata, sorted(own)


def _top(relative: str) -> str:
    """Return `numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of
    `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _files(metadata: str) -> Iterator[str]:
    """Yield what the first list that there is names below the site folder."""
    for name in _LISTS:
        lines = _lines(os.path.join(metadata, name))
        for line in lines:
            quoted = line.startswith('"')
            path = (
                line[1:].partition('"')[0]
                if quoted
                else line.rstrip("\n").partition(",")[0]
            )
            if name == "installed-files.txt" and path.startswith("../"):
                path = path[3:]
            if path and not path.startswith(("..", "/")):
                yield path
        if lines:
            return


def _fields(metadata: str) -> Dict[str, str]:
    """Return the header of a distribution's metadata, by lowercase key."""
    fields: Dict[str, str] = {}
    places = (
        os.path.join(metadata, "METADATA"),
        os.path.join(metadata, "PKG-INFO"),
        metadata,
    )
    for line in next(filter(None, map(_lines, places)), []):
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields.setdefault(key.lower(), value.strip())
    return fields


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
