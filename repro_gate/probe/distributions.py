"""Which installed distributions this process imported, with their versions: what a lockfile has to name.

Reads the metadata folders on `sys.path` by hand: importing `importlib.metadata` here would import, for its own needs, whatever modules of
those names lie beside the training's script. A module or library counts for the distribution that installed its file; a distribution that
is installed as a link to a checkout (editable) has no files of its own and is not listed, its files are among the opened ones.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..trace.format import MAX_DISTRIBUTIONS, MAX_IMPORTS
from .process import mapped_files, printable

_FOLDERS = (".dist-info", ".egg-info")
_LISTS = ("RECORD", "installed-files.txt", "SOURCES.txt")  # of files, relative to the site folder or (the second) to the metadata folder


class _Installed(NamedTuple):
    metadata: str  # folder, or (an old egg-info) a file
    tops: Optional[Set[str]]  # names directly below the site folder, as top_level.txt has them; None: it has none


def imported(original: Any = None) -> Tuple[Dict[str, str], List[List[str]]]:
    """Canonical name (PEP 503) -> version, by name; and of those that are copies of what the `original` checkout holds
    (`redirect.Original`), module, path and name."""
    sites = [entry for entry in sys.path if os.path.isdir(entry)]
    loaded = _loaded(list(dict.fromkeys(os.path.abspath(entry) for entry in sites)))
    found: Dict[str, str] = {}
    copies: List[List[str]] = []
    for site, files in loaded.items():
        for installed in _owners(site, files):
            name, version = _name_and_version(installed.metadata)
            if name and len(found) < MAX_DISTRIBUTIONS:
                canonical = re.sub(r"[-_.]+", "-", name).lower()[:200]
                found.setdefault(canonical, version[:200])
                own = sorted(file for top in _tops(installed) for file in files.get(top, ()))
                if own and len(copies) < MAX_IMPORTS and original is not None and original.has_copy(installed.metadata, canonical, own):
                    copies.append([printable(text) for text in (_top(own[0]), os.path.join(site, own[0]), canonical)])
    return dict(sorted(found.items())), copies


def _loaded(sites: List[str]) -> Dict[str, Dict[str, Set[str]]]:
    """Site folder -> top-level name -> files loaded below it, relative to the folder: modules, and libraries mapped into memory."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())] + mapped_files()
    prefixes = sorted((site + os.sep for site in sites), key=len, reverse=True)  # the innermost folder holds a file
    real = {prefix: os.path.realpath(prefix) for prefix in prefixes}
    loaded: Dict[str, Dict[str, Set[str]]] = {}
    for file in files:
        prefix = next((item for item in prefixes if file.startswith(item)), None) if isinstance(file, str) else None
        if prefix is not None and isinstance(file, str):
            relative = file[len(prefix) :].replace(os.sep, "/")
            loaded.setdefault(real[prefix], {}).setdefault(_top(relative), set()).add(relative)
    return loaded


def _owners(site: str, files: Dict[str, Set[str]]) -> List[_Installed]:
    """The distributions of one site folder that own any of `files` (top-level name -> paths).

    A regular package that only one of them claims is its own; where several share a name, or it is a namespace, their lists of files
    decide.
    """
    claims: Dict[str, List[_Installed]] = {}
    for item in _installed(site):
        for top in _tops(item):
            claims.setdefault(top, []).append(item)
    owners: Dict[str, _Installed] = {}
    for top, paths in files.items():
        claimed = claims.get(top, [])
        regular = {top + "/__init__.py", top + ".py"} & paths or any("/" not in path for path in paths)
        if len(claimed) == 1 and regular:
            owners[claimed[0].metadata] = claimed[0]
            continue
        for item in claimed:
            if item.metadata not in owners and paths.intersection(_files(item.metadata)):
                owners[item.metadata] = item
    return list(owners.values())


def _installed(site: str) -> Iterator[_Installed]:
    try:
        names = sorted(os.listdir(site))
    except OSError:
        return
    for name in names:
        if name.endswith(_FOLDERS):
            metadata = os.path.join(site, name)
            tops = _lines(os.path.join(metadata, "top_level.txt"))
            yield _Installed(metadata, {line.strip().split("/")[0] for line in tops if line.strip()} if tops else None)


def _tops(item: _Installed) -> Set[str]:
    """The top-level names that a distribution claims."""
    return item.tops if item.tops is not None else {_top(file) for file in _files(item.metadata)}


def _top(relative: str) -> str:
    """`numpy` of `numpy/core/x.py`, `six` of `six.py`, `_cffi_backend` of `_cffi_backend.cpython-311-x86_64-linux-gnu.so`."""
    head, separator, _ = relative.partition("/")
    return head if separator else head.partition(".")[0]


def _files(metadata: str) -> Iterator[str]:
    """The files of a distribution, relative to its site folder, as it lists them."""
    for name in _LISTS:
        lines = _lines(os.path.join(metadata, name))
        if lines:
            for line in lines:
                path = line[1:].partition('"')[0] if line.startswith('"') else line.rstrip("\n").partition(",")[0]
                path = path[3:] if name == "installed-files.txt" and path.startswith("../") else path
                if path and not path.startswith(("..", "/")):
                    yield path
            return


def _name_and_version(metadata: str) -> Tuple[str, str]:
    """Name and version as the metadata's header says."""
    fields: Dict[str, str] = {}
    for line in _lines(os.path.join(metadata, "METADATA")) or _lines(os.path.join(metadata, "PKG-INFO")) or _lines(metadata):
        key, _, value = line.partition(":")
        if not line.strip():
            break
        fields.setdefault(key.lower(), value.strip())
    return fields.get("name", ""), fields.get("version", "")


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
