"""The one way in which the probe puts itself between the training and a function that it calls: in
modules and classes, and in types that C made and that refuse `setattr`. And the other way round:
how the probe keeps calling what it means to call, whatever the training puts in its place."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any, Callable

_DEPTH = 2  # of modules in a module whose functions are held: `torch.backends.mkl`
_HELD: dict[str, Any] = {}


class Held:
    """Stands for a module: has its functions and classes as they were when this was made, and those
    of the modules in it; all else is as the module has it now, and what is set is set there."""

    def __init__(self, module: types.ModuleType) -> None:
        vars(self)["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def held(name: str) -> Any:
    """Return an imported module as the probe holds it, by its name; None where it is not imported.
    It is held from the first time that it is asked for."""
    if name not in _HELD and isinstance(sys.modules.get(name), types.ModuleType):
        _hold(sys.modules[name], _DEPTH)
    return _HELD.get(name)


def _hold(module: types.ModuleType, depth: int) -> Any:
    name = module.__name__
    if name not in _HELD:
        _HELD[name] = own = Held(module)
        for key, value in list(vars(module).items()):
            if callable(value):
                vars(own)[key] = value
            # what has properties of its own is of another type
            elif type(value) is types.ModuleType and depth:
                below = value.__name__.startswith(name + ".")
                if below or key == "path":
                    vars(own)[key] = _hold(value, depth - 1)
    return _HELD[name]


def hold() -> None:
    """Give each module of the probe that is loaded its own references to what it calls: to the
    functions of the modules that it imports, and to the builtins. What the training puts in their
    place later (a mock of `time.time`, freezegun, a daemon's own `os.write`) does not reach the
    probe. Nobody finds them by looking through `sys.modules`, as freezegun does."""
    package = __name__.partition(".")[0] + "."
    own = vars(_hold(builtins, 0))
    for name, module in list(sys.modules.items()):
        if not name.startswith(package):
            continue
        space = vars(module)
        for key, value in list(space.items()):
            is_module = isinstance(value, types.ModuleType) and key[:2] != "__"
            if is_module and not value.__name__.startswith(package):
                space[key] = _hold(value, _DEPTH)
        for key, value in own.items():
            if key[0] != "_":
                space.setdefault(key, value)


def wrap(
    owner: Any, name: str, around: Callable[..., Any], also: tuple[Any, ...] = ()
) -> Any:
    """Replace `owner.name`, where there is one, by a function that calls `around(original, …)`, and
    return that function. The same function under that name in `also` is replaced too."""
    owner = owner._module if type(owner) is Held else owner
    original = getattr(owner, name, None)
    if original is None:
        return None
    method: Any = vars(owner).get(name)
    of_class = isinstance(method, types.ClassMethodDescriptorType)
    if of_class:
        original = method  # which is called with the class

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    wrapper: Any = classmethod(function) if of_class else function
    if not hasattr(type(original), "__get__"):
        wrapper = _Unbound(original, around, owner)
    for place in (owner, *also):
        if place is owner or getattr(place, name, None) is original:
            _put(place, name, wrapper)
    return wrapper


def _put(owner: Any, name: str, wrapper: Any) -> None:
    """Set an attribute. CPython looks methods up in the type's own dictionary, which the garbage
    collector names; `PyType_Modified` clears its cache of lookups."""
    try:
        setattr(owner, name, wrapper)
    except TypeError:
        for item in gc.get_referents(vars(owner)):
            if type(item) is dict:
                item[name] = wrapper
                ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


class _Unbound:
    """In the place of a function that C made. As such a one it does not bind where it is a class's
    attribute (`clock = time.time`); it has the class, the hash, the signature and the name of the
    original, equals it and is pickled by its name."""

    _torchdynamo_disable = True

    def __init__(self, original: Any, around: Callable[..., Any], owner: Any) -> None:
        functools.update_wrapper(self, original)
        self.__module__ = owner.__name__  # `os`, where the original says `posix`
        self._around = around

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

    def __reduce__(self) -> str:
        return str(self.__name__)


class WeakByIdentity:
    """What was added, in order, and what was noted of each, for as long as it lives. It need not be
    hashable, nor comparable."""

    def __init__(self) -> None:
        # by id
        self._items: Any = weakref.WeakValueDictionary()
        self._notes: dict[int, Any] = {}

    def add(self, item: Any, noted: Any = None) -> None:
        """Note something of an item. One that cannot be referred to weakly is not kept."""
        with contextlib.suppress(TypeError):
            self._items[id(item)] = item
            self._notes[id(item)] = noted
        if len(self._notes) > len(self._items):  # some items have died
            for place in self._notes.keys() - self._items.keys():
                del self._notes[place]

    def discard(self, item: Any) -> None:
        """Take an item out, and its note."""
        self._items.pop(id(item), None)
        self._notes.pop(id(item), None)

    def get(self, item: Any) -> Any:
        """Return the note stored with an item by `add`; None if there is none."""
        return self._notes[id(item)] if id(item) in self._items else None

    def __iter__(self) -> Iterator[Any]:
        items = [reference() for reference in self._items.valuerefs()]
        return (item for item in items if item is not None)

    def __bool__(self) -> bool:
        return bool(self._items)
