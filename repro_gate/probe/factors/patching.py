"""Replaces functions where they live: module attributes, and methods of types that C made and that refuse `setattr`."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from typing import Any, Callable, Tuple


def replace(owner: Any, name: str, around: Callable[..., Any], also: Tuple[Any, ...] = ()) -> None:
    """`owner.name` calls `around(original, *args, **kwargs)` from here on; the same function under that name in `also` too.

    A name that is not there is left alone. TorchDynamo does not trace into the replacement.
    """
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    replacement._torchdynamo_disable = True  # type: ignore[attr-defined]
    for place in (owner, *also):
        if getattr(place, name, None) is original:
            setattr(place, name, replacement)


def replace_in_type(kind: type, name: str, around: Callable[..., Any]) -> None:
    """The same for a method of a type that C made: `around(original, self, …)`, for a class method `around(original, cls, …)`.

    CPython looks methods up in the type's own dictionary, which the garbage collector names; `PyType_Modified` clears its cache of lookups.
    """
    original = vars(kind).get(name)
    if original is None or sys.implementation.name != "cpython":
        return
    of_class = type(original).__name__ == "classmethod_descriptor"

    def replacement(owner: Any, *args: Any, **kwargs: Any) -> Any:
        bound = original.__get__(None, owner) if of_class else original.__get__(owner, type(owner))
        return around(bound, owner, *args, **kwargs)

    replacement.__name__ = name
    found = [item for item in gc.get_referents(vars(kind)) if type(item) is dict]
    if not found:
        return
    found[0][name] = classmethod(replacement) if of_class else replacement
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
