"""Makes a package of the checkout that is installed as a link to it (editable) come from the run's own workspace, which holds the code
under test; and notes what was imported from the original checkout all the same. It must run before any line of the user's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set

from ..trace.format import MAX_IMPORTS, MAX_NAME
from . import opened, session
from .process import printable

_BASES = ("", "src", "lib", "python")  # where a project keeps its packages
_LINKS = 10_000  # files looked at in a tree of links


class Original:
    """The checkout that the workspace is a copy of; an observer of the session. Without one in the configuration it does nothing."""

    def __init__(self, config: Dict[str, Any]) -> None:
        given = config.get("checkout") or {}
        self._root = str(given.get("root", "")).rstrip(os.sep) + os.sep
        self._workspace = os.path.realpath(config.get("workspace", "")) + os.sep
        self._ignored = frozenset(given.get("ignored", ()))
        self._projects = frozenset(given.get("projects", ()))
        own = [os.path.dirname(self._workspace.rstrip(os.sep)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
        folders = opened.with_separator([*opened.interpreter(), *own])
        self._others = tuple(folder for folder in folders if folder.startswith(self._root))  # an environment may lie in the checkout
        self._moved: Set[str] = set()  # folders of the workspace that stand for one of the checkout
        self._found: Set[str] = set()
        self._pending: List[List[str]] = []

    def start(self) -> None:
        """Turn what leads into the checkout to the workspace."""
        if self._root == os.sep:
            return
        sys.path[:] = list(dict.fromkeys(place for entry in sys.path for place in self._entries(entry)))
        for number, finder in enumerate(sys.meta_path):
            name = str(getattr(finder, "__module__", ""))
            if "editable" not in name:
                continue
            module = sys.modules.get(name)
            mapping, spaces = getattr(module, "MAPPING", None), getattr(module, "NAMESPACES", None)
            if isinstance(mapping, dict):  # setuptools' finder: package -> folder, and namespace -> folders
                mapping.update({package: self._place(path) for package, path in mapping.items()})
                spaces = spaces if isinstance(spaces, dict) else {}
                spaces.update({space: [self._place(path) for path in paths] for space, paths in spaces.items()})
            else:
                sys.meta_path[number] = _Turned(finder, self)
        if self._moved:
            sys.meta_path.append(_Ignored(self))

    def turned(self, spec: ModuleSpec) -> ModuleSpec:
        """What another finder found, in the workspace where it is there."""
        places = None if spec.submodule_search_locations is None else [self._place(path) for path in spec.submodule_search_locations]
        origin = self._place(spec.origin) if spec.origin and os.path.isabs(spec.origin) else None
        if origin is not None and origin != spec.origin and os.path.isfile(origin):
            return importlib.util.spec_from_file_location(spec.name, origin, submodule_search_locations=places) or spec
        if spec.origin is None and places:
            spec.submodule_search_locations = places
        return spec

    def left_behind(self, entry: str) -> Optional[str]:
        """The checkout's folder for one of the workspace that stands for it; None for any other."""
        below = os.path.abspath(entry) + os.sep
        if not any(below.startswith(moved) for moved in self._moved):
            return None
        return self._root + below[len(self._workspace) :].rstrip(os.sep)

    def ignores(self, path: str) -> bool:
        """Whether git ignores a file of the checkout."""
        parts = (self.relative(path) or "").split(os.sep)
        return "/".join(parts) in self._ignored or any("/".join(parts[:n]) + "/" in self._ignored for n in range(1, len(parts)))

    def relative(self, path: str) -> Optional[str]:
        """The path from the checkout's root; None for what lies elsewhere, or is an installed package, the interpreter or the gate."""
        below = os.path.realpath(path) + os.sep
        if not below.startswith(self._root) or below.startswith(self._others) or any(part in below for part in opened.INSTALLED):
            return None
        return below[len(self._root) :].rstrip(os.sep)

    def has_copy(self, metadata: str, name: str, files: Iterable[str]) -> bool:
        """Whether an installed distribution is a copy of what the checkout holds: pip noted its folder as the source, or it is called as
        the checkout's project and one of the `files` that were loaded of it lies in the workspace too. A name alone proves nothing."""
        if self._root == os.sep or os.path.realpath(metadata).startswith(self._workspace):
            return False
        source = _source(metadata)
        if source is not None and self.relative(source) is not None:
            return True
        return name in self._projects and any(
            os.path.isfile(os.path.join(self._workspace, base, file)) for file in files for base in _BASES
        )

    def finish(self) -> None:
        """Note the modules that came from the checkout. An installed package may be a link, so its top is looked at too."""
        if self._root == os.sep:
            return
        known: Dict[str, Optional[str]] = {}  # folder -> distribution that it was imported for, "" in the checkout; None: all is well
        clones = self._clones()
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            installed = isinstance(file, str) and any(part in file for part in opened.INSTALLED)
            if not isinstance(file, str) or not os.path.isabs(file) or file in self._found or (installed and "." in name):
                continue
            folder = os.path.dirname(file)
            if folder not in known or clones:  # in another clone each file counts by itself
                known[folder] = "" if self.relative(folder) is not None else self._of_clone(file, clones)
            distribution = known[folder]
            if distribution is not None and len(self._found) < MAX_IMPORTS:
                self._found.add(file)
                row = [printable(text) for text in (name, os.path.realpath(file), distribution)]
                if all(len(text) <= MAX_NAME for text in row):
                    self._pending.append(row)

    def flush(self, current: "session.Session") -> None:
        """Write what was found since the last time."""
        if self._pending:
            rows, self._pending = self._pending, []
            current.event("imports", modules=rows)

    def forked(self) -> None:
        """This is a forked child: what its parent found is its parent's to write."""
        self._pending = []

    def _clones(self) -> Dict[str, str]:
        """Other folders that projects called as the checkout's are installed as links to, each with the project's name."""
        found: Dict[str, str] = {}
        for site in sys.path if self._projects else ():
            for name in os.listdir(site) if os.path.isdir(site) else ():
                project = re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower()
                source = _source(os.path.join(site, name), True) if name.endswith(".dist-info") and project in self._projects else None
                if source is not None and self.relative(source) is None:
                    found[os.path.realpath(source) + os.sep] = project
        return found

    def _of_clone(self, file: str, clones: Dict[str, str]) -> Optional[str]:
        """The project of another clone that a file belongs to, where the workspace has the same file; None for any other file."""
        real = os.path.realpath(file) if clones else ""
        for folder, project in clones.items():
            if real.startswith(folder) and os.path.isfile(self._workspace + real[len(folder) :]):
                return project
        return None

    def _place(self, path: str) -> str:
        """The workspace's path for one of the checkout; any other as it is."""
        relative = self.relative(path) if os.path.isabs(path) else None
        if relative is None:
            return path
        place = os.path.join(self._workspace, relative) if relative else self._workspace.rstrip(os.sep)
        self._moved.add(place + os.sep)
        return place

    def _entries(self, entry: str) -> Sequence[str]:
        """What stands on sys.path for an entry. A folder that the workspace lacks may be a tree of links (setuptools' strict mode)."""
        place = entry if not entry or self.relative(entry) is None else os.path.join(self._workspace, self.relative(entry) or "")
        if place == entry:
            return [entry]
        if os.path.isdir(place):
            return [self._place(entry)]
        return [self._place(folder) for folder in self._linked(entry)] or [entry]

    def _linked(self, folder: str) -> Sequence[str]:
        """The folders that hold what the links below `folder` lead to, under the same paths."""
        found: Dict[str, None] = {}
        seen = 0
        for base, _, names in os.walk(folder):
            for name in names:
                seen += 1
                path = os.path.join(base, name)
                real, below = os.path.realpath(path), os.sep + os.path.relpath(path, folder)
                if os.path.islink(path) and real.endswith(below):
                    found[real[: -len(below)]] = None
            if seen > _LINKS:
                break
        return list(found)


class _Turned:
    """Another's finder, what it finds turned to the workspace."""

    def __init__(self, finder: Any, original: Original) -> None:
        self._finder, self._original = finder, original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        spec = self._finder.find_spec(name, path, target)
        return None if spec is None else self._original.turned(spec)


class _Ignored:
    """The last finder: what git ignores (a compiled extension, a generated `_version.py`, the metadata of an old editable install) is in no
    workspace, so it comes from the original checkout."""

    def __init__(self, original: Original) -> None:
        self._original = original

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        for folder in self._folders(sys.path if path is None else path):
            spec = PathFinder.find_spec(name, [folder])
            if spec is not None and spec.origin and self._original.ignores(spec.origin):
                return spec
        return None

    def find_distributions(self, context: Any) -> Iterable[Any]:
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        folders = self._folders(context.path)
        return MetadataPathFinder.find_distributions(DistributionFinder.Context(name=context.name, path=folders)) if folders else ()

    def _folders(self, entries: Iterable[Any]) -> List[str]:
        found = (self._original.left_behind(entry) for entry in entries if isinstance(entry, str) and os.path.isabs(entry))
        return [folder for folder in found if folder is not None]


def _source(metadata: str, editable: bool = False) -> Optional[str]:
    """The folder that pip copied a distribution from, as it notes it (PEP 610), or, where `editable`, the one that it is linked to. None:
    that is not told."""
    try:
        with open(os.path.join(metadata, "direct_url.json"), encoding="utf-8") as file:
            noted = json.load(file)
        url, folder = noted["url"], noted["dir_info"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if (
        not isinstance(url, str)
        or not url.startswith("file://")
        or not isinstance(folder, dict)
        or bool(folder.get("editable")) != editable
    ):
        return None
    return os.fsdecode(re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(url[len("file://") :])))
