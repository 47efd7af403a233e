"""Makes a package of the checkout that is installed as a link to it (editable) come from the run's
own workspace, which holds the code under test; and notes what was imported from the original
checkout all the same. It must run before any line of the user's."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from ..trace.format import MAX_IMPORTS, MAX_NAME
from . import distributions, opened
from .process import imported_files, printable

_BASES = ("", "src", "lib", "python")  # where a project keeps its packages


class CheckoutImports:
    """The checkout that the workspace is a copy of; an observer of the session. Without one in the
    configuration it redirects nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        checkout = config["checkout"] or {}
        # a mere separator: there is no checkout
        self._root = str(checkout.get("root", "")).rstrip(os.sep) + os.sep
        self._workspace = os.path.realpath(config["workspace"]) + os.sep
        self._ignored = frozenset(checkout.get("ignored", ()))
        self._projects = frozenset(checkout.get("projects", ()))
        run = os.path.dirname(self._workspace.rstrip(os.sep))
        folders = opened.with_separator([*opened.interpreter(), run])
        # an environment may lie in the checkout
        self._others = tuple([path for path in folders if path.startswith(self._root)])
        self._moved = set[
            str
        ]()  # folders of the workspace that stand for one of the checkout
        self._files = set[str]()  # that are noted

    def start(self) -> None:
        """Turn what leads into the checkout to the workspace."""
        if self._root == os.sep:
            return
        entries = [self._in_workspace(entry, must_exist=True) for entry in sys.path]
        sys.path[:] = list(dict.fromkeys(entries))
        editable = False
        for number, finder in enumerate(sys.meta_path):
            name = str(getattr(finder, "__module__", ""))
            if "editable" in name:
                editable = True
                sys.meta_path[number] = _Redirected(finder, self)
                # setuptools finds a namespace's folders by a hook of `sys.path`
                spaces = getattr(sys.modules.get(name), "NAMESPACES", {})
                for folders in spaces.values():
                    folders[:] = map(self._in_workspace, folders)
        if self._moved or editable:
            sys.meta_path.append(_Ignored(self))

    def redirect(self, spec: ModuleSpec) -> ModuleSpec:
        """Return what another finder found, in the workspace where it is there."""
        folders = spec.submodule_search_locations
        if folders is not None:
            folders = [*map(self._in_workspace, folders)]
        origin = self._in_workspace(spec.origin or "")
        if origin != spec.origin and os.path.isfile(origin):
            find = importlib.util.spec_from_file_location
            return find(spec.name, origin, submodule_search_locations=folders) or spec
        if not spec.origin and folders:
            spec.submodule_search_locations = folders
        return spec

    def left_behind(self, entry: Any) -> str | None:
        """Return the checkout's folder for one of the workspace that stands for it; None for any
        other."""
        below = os.path.abspath(entry) + os.sep if isinstance(entry, str) else ""
        if not below.startswith(tuple(self._moved)):
            return None
        return self._root + below[len(self._workspace) :].rstrip(os.sep)

    def ignores(self, path: str) -> bool:
        """Return whether git ignores a file of the checkout, or a folder that it lies in."""
        parts = (self.relative(path) or "").split(os.sep)
        folders = {"/".join(parts[:n]) + "/" for n in range(1, len(parts))}
        return not self._ignored.isdisjoint(folders | {"/".join(parts)})

    def relative(self, path: str) -> str | None:
        """Return the path from the checkout's root; None for what lies elsewhere, or is an
        installed package, the interpreter or the gate."""
        below = os.path.realpath(path) + os.sep
        is_other = below.startswith(self._others) or opened.installed(below)
        if is_other or not below.startswith(self._root):
            return None
        return below[len(self._root) :].rstrip(os.sep)

    def has_copy(self, metadata: str, name: str, files: Iterable[str]) -> bool:
        """Return whether an installed distribution is a copy of what the checkout holds: pip noted
        its folder as the source, or it is called as the checkout's project and one of the `files`
        that were loaded of it lies in the workspace too. A name alone proves nothing."""
        is_own = os.path.realpath(metadata).startswith(self._workspace)
        if self._root == os.sep or is_own:
            return False
        source = _source(metadata)
        if source is not None and self.relative(source) is not None:
            return True
        places = itertools.product([self._workspace], _BASES, files)
        copies = any(os.path.isfile(os.path.join(*place)) for place in places)
        return name in self._projects and copies

    def flush(self, current: Any, last: bool) -> None:
        """Write, at the end, the modules that came from the checkout (an installed package may be a
        link, so its top is looked at too); and where the run is asked for them the imported
        distributions, and those of them that are copies of the checkout."""
        rows = self._modules() if last and self._root != os.sep else []
        if last and current.introduced and current.config["observe"]:
            versions, copies = distributions.imported(self)
            current.event("distributions", versions=versions)
            rows += copies
        if rows:
            current.event("imports", rows=rows)

    def forked(self) -> None:
        """Go on: what was imported is the child's too."""

    def _modules(self) -> list[list[str]]:
        rows = []
        places: dict[str, bool] = {}  # folder -> whether it lies in the checkout
        clones = self._clones()
        for name, file in imported_files():
            is_part = "." in name and opened.installed(file)
            if is_part or file in self._files or not os.path.isabs(file):
                continue
            folder = os.path.dirname(file)
            if folder not in places:
                places[folder] = self.relative(folder) is not None
            clone = "" if places[folder] else self._clone_of(file, clones)
            if (places[folder] or clone) and len(self._files) < MAX_IMPORTS:
                self._files.add(file)
                row = [printable(name), printable(os.path.realpath(file)), clone]
                rows += [row] if max(map(len, row)) <= MAX_NAME else []
        return rows

    def _clones(self) -> dict[str, str]:
        """Return other folders that a project called as the checkout's is installed as a link to,
        with the project's name."""
        clones: dict[str, str] = {}
        for site in filter(os.path.isdir, sys.path if self._projects else ()):
            for name in os.listdir(site):
                project = re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower()
                if name.endswith(".dist-info") and project in self._projects:
                    source = _source(os.path.join(site, name), editable=True)
                    if source is not None and self.relative(source) is None:
                        clones[os.path.realpath(source) + os.sep] = project
        return clones

    def _clone_of(self, file: str, clones: dict[str, str]) -> str:
        """Return the project whose other clone a file belongs to, if the workspace has the same
        file; empty for any other file."""
        real = os.path.realpath(file) if clones else ""
        for folder, project in clones.items():
            own = self._workspace + real[len(folder) :]
            if real.startswith(folder) and os.path.isfile(own):
                return project
        return ""

    def _in_workspace(self, path: str, must_exist: bool = False) -> str:
        """Return the workspace's path for one of the checkout; any other as it is."""
        relative = self.relative(path) if os.path.isabs(path) else None
        if relative is None:
            return path
        own = os.path.join(self._workspace, relative).rstrip(os.sep)
        if must_exist and not os.path.isdir(own):
            return path
        self._moved.add(own + os.sep)
        return own


class _Redirected:
    def __init__(self, finder: Any, checkout: CheckoutImports) -> None:
        self._finder = finder
        self._checkout = checkout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, *args: Any) -> ModuleSpec | None:
        spec = self._finder.find_spec(*args)
        return None if spec is None else self._checkout.redirect(spec)


class _Ignored:
    """The last finder: what git ignores (a compiled extension, a generated `_version.py`, the
    metadata of an old editable install) is in no workspace, so it comes from the original
    checkout."""

    def __init__(self, checkout: CheckoutImports) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, path: Any = None, _: Any = None) -> Any:
        for entry in sys.path if path is None else path:
            folder = self._checkout.left_behind(entry)
            spec = PathFinder.find_spec(name, [folder]) if folder else None
            if spec is not None and spec.origin and self._checkout.ignores(spec.origin):
                return spec
        return None

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """Find the metadata that `setup.py develop` leaves beside the code."""
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        folders = [*filter(None, map(self._checkout.left_behind, context.path))]
        inner = DistributionFinder.Context(name=context.name, path=folders)
        return MetadataPathFinder.find_distributions(inner)


def _source(metadata: str, editable: bool = False) -> str | None:
    """Return the folder that pip copied a distribution from, as it notes it (PEP 610), or, where
    `editable`, the one it is linked to. None: that is not told."""
    try:
        with open(os.path.join(metadata, "direct_url.json"), encoding="utf-8") as file:
            noted = json.load(file)
        url = str(noted["url"])
        linked = bool(noted["dir_info"].get("editable"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if linked != editable or not url.startswith("file://"):
        return None
    # takes milliseconds, which most need not spend
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(url[len("file://") :]))
