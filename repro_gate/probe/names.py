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

_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "OptimizedModule",
    "FullyShardedDataParallel",
}
_LEAVES = 100_000
SCALARS = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    range,
    dt.date,
    dt.timedelta,
    pathlib.PurePath,
)
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

    def add(
        self,
        name: str,
        parameter: Any,
    ) -> None:
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


def modules(
    root: Any,
    name: str = "",
) -> Iterator[tuple[str, Any]]:
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
    value: Any,
    name: str = "",
) -> Iterator[tuple[str, Any]]:
    """Return (name, leaf) for what a batch or an optimizer's state holds: through mappings,
    sequences, sets and objects.

    Each plain object is entered once, and at most 100,000 leaves are named: whatever hangs
    together, this ends.
    """
    return itertools.islice(_leaves(value, name[:MAX_NAME], 0, set()), _LEAVES)


def _leaves(
    value: Any, name: str, depth: int, known: set[int]
) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    if isinstance(value, SCALARS) or is_array(value):
        yield name or "value", value
    elif depth > _DEPTH:
        yield name, type(value).__name__  # not the value: its text may hold an address
    elif isinstance(value, (set, frozenset)):  # it has no order of its own
        kind: Any = set if isinstance(value, set) else frozenset
        texts = []
        for item in kind.__iter__(value):
            is_scalar = isinstance(item, SCALARS)
            texts.append(repr(item) if is_scalar else type(item).__name__)
        yield name, repr(sorted(texts))
    elif id(value) not in known:
        if not isinstance(value, (dict, list, tuple)):
            known.add(id(value))
        for key, item in entries(value):
            yield from _leaves(item, _join(name, key), depth + 1, known)


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a tensor; no code of its class runs to tell it."""
    return hasattr(type(value), "dtype") and hasattr(type(value), "__array__")


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return (key, item) of what a container or an object holds, read without running any code of
    its class: a batch may draw when it is read."""
    if isinstance(value, UserDict):
        value = vars(value).get("data", {})
    if isinstance(value, dict):
        return list(dict.items(value))
    if isinstance(value, (list, tuple)):
        kind: Any = list if isinstance(value, list) else tuple
        return enumerate(kind.__iter__(value))
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return ()
    fields = {}
    is_python = type(value).__flags__ & _HEAP
    for kind in reversed(type(value).__mro__ if is_python else ()):
        for name, member in vars(kind).items():
            if type(member) is types.MemberDescriptorType:  # one of `__slots__`
                with contextlib.suppress(AttributeError):  # nothing was put there
                    fields[name] = member.__get__(value)
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        fields.update(object.__getattribute__(value, "__dict__"))
    return list(fields.items())


def _join(
    name: str,
    key: Any,
) -> str:
    if key in WRAPPED:
        return name
    return (f"{name}.{key}" if name else str(key))[:MAX_NAME]


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
