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
_LISTS = (
    "RECORD",
    "installed-files.txt",
    "SOURCES.txt",
)


def imported(checkout: Any = None) -> Tuple[Dict[str, str], List[List[str]]]:
    """Canonical name (PEP 503) -> version, by name; and of those that are copies of what the
    `checkout` holds (`checkout_imports.CheckoutImports`), module, path and name."""
    found: Dict[str, str] = {}
    copies: List[List[str]] = []
    for site, files in _loaded([entry for entry in sys.path if os.path.isdir(entry)]).items():
        for metadata, own in _owners(site, files).items():
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


def _loaded(sites: List[str]) -> Dict[str, Dict[str, Set[str]]]:
    """Site folder -> top-level name -> files loaded below it, relative to the folder: modules, and
    libraries mapped into memory."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # the innermost folder holds a file
    prefixes = sorted({os.path.abspath(site) + os.sep for site in sites}, key=len, reverse=True)
    loaded: Dict[str, Dict[str, Set[str]]] = {}
    for file in (*files, *mapped_files()):
        if isinstance(file, str):
            for prefix in filter(file.startswith, prefixes):
                relative = file[len(prefix) :].replace(os.sep, "/")
                found = loaded.setdefault(os.path.realpath(prefix), {})
                found.setdefault(_top(relative), set()).add(relative)
                break
    return loaded


def _owners(site: str, loaded: Dict[str, Set[str]]) -> Dict[str, List[str]]:
    """Metadata of each distribution of one site folder that owns any of the `loaded` files
    (top-level name -> paths) -> those that it may own. A regular package that only one of them
    claims is its own; where several share a name, or it is a namespace, their lists decide."""
    claims: Dict[str, List[str]] = {}
    for name in sorted(os.listdir(site)) if os.path.isdir(site) else ():
        if name.endswith((".dist-info", ".egg-info")):
            metadata = os.path.join(site, name)
            tops = {
                line.strip().split("/")[0]
                for line in _lines(os.path.join(metadata, "top_level.txt"))
            } - {""}
            for top in tops or {_top(file) for file in _files(metadata)}:
                claims.setdefault(top, []).append(metadata)
    owners: Dict[str, List[str]] = {}
    for top, paths in loaded.items():
        claimed = claims.get(top, [])
        regular = {top + "/__init__.py", top + ".py"} & paths or any(
            "/" not in path for path in paths
        )
        for metadata in claimed:
            if (len(claimed) == 1 and regular) or paths.intersection(_files(metadata)):
                owners.setdefault(metadata, []).extend(sorted(paths))
    return owners


def _top(relative: str) -> str:
    """`numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of
    `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _files(metadata: str) -> Iterator[str]:
    for name in _LISTS:
        lines = _lines(os.path.join(metadata, name))
        for line in lines:
            path = (
                line[1:].partition('"')[0]
                if line.startswith('"')
                else line.rstrip("\n").partition(",")[0]
            )
            path = path[3:] if name == "installed-files.txt" and path.startswith("../") else path
            if path and not path.startswith(("..", "/")):
                yield path
        if lines:
            return


def _fields(metadata: str) -> Dict[str, str]:
    """The header of a distribution's metadata, by lowercase key."""
    fields: Dict[str, str] = {}
    for line in (
        _lines(os.path.join(metadata, "METADATA"))
        or _lines(os.path.join(metadata, "PKG-INFO"))
        or _lines(metadata)
    ):
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
