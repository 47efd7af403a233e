"""Makes a package of the checkout that is installed as a link to it (editable) come from the run's
own workspace, which holds the code under test; and notes what was imported from the original
checkout all the same. It must run before any line of the user's."""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from os.path import (
    abspath,
    dirname,
    isabs,
    isdir,
    isfile,
    join,
    normpath,
    realpath,
    relpath,
)
from typing import Any

from ..trace.format import MAX_DISTRIBUTIONS, MAX_IMPORTS, MAX_NAME
from . import opened
from .distributions import Distribution, canonical, imported, top_level
from .process import imported_files, printable

_BASES = ("", "src", "lib", "python")  # where a project keeps its packages
_NO_CHECKOUT = {"root": "", "ignored": (), "projects": ()}


class _Redirected:
    """A finder, which may be a class or any object, whose answers are redirected."""

    def __init__(self, finder: Any, redirect: Callable[[ModuleSpec], ModuleSpec]):
        self._finder = finder
        self._redirect = redirect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, *args: Any) -> ModuleSpec | None:
        spec = self._finder.find_spec(*args)
        return spec and self._redirect(spec)


class CheckoutImports:
    """The checkout that the workspace is a copy of; an observer of the session. Without one in the
    configuration it redirects nothing.

    As the last finder of modules it finds what git ignores (a compiled extension, a generated
    `_version.py`, the metadata of an old editable install), which is in no workspace, in the
    original checkout.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        checkout = config["checkout"] or _NO_CHECKOUT
        root = str(checkout["root"]).rstrip(os.sep) + os.sep
        workspace: str = realpath(config["workspace"])
        others = [*opened.interpreter(), dirname(workspace)]
        folders = opened.with_separator(others)
        self._root = root
        self._exists = root != os.sep
        self._workspace = workspace + os.sep
        # An environment may lie in the checkout.
        self._others = tuple([path for path in folders if path.startswith(root)])
        self._projects = frozenset(checkout["projects"])
        # Each with a separator behind it, files too.
        self._ignored = tuple([join(it, "") for it in checkout["ignored"]])
        # Folders of the workspace that stand for one of the checkout.
        self._moved: set[str] = set()

    def start(self) -> None:
        """Turn what leads into the checkout to the workspace."""
        if not self._exists:
            return
        entries = [self._in_workspace(entry, must_exist=True) for entry in sys.path]
        sys.path[:] = dict.fromkeys(entries)
        is_editable = False
        for number, finder in enumerate(sys.meta_path):
            module = str(getattr(finder, "__module__", ""))
            if "editable" not in module:
                continue
            is_editable = True
            sys.meta_path[number] = _Redirected(finder, self._redirect)
            # Setuptools finds a namespace's folders by a hook of `sys.path`.
            namespaces = getattr(sys.modules.get(module), "NAMESPACES", {})
            for folders in namespaces.values():
                folders[:] = map(self._in_workspace, folders)
        if self._moved or is_editable:
            sys.meta_path.append(self)

    def _redirect(self, spec: ModuleSpec) -> ModuleSpec:
        """Return what another finder found, in the workspace where it is there."""
        folders = spec.submodule_search_locations
        if folders is not None:
            folders = list(map(self._in_workspace, folders))
        origin = self._in_workspace(spec.origin or "")
        if origin != spec.origin and isfile(origin):
            moved = spec_from_file_location(
                spec.name,
                origin,
                submodule_search_locations=folders,
            )
            return moved or spec
        if folders and not spec.origin:
            spec.submodule_search_locations = folders
        return spec

    def find_spec(self, name: str, path: Any = None, _: Any = None) -> Any:
        """Find a module of the original checkout that git ignores."""
        for folder in self._left_behind(sys.path if path is None else path):
            spec = PathFinder.find_spec(name, [folder])
            origin = spec and spec.origin
            if origin and (self._relative(origin) + os.sep).startswith(self._ignored):
                return spec
        return None

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """Find the metadata that `setup.py develop` leaves beside the code."""
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        folders = self._left_behind(context.path)
        inner = DistributionFinder.Context(name=context.name, path=folders)
        return MetadataPathFinder.find_distributions(inner)

    def _left_behind(self, path: Iterable[Any]) -> list[str]:
        """Return the checkout's folders for those of a path that stand for them."""
        folders = []
        for entry in path:
            own = abspath(entry) + os.sep if isinstance(entry, str) else ""
            if own.startswith(tuple(self._moved)):
                relative = own[len(self._workspace) :]
                folders.append(normpath(self._root + relative))
        return folders

    def flush(self, current: Any, last: bool) -> None:
        """Write, at the end, the modules that came from the checkout; and where the run is asked
        for them the imported distributions, and those of them that are copies of the checkout."""
        if not last:
            return
        rows = self._modules() if self._exists else []
        if current.introduced and current.config["observe"]:
            versions: dict[str, str] = {}
            copies: list[list[str]] = []
            for item in imported():
                if len(versions) >= MAX_DISTRIBUTIONS:
                    break
                versions.setdefault(item.name, item.version)
                if len(copies) < MAX_IMPORTS and self._has_copy(item):
                    first = item.files[0]
                    path = join(dirname(item.metadata), first)
                    row = [top_level(first), path, item.name]
                    copies.append(list(map(printable, row)))
            in_order = dict(sorted(versions.items()))
            current.event("distributions", versions=in_order)
            rows += copies
        if rows:
            current.event("imports", rows=rows)

    def forked(self) -> None:
        """Go on: what was imported is the child's too."""

    def _modules(self) -> list[list[str]]:
        """Return module, file and clone of what came from the checkout, or from another clone of
        it. An installed package may be a link, so its top is looked at too."""
        rows: list[list[str]] = []
        known: set[str] = set()
        clones = self._clones()
        relative = functools.lru_cache(maxsize=None)(self._relative)
        for name, file in imported_files():
            is_part = "." in name and opened.installed(file)
            if is_part or file in known or not isabs(file):
                continue
            clone = ""
            if not relative(dirname(file)):
                clone = self._clone_of(file, clones)
                if not clone:
                    continue
            if len(known) >= MAX_IMPORTS:
                break
            known.add(file)
            row = [printable(name), printable(realpath(file)), clone]
            if max(map(len, row)) <= MAX_NAME:
                rows.append(row)
        return rows

    def _has_copy(self, distribution: Distribution) -> bool:
        """Return whether an installed distribution is a copy of what the checkout holds: pip noted
        its folder as the source, or it is called as the checkout's project and one of its files
        that were loaded lies in the workspace too. A name alone proves nothing."""
        metadata = realpath(distribution.metadata)
        if not self._exists or metadata.startswith(self._workspace):
            return False
        source = _source(distribution.metadata)
        if source and self._relative(source):
            return True
        if distribution.name not in self._projects:
            return False
        places = itertools.product([self._workspace], _BASES, distribution.files)
        return any(isfile(join(*place)) for place in places)

    def _clones(self) -> dict[str, str]:
        """Return other folders that a project called as the checkout's is installed as a link to,
        with the project's name."""
        clones: dict[str, str] = {}
        for site in filter(isdir, sys.path if self._projects else ()):
            for entry in os.listdir(site):
                project = canonical(entry.partition("-")[0])
                if project not in self._projects or not entry.endswith(".dist-info"):
                    continue
                source = _source(join(site, entry), editable=True)
                if source and not self._relative(source):
                    clones[realpath(source) + os.sep] = project
        return clones

    def _clone_of(self, file: str, clones: dict[str, str]) -> str:
        """Return the project whose other clone a file belongs to, if the workspace has the same
        file; empty for any other file."""
        real = realpath(file) if clones else ""
        for folder, project in clones.items():
            if real.startswith(folder):
                own = self._workspace + real[len(folder) :]
                if isfile(own):
                    return project
        return ""

    def _in_workspace(self, path: str, must_exist: bool = False) -> str:
        """Return the workspace's path for one of the checkout; any other as it is."""
        relative = self._relative(path) if isabs(path) else ""
        if not relative:
            return path
        own = normpath(self._workspace + relative)
        if must_exist and not isdir(own):
            return path
        self._moved.add(own + os.sep)
        return own

    def _relative(self, path: str) -> str:
        """Return the path from the checkout's root; empty for what lies elsewhere, or is an
        installed package, the interpreter or the gate."""
        below = realpath(path) + os.sep
        if not below.startswith(self._root):
            return ""
        if below.startswith(self._others) or opened.installed(below):
            return ""
        return relpath(below, self._root)


def _source(metadata: str, editable: bool = False) -> str | None:
    """Return the folder that pip copied a distribution from, as it notes it (PEP 610), or, where
    `editable`, the one it is linked to; None if it noted none."""
    path = join(metadata, "direct_url.json")
    try:
        with open(path, encoding="utf-8") as file:
            noted = json.load(file)
        url = str(noted["url"])
        is_link = bool(noted["dir_info"].get("editable"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if is_link != editable or not url.startswith("file://"):
        return None
    # It takes milliseconds, which most need not spend.
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(url[len("file://") :]))
