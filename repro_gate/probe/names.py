"""Gives tensors the names a person knows: `blocks.3.attn.weight` rather than `param 17`.

Optimizers know tensors, modules know names. Root modules (those that no other module holds) are
found among the objects of the garbage collector, once for each set of optimizers; wrappers that
only pass a model on (DDP, FSDP, torch.compile) leave no mark in a name.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import itertools
import pathlib
import types
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

from ..trace.format import MAX_NAME, WRAPPED
from .digest import unread

_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "OptimizedModule",
    "FullyShardedDataParallel",
}
_LEAVES = 100_000
_EXACT = (bool, int, float, complex, str, bytes, bytearray)
SCALARS = (*_EXACT, range, dt.date, dt.timedelta, pathlib.PurePath)
# packages whose classes are arrays, if they look like one
_OF_ARRAYS = {
    "torch",
    "numpy",
    "pandas",
    "jax",
    "jaxlib",
    "cupy",
    "tensorflow",
    "mlx",
    "xarray",
}
_DEPTH = 8  # of nesting in a batch
_HEAP = 1 << 9  # of `type.__flags__`: a class that Python made


class Names:
    """Names of parameters by identity, in the order of `parameters`; and, with the paths of their
    modules, what holds buffers."""

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}
        self.parameters: list[tuple[str, Any]] = []
        self.holders: list[tuple[str, dict[str, Any]]] = []

    def knows(self, optimizer: Any) -> bool:
        """Return whether all parameters of an optimizer have a name."""
        return all(id(item) in self.by_id for item in updated_by(optimizer))

    def add(self, name: str, parameter: Any) -> None:
        """Name a parameter that has no name yet."""
        if id(parameter) not in self.by_id:
            name = self.by_id[id(parameter)] = name[:MAX_NAME]
            self.parameters.append((name, parameter))

    def buffers(self) -> list[tuple[str, Any]]:
        """Return the buffers that there are now; a module may get one at any time."""
        return [
            (_join(path, key), buffer)
            for path, holder in self.holders
            for key, buffer in _present(holder)
        ]


def _present(holder: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, item) for key, item in holder.items() if item is not None]


def modules(root: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, module) of a module and those in it, each once, in the order of `named_modules`;
    as torch holds them, since a class may have a `parameters` of its own that wants arguments."""
    known: set[int] = set()
    waiting = [(name, root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in known:
            known.add(id(module))
            yield path, module
            for key, child in reversed(_present(module._modules)):
                waiting.append((_join(path, key), child))


def living_modules() -> list[Any]:
    """Return every module that exists, and refer to nothing else on the way.

    The garbage collector also lists tuples that other threads are just making; one that somebody
    refers to meanwhile raises SystemError there (`_PyTuple_Resize`). So from the listing to its end
    no line of Python runs, at which threads could take turns: all of it is one call of `list`. It
    takes each object twice from one iterator, once for itself and once for its type.
    """
    import torch

    objects = itertools.chain.from_iterable(itertools.starmap(gc.get_objects, [()]))
    doubled = itertools.chain.from_iterable(
        map(itertools.repeat, objects, itertools.repeat(2))
    )
    is_module = map(torch.nn.Module.__subclasscheck__, map(type, doubled))
    enabled = gc.isenabled()
    gc.disable()  # a collection may run finalizers
    try:
        return list(itertools.compress(doubled, is_module))
    finally:
        if enabled:
            gc.enable()


def parameters(root: Any) -> list[Any]:
    """Return the parameters of a module and of those in it."""
    items: list[Any] = []
    for _, module in modules(root):
        items += [item for _, item in _present(module._parameters)]
    return items


def updated_by(optimizer: Any) -> Iterator[Any]:
    """Yield the tensors that an optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]


def roots() -> list[Any]:
    """Return the modules that no other module holds, of those that there are."""
    made = []
    inner = set[int]()
    for module in living_modules():
        fields = object.__getattribute__(module, "__dict__")
        if "_modules" in fields:  # else its `__init__` has not run
            made.append(module)
            inner.update(map(id, fields["_modules"].values()))
    return [module for module in made if id(module) not in inner]


def name_tensors(optimizers: list[Any]) -> Names:
    """Return names for everything that the optimizers update, and for the frozen parameters and
    buffers of the same models."""
    places: list[tuple[str, Any]] = []
    for number, optimizer in enumerate(optimizers):
        prefix = f"optimizer{number}." if number else ""
        for at, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                places.append((f"{prefix}param_groups.{at}.{index}", parameter))
    names = Names()
    items = [id(item) for _, item in places]
    models = _models(dict(zip(items, range(len(items)))))
    labels = [type(model).__name__ for model in models]
    for number, (label, model) in enumerate(zip(labels, models)):
        count = labels[: number + 1].count(label)
        prefix = f"{label}#{count}" if count > 1 else label
        for path, module in modules(model, prefix if models[1:] else ""):
            for key, parameter in _present(module._parameters):
                names.add(_join(path, key), parameter)
            names.holders.append((path, module._buffers))
    for name, parameter in places:
        names.add(name, parameter)
    return names


def leaves(
    value: Any, name: str = "", *, code: bool = False
) -> Iterator[tuple[str, Any]]:
    """Return (name, leaf) for what a batch or an optimizer's state holds: through mappings,
    sequences, sets and objects; with `code`, also the names of classes and functions, and what
    functions close over.

    Each plain object is entered once, and at most 100,000 leaves are named: whatever hangs
    together, this ends.
    """
    found = _leaves(value, name[:MAX_NAME], 0, set(), code)
    return itertools.islice(found, _LEAVES)


def _leaves(
    value: Any, name: str, depth: int, known: set[int], code: bool
) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    kind: Any = type(value)  # no look at the value: its `__class__` may be a property
    if code and issubclass(kind, (type, types.FunctionType)):
        is_class = issubclass(kind, type)
        owner = type if is_class else types.FunctionType
        yield name, vars(owner)["__qualname__"].__get__(value)
        value = () if is_class else _closed_over(value)
        kind = tuple
    if issubclass(kind, SCALARS) or is_array(value):
        yield name or "value", value
    elif depth > _DEPTH:
        yield name, kind.__name__  # not the value: its text may hold an address
    elif issubclass(kind, (set, frozenset)):  # it has no order of its own
        base: Any = set if issubclass(kind, set) else frozenset
        yield name, repr(sorted(map(text_of, base.__iter__(value))))
    elif id(value) not in known:
        if not issubclass(kind, (dict, list, tuple)):
            known.add(id(value))
        try:
            items = [*entries(value)]
        except Exception:  # a `__dict__` of its own
            unread("objects", f"{kind.__module__}.{kind.__qualname__}")
            yield name or "value", kind.__name__
            return
        for index, (key, item) in enumerate(items):
            yield from _leaves(item, _join(name, key, index), depth + 1, known, code)


def _closed_over(function: types.FunctionType) -> tuple[Any, ...]:
    contents: list[Any] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing was put there yet
            contents.append(cell.cell_contents)
    return tuple(contents)


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a tensor of a known package; no code of its class runs
    to tell it. A class of the training's own that only looks like one may draw when it is read."""
    kind = type(value)
    for base in type.__dict__["__mro__"].__get__(kind):
        if base.__module__.partition(".")[0] in _OF_ARRAYS:
            return hasattr(kind, "dtype") and hasattr(kind, "__array__")
    return False


def text_of(value: Any) -> str:
    """Return the exact text of a plain value, by no method of the training's own; of any other
    value, the name of its type."""
    kind = type(value)
    for base in _EXACT:
        if issubclass(kind, base):
            return base.__repr__(value)
    of_python = kind.__flags__ & _HEAP and kind.__module__.partition(".")[0]
    known = not of_python or of_python in ("datetime", "pathlib", "pandas")
    return repr(value) if known and issubclass(kind, SCALARS) else kind.__name__


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return (key, item) of what a container or an object holds, read without running any code of
    its class: a batch may draw when it is read."""
    kind: Any = type(value)
    if any(base is UserDict for base in kind.__mro__):  # an ABC, which compares classes
        value = _fields(value).get("data", {})
        kind = type(value)
    if issubclass(kind, dict):
        return list(dict.items(value))
    for base in (list, tuple):
        if issubclass(kind, base):
            return enumerate(base.__iter__(value))
    if issubclass(kind, (type, types.ModuleType, types.FunctionType)):
        return ()
    fields: dict[str, Any] = {}
    for base in reversed(kind.__mro__ if kind.__flags__ & _HEAP else ()):
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType:  # one of `__slots__`
                with contextlib.suppress(AttributeError):  # nothing was put there
                    fields[name] = member.__get__(value)
    with contextlib.suppress(AttributeError, ReferenceError):
        fields.update(_fields(value))
    return list(fields.items())


def _fields(value: Any) -> dict[str, Any]:
    """Return an object's own dictionary. Raises TypeError where its class has a `__dict__` that is
    none."""
    for base in type(value).__mro__:
        member = vars(base).get("__dict__")
        if member is not None and type(member) is not types.GetSetDescriptorType:
            raise TypeError("its dictionary is not its own")
    fields: dict[str, Any] = object.__getattribute__(value, "__dict__")
    return fields


def label_of(key: Any, index: int | str = "") -> str:
    """Return a key as text: `0`, `weight`, `(1, 2)`; one that is no plain value as its type and its
    place."""
    kind = type(key)
    if issubclass(kind, str):
        return str.__str__(key)
    if issubclass(kind, tuple) and tuple.__len__(key) <= 16:
        return "(" + ", ".join(map(label_of, tuple.__iter__(key))) + ")"
    if issubclass(kind, int) and kind is not bool:
        return decimal(key)
    if issubclass(kind, (bool, float, bytes)) or key is None:
        return text_of(key) if kind is not type(None) else "None"
    if kind.__module__ == "torch":
        return str(key)
    return f"<{kind.__name__}>{index}"


def decimal(number: int) -> str:
    """Return an integer as text; a long one, of which the decimal conversion is quadratic, as
    hexadecimal digits."""
    number = int.__index__(number)
    if number.bit_length() > 4096:
        return hex(number)
    return repr(number)


def _join(name: str, key: Any, index: int | str = "") -> str:
    label = label_of(key, index)
    if label in WRAPPED:
        return name
    return (f"{name}.{label}" if name else label)[:MAX_NAME]


def _models(places: dict[int, int]) -> list[Any]:
    """Return the models that hold one of some parameters (identity -> its place), in the order of
    these."""
    holders: list[tuple[Any, set[int], Any]] = []
    for module in roots():
        own = places.keys() & set(map(id, parameters(module)))
        if own:
            first = min(map(places.__getitem__, own))
            order = first, -len(own), type(module).__name__, len(holders)
            holders.append((order, own, module))
    covered: set[int] = set()
    models = []
    # two holders of one model (a wrapper kept in a list, say): the first names it
    for _, own, module in sorted(holders):
        if own - covered:
            models.append(_unwrap(module))
            covered |= own
    return models


def _unwrap(module: Any) -> Any:
    while type(module).__name__ in _WRAPPERS and len(_present(module._modules)) == 1:
        [(_, module)] = _present(module._modules)
    return module
