"""The one way in which the probe puts itself between the training and a function that it calls: in modules and classes, and in types that C
made and that refuse `setattr`."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from typing import Any, Callable, Tuple


def wrap(owner: Any, name: str, around: Callable[..., Any], also: Tuple[Any, ...] = ()) -> Any:
    """Replace `owner.name`, where there is one, by a function that calls `around(original, …)`, and return that function. The same function
    under that name in `also` is replaced too."""
    original = getattr(owner, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    for place in (owner, *(other for other in also if getattr(other, name, None) is original)):
        setattr(place, name, wrapper)
    return wrapper


def wrap_in_type(kind: type, name: str, around: Callable[..., Any]) -> None:
    """The same for a method of a type that C made: `around(original, self, …)`, for a class method `around(original, cls, …)`.

    CPython looks methods up in the type's own dictionary, which the garbage collector names; `PyType_Modified` clears its cache of lookups.
    """
    original = vars(kind).get(name)
    if original is None or sys.implementation.name != "cpython":
        return
    of_class = type(original).__name__ == "classmethod_descriptor"

    def wrapper(owner: Any, *args: Any, **kwargs: Any) -> Any:
        bound = original.__get__(None, owner) if of_class else original.__get__(owner, type(owner))
        return around(bound, owner, *args, **kwargs)

    wrapper.__name__ = name
    found = [item for item in gc.get_referents(vars(kind)) if type(item) is dict]
    if not found:
        return
    found[0][name] = classmethod(wrapper) if of_class else wrapper
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
