"""Makes a package of the checkout that is installed as a link to it (editable) come from the run's
own workspace, which holds the code under test; and notes what was imported from the original
checkout all the same. It must run before any line of the user's."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from ..trace.format import MAX_DISTRIBUTIONS, MAX_NAME
from . import distributions, opened
from .process import imported_files, printable


class CheckoutImports:
    """The checkout that the workspace is a copy of; an observer of the session. Without one in the
    configuration it redirects nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        checkout = config["checkout"] or {"root": "", "ignored": (), "projects": ()}
        # a mere separator: there is no checkout
        self._root: str = checkout["root"].rstrip(os.sep) + os.sep
        self._workspace = os.path.realpath(config["workspace"]) + os.sep
        self._ignored = frozenset(checkout["ignored"])
        self._projects = frozenset(checkout["projects"])
        run = os.path.dirname(self._workspace.rstrip(os.sep))
        folders = opened.with_separator([*opened.interpreter(), run])
        # an environment may lie in the checkout
        self._others = tuple([path for path in folders if path.startswith(self._root)])
        self._moved = False  # something that leads into the checkout was found

    def start(self) -> None:
        """Turn what leads into the checkout to the workspace."""
        if self._root == os.sep:
            return
        entries = [self._in_workspace(entry, must_exist=True) for entry in sys.path]
        sys.path[:] = list(dict.fromkeys(entries))
        for number, finder in enumerate(sys.meta_path):
            name = str(getattr(finder, "__module__", ""))
            if "editable" in name:
                self._moved = True
                sys.meta_path[number] = _Redirected(finder, self)
                # setuptools finds a namespace's folders by a hook of `sys.path`
                spaces = getattr(sys.modules.get(name), "NAMESPACES", {})
                for folders in spaces.values():
                    folders[:] = map(self._in_workspace, folders)
        if self._moved:
            sys.meta_path.append(_Ignored(self))

    def redirect(self, spec: ModuleSpec) -> ModuleSpec:
        """Return what another finder found, in the workspace where it is there."""
        folders = spec.submodule_search_locations
        if folders is not None:
            folders = [*map(self._in_workspace, folders)]
        origin = self._in_workspace(spec.origin or "")
        if origin != spec.origin and os.path.isfile(origin):
            find = importlib.util.spec_from_file_location
            moved = find(spec.name, origin, submodule_search_locations=folders)
            return moved or spec
        if not spec.origin and folders:
            spec.submodule_search_locations = folders
        return spec

    def left_behind(self, entry: Any) -> str | None:
        """Return the checkout's folder for one of the workspace; None for any other."""
        below = os.path.abspath(entry) + os.sep if isinstance(entry, str) else ""
        if not below.startswith(self._workspace):
            return None
        return self._root + below[len(self._workspace) :].rstrip(os.sep)

    def ignores(self, path: str) -> bool:
        """Return whether git ignores a file of the checkout, or a folder that it lies in."""
        below = self.relative(path) or ""
        if below in self._ignored:
            return True
        while below:
            below = os.path.dirname(below)
            if below + "/" in self._ignored:
                return True
        return False

    def relative(self, path: str) -> str | None:
        """Return the path from the checkout's root; None for what lies elsewhere, or is an
        installed package, the interpreter or the gate."""
        below = os.path.realpath(path) + os.sep
        is_other = below.startswith(self._others) or opened.installed(below)
        if is_other or not below.startswith(self._root):
            return None
        return below[len(self._root) :].rstrip(os.sep)

    def flush(
        self,
        current: Any,
        last: bool,
    ) -> None:
        """Write, at the end, the modules that came from the checkout; and where the run is asked
        for them the imported distributions, and those of them that are copies of the checkout."""
        if not last:
            return
        rows = self._modules() if self._root != os.sep else []
        if current.introduced and current.config["observe"]:
            versions: dict[str, str] = {}
            for item in distributions.imported():
                versions.setdefault(item.name, item.version)
                if self._is_copy(item):
                    site = os.path.dirname(item.metadata)
                    first = item.files[0]
                    module = distributions.top(first)
                    rows.append((module, os.path.join(site, first), item.name))
            items = sorted(versions.items())[:MAX_DISTRIBUTIONS]
            current.event("distributions", versions=dict(items))
        for row in rows:
            texts = list(map(printable, row))
            if max(map(len, texts)) <= MAX_NAME:
                current.event("imports", rows=[texts])

    def forked(self) -> None:
        """Go on: what was imported is the child's too."""

    def _is_copy(self, item: distributions.Distribution) -> bool:
        """Return whether an installed distribution is a copy of what the checkout holds: it is
        called as the checkout's project, or pip noted its folder as the source."""
        is_own = os.path.realpath(item.metadata).startswith(self._workspace)
        if self._root == os.sep or is_own:
            return False
        source = _source(item.metadata)
        from_here = source is not None and self.relative(source) is not None
        return from_here or item.name in self._projects

    def _modules(self) -> list[tuple[str, str, str]]:
        """Return (name, file, "") of each module that came from the checkout, and (name, file,
        project) of one that came from another clone of it, to which the project is installed as a
        link. An installed package may be a link, so its top is looked at too."""
        clones = self._clones()
        rows = {}
        for name, file in imported_files():
            is_part = "." in name and opened.installed(file)
            if is_part or not os.path.isabs(file):
                continue
            real = os.path.realpath(file)
            if self.relative(file) is not None:
                rows[file] = (name, real, "")
            for folder, project in clones.items():
                if real.startswith(folder):
                    rows[file] = (name, real, project)
        return list(rows.values())

    def _clones(self) -> dict[str, str]:
        """Return other folders that a project called as the checkout's is installed as a link to,
        with the project's name."""
        clones = {}
        for site in sys.path:
            for metadata in distributions.metadata_in(site) if self._projects else ():
                name, _, _ = os.path.basename(metadata).partition("-")
                project = distributions.canonical(name)
                if project not in self._projects:
                    continue
                source = _source(metadata, editable=True)
                if source is not None and self.relative(source) is None:
                    clones[os.path.realpath(source) + os.sep] = project
        return clones

    def _in_workspace(
        self,
        path: str,
        must_exist: bool = False,
    ) -> str:
        """Return the workspace's path for one of the checkout; any other as it is."""
        relative = self.relative(path) if os.path.isabs(path) else None
        if relative is None:
            return path
        own = os.path.join(self._workspace, relative).rstrip(os.sep)
        if must_exist and not os.path.isdir(own):
            return path
        self._moved = True
        return own


class _Redirected:
    def __init__(
        self,
        finder: Any,
        checkout: CheckoutImports,
    ) -> None:
        self._finder = finder
        self._checkout = checkout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(
        self,
        *args: Any,
    ) -> ModuleSpec | None:
        spec = self._finder.find_spec(*args)
        return None if spec is None else self._checkout.redirect(spec)


class _Ignored:
    """The last finder: what git ignores (a compiled extension, a generated `_version.py`) is in no
    workspace, so it comes from the original checkout."""

    def __init__(self, checkout: CheckoutImports) -> None:
        self._checkout = checkout

    def find_spec(
        self,
        name: str,
        path: Any = None,
        _: Any = None,
    ) -> Any:
        for entry in sys.path if path is None else path:
            folder = self._checkout.left_behind(entry)
            spec = PathFinder.find_spec(name, [folder]) if folder else None
            if spec is not None and spec.origin and self._checkout.ignores(spec.origin):
                return spec
        return None


def _source(
    metadata: str,
    editable: bool = False,
) -> str | None:
    """Return the folder that pip copied a distribution from, as it notes it (PEP 610), or, where
    `editable`, the one it is linked to. None: that is not told."""
    try:
        path = os.path.join(metadata, "direct_url.json")
        with open(path, encoding="utf-8") as file:
            noted = json.load(file)
        url = str(noted["url"])
        linked = bool(noted["dir_info"].get("editable"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    if linked != editable or not url.startswith("file://"):
        return None
    # takes milliseconds, which most need not spend
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(url[len("file://") :]))
