"""Calls back when a named module has been imported, and makes `import repro_gate` work in the
training's interpreter.

A finder at the head of `sys.meta_path` wraps the loader of just the modules that are waited for,
once each.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import types
from typing import Any, Callable

from . import session
from .patch import wrap

_WAITING: dict[str, list[Callable[[Any], None]]] = {}
_LOOKING: set[str] = set()  # modules that this finder is asking the others about


class _Finder:
    """Hands every import on; for a module that is waited for, it appends the callback to the
    loader's `exec_module`."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        if name not in _WAITING or name in _LOOKING:
            return None
        _LOOKING.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            _LOOKING.discard(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            # a lazy loader's class does not yet give what the module's own `__getattr__` does
            kind = type(module)
            object.__setattr__(module, "__class__", types.ModuleType)
            # only now: a look-up need not be followed by an import, an import may fail
            for callback in _WAITING.pop(name, ()):
                # a failure is the probe's, and no failed import
                with session.current().in_hook():
                    callback(module)
            object.__setattr__(module, "__class__", kind)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Sdk:
    """The last finder of all: `repro_gate` from the gate's own files where the training's
    interpreter has none installed."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        if name != "repro_gate":
            return None
        home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        return importlib.util.spec_from_file_location(name, f"{home}/__init__.py")


def after_import(name: str, callback: Callable[[Any], None]) -> None:
    """Call `callback(module)` right after the module `name` was imported; now, if it was
    already."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    _WAITING.setdefault(name, []).append(callback)


def wrap_later(module: str, names: str, around: Callable[..., Any]) -> None:
    """Wrap functions of a module, separated by blanks, or `CLASS.METHOD`, once the module has been
    imported; of `os`, also where they come from."""

    def arrived(imported: Any) -> None:
        also = (sys.modules[os.name],) if module == "os" else ()
        for name in names.split():
            owner = imported
            *classes, attribute = name.split(".")
            for item in classes:
                owner = getattr(owner, item)
            wrap(owner, attribute, around, also)

    after_import(module, arrived)


def wrap_named(module: str, names: str, around: Callable[..., Any]) -> None:
    """Wrap likewise by a function that is told the name first: `around("os.stat", original, …)`."""
    for name in names.split():
        wrap_later(module, name, functools.partial(around, f"{module}.{name}"))
