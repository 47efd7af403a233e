"""The one way in which the probe puts itself between the training and a function that it calls: in
modules and classes, and in types that C made and that refuse `setattr`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, Tuple


def wrap(
    owner: Any, name: str, around: Callable[..., Any], also: Tuple[Any, ...] = ()
) -> Any:
    """Replace `owner.name`, where there is one, by a function that calls `around(original, …)`, and
    return that function. The same function under that name in `also` is replaced too."""
    original = getattr(owner, name, None)
    if original is None:
        return None

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapper: Any = (
        function
        if hasattr(type(original), "__get__")
        else _Unbound(original, around, owner)
    )
    wrapper._torchdynamo_disable = True
    for place in (
        owner,
        *(other for other in also if getattr(other, name, None) is original),
    ):
        setattr(place, name, wrapper)
    return wrapper


class WeakByIdentity:
    """What was added, in order, and what was noted of each, for as long as it lives. It need not be
    hashable, nor comparable."""

    def __init__(self) -> None:
        self._held: Dict[
            int, Tuple[Any, Any]
        ] = {}  # id -> weak reference to it, what was noted

    def add(self, item: Any, noted: Any = None) -> Any:
        """Note something of an item, and return it. An item that cannot be referred to weakly is
        not kept."""
        held, key = self._held, id(item)

        def forget(reference: Any) -> None:
            if key in held and held[key][0] is reference:
                del held[key]

        with contextlib.suppress(TypeError):
            held[key] = weakref.ref(item, forget), noted
        return noted

    def discard(self, item: Any) -> None:
        """Take an item out."""
        reference, _ = self._held.get(id(item), (None, None))
        if reference is not None and reference() is item:
            del self._held[id(item)]

    def get(self, item: Any) -> Any:
        """Return what is noted of an item; None if it was not added."""
        reference, noted = self._held.get(id(item), (None, None))
        return noted if reference is not None and reference() is item else None

    def __iter__(self) -> Iterator[Any]:
        return iter(
            [
                item
                for item in [reference() for reference, _ in list(self._held.values())]
                if item is not None
            ]
        )

    def __bool__(self) -> bool:
        return bool(self._held)


class _Unbound:
    """In the place of a function that C made. As such a one it does not bind where it is a class's
    attribute (`clock = time.time`); it has the class, the hash, the signature and the name of the
    original, equals it and is pickled by its name."""

    def __init__(self, original: Any, around: Callable[..., Any], owner: Any) -> None:
        functools.update_wrapper(self, original)
        self._around, self._owner = around, owner

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
            "__import__(%r, fromlist=['']).%s" % (self._owner.__name__, self.__name__),
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
        bound = (
            original.__get__(None, owner)
            if of_class
            else original.__get__(owner, type(owner))
        )
        return around(bound, owner, *args, **kwargs)

    wrapper.__name__ = name
    found = [item for item in gc.get_referents(vars(kind)) if type(item) is dict]
    if not found:
        return
    found[0][name] = classmethod(wrapper) if of_class else wrapper
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
