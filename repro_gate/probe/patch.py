"""The one way in which the probe puts itself between the training and a function that it calls: in
modules and classes, and in types that C made and that refuse `setattr`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any, Callable


def wrap(
    owner: Any, name: str, around: Callable[..., Any], also: tuple[Any, ...] = ()
) -> Any:
    """Replace `owner.name`, where there is one, by a function that calls `around(original, …)`, and
    return that function. The same function under that name in `also` is replaced too."""
    original = getattr(owner, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    binds = hasattr(type(original), "__get__")
    wrapper: Any = function if binds else _Unbound(original, around, owner)
    wrapper._torchdynamo_disable = True
    for place in (owner, *also):
        if getattr(place, name, None) is original or place is owner:
            setattr(place, name, wrapper)
    return wrapper


_ABSENT = lambda: None, None


class WeakByIdentity:
    """What was added, in order, and what was noted of each, for as long as it lives. It need not be
    hashable, nor comparable."""

    def __init__(self) -> None:
        # id -> weak reference to it, what was noted
        self._notes: dict[int, tuple[Any, Any]] = {}

    def add(self, item: Any, noted: Any = None) -> Any:
        """Note something of an item, and return it. An item that cannot be referred to weakly is
        not kept."""
        notes = self._notes
        key = id(item)

        def forget(reference: Any) -> None:
            if key in notes and notes[key][0] is reference:
                del notes[key]

        with contextlib.suppress(TypeError):
            notes[key] = weakref.ref(item, forget), noted
        return noted

    def discard(self, item: Any) -> None:
        """Take an item out."""
        self._notes.pop(id(item), None)

    def get(self, item: Any) -> Any:
        """Return what is noted of an item; None if it was not added."""
        reference, noted = self._notes.get(id(item), _ABSENT)
        return noted if reference() is item else None

    def __iter__(self) -> Iterator[Any]:
        items = [reference() for reference, _ in list(self._notes.values())]
        return (item for item in items if item is not None)

    def __bool__(self) -> bool:
        return bool(self._notes)


class _Unbound:
    """In the place of a function that C made. As such a one it does not bind where it is a class's
    attribute (`clock = time.time`); it has the class, the hash, the signature and the name of the
    original, equals it and is pickled by its name."""

    def __init__(self, original: Any, around: Callable[..., Any], owner: Any) -> None:
        functools.update_wrapper(self, original)
        self._around = around
        self._owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self.__wrapped__, *args, **kwargs)

    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]
    __class__ = property(lambda self: type(self.__wrapped__))

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __eq__(self, other: Any) -> bool:
        return other is self or bool(self.__wrapped__ == other)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> Any:  # as `os.listdir`, where the original says `posix`
        return eval, (
            f"__import__({self._owner.__name__!r}, fromlist=['']).{self.__name__}",
        )


def wrap_in_type(kind: type, name: str, around: Callable[..., Any]) -> None:
    """Do the same for a method of a type that C made: `around(original, self, …)`, for a class
    method `around(original, cls, …)`.

    CPython looks methods up in the type's own dictionary, which the garbage collector names;
    `PyType_Modified` clears its cache of lookups."""
    original = vars(kind).get(name)
    if original is None or sys.implementation.name != "cpython":
        return
    of_class = type(original).__name__ == "classmethod_descriptor"

    def wrapper(owner: Any, *args: Any, **kwargs: Any) -> Any:
        place = (None, owner) if of_class else (owner, type(owner))
        return around(original.__get__(*place), owner, *args, **kwargs)

    wrapper.__name__ = name
    for item in gc.get_referents(vars(kind)):
        if type(item) is dict:
            item[name] = classmethod(wrapper) if of_class else wrapper
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
