"""Gives tensors the names a person knows: `blocks.3.attn.weight` rather than `param 17`.

Optimizers know tensors, modules know names. Root modules (those that no other module holds) are
found among the objects of the garbage collector, once for each set of optimizers; wrappers that
only pass a model on (DDP, FSDP, torch.compile) leave no mark in a name.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import types
from collections import OrderedDict, UserDict
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from ..trace.format import MAX_NAME
from . import source_line

_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "OptimizedModule",
    "FullyShardedDataParallel",
}
_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_LEAVES = 100_000
SCALARS = (str, bytes, int, float, complex, bool, type(None))
_DEPTH = 8  # of nesting in a batch
_HEAP = 1 << 9  # of `type.__flags__`: a class that Python made


class Names:
    """Names of parameters by identity, in the order of `parameters`; and, with the paths of their
    modules, what holds buffers."""

    def __init__(self) -> None:
        self.by_id: Dict[int, str] = {}
        self.parameters: List[Tuple[str, Any]] = []
        self.holders: List[Tuple[str, Dict[str, Any]]] = []

    def knows(self, optimizer: Any) -> bool:
        return all(
            self.by_id.keys() >= set(map(id, group["params"])) for group in optimizer.param_groups
        )

    def add(self, name: str, parameter: Any) -> None:
        if id(parameter) not in self.by_id:
            self.by_id[id(parameter)] = name[:MAX_NAME]
            self.parameters.append((name[:MAX_NAME], parameter))

    def add_model(self, root: Any, prefix: str) -> None:
        for path, module in modules(root):
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    self.add(prefix + _plain(_join(path, key)), parameter)
            self.holders.append((prefix + path, module._buffers))

    def buffers(self) -> List[Tuple[str, Any]]:
        """The buffers that there are now; a module may get one at any time."""
        return [
            (_plain(_join(path.rstrip("."), key))[:MAX_NAME], buffer)
            for path, holder in self.holders
            for key, buffer in holder.items()
            if buffer is not None
        ]


def modules(root: Any) -> Iterator[Tuple[str, Any]]:
    """(path, module) of a module and those in it, each once, in the order of `named_modules`; as
    torch holds them, since a class may have a `parameters` of its own that wants arguments."""
    seen: Set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module
            for key, child in reversed(list(module._modules.items())):
                if child is not None:
                    waiting.append((_join(path, key), child))


def parameters(root: Any) -> List[Any]:
    """The parameters of a module and of those in it."""
    return [
        item
        for _, module in modules(root)
        for item in module._parameters.values()
        if item is not None
    ]


def name_tensors(torch: Any, optimizers: List[Any]) -> Names:
    """Names for everything that the optimizers update, and for the frozen parameters and buffers of
    the same models."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    wanted = [parameter for group in groups for parameter in group["params"]]
    names = Names()
    roots = _roots(torch, {id(parameter): index for index, parameter in enumerate(wanted)})
    taken: Dict[str, int] = {}
    for root in roots:
        label = type(root).__name__
        number = taken[label] = taken.get(label, 0) + 1
        prefix = "%s%s." % (label, "#%d" % number if number > 1 else "")
        names.add_model(root, prefix if len(roots) > 1 else "")
    for number, optimizer in enumerate(optimizers):
        for at, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                prefix = "optimizer%d." % number if number else ""
                names.add("%sparam_groups.%d.%d" % (prefix, at, index), parameter)
    return names


def leaves(value: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """(name, leaf) for what a batch or an optimizer's state holds: through mappings, sequences,
    sets and objects.

    Each plain object is entered once, and at most 100,000 leaves are named: whatever hangs
    together, this ends.
    """
    return itertools.islice(_leaves(value, name[:MAX_NAME], 0, set()), _LEAVES)


def _leaves(value: Any, name: str, depth: int, seen: Set[int]) -> Iterator[Tuple[str, Any]]:
    if value is None:
        return
    if isinstance(value, SCALARS) or is_array(value):
        yield name or "value", value
    elif depth > _DEPTH:
        yield name, type(value).__name__  # not the value: its text may hold an address
    elif isinstance(value, (set, frozenset)):  # it has no order of its own
        kind: Any = set if isinstance(value, set) else frozenset
        items = kind.__iter__(value)
        texts = [repr(item) if isinstance(item, SCALARS) else type(item).__name__ for item in items]
        yield name, repr(sorted(texts))
    elif isinstance(value, (dict, list, tuple)) or id(value) not in seen:
        if not isinstance(value, (dict, list, tuple)):
            seen.add(id(value))
        for key, item in held(value):
            yield from _leaves(item, _join(name, key), depth + 1, seen)


def is_array(value: Any) -> bool:
    """Whether a value has a dtype, as arrays and tensors have; a class of the training's own may
    run code of its own to tell it."""
    found = inspect.getattr_static(type(value), "dtype", None)
    code = getattr(getattr(found, "fget", None), "__code__", None)
    return found is not None and not (code is not None and source_line.inside(code.co_filename))


def held(value: Any) -> Iterable[Tuple[Any, Any]]:
    """(key, item) of what a container or an object holds, read without running any code of its
    class: a batch may draw when it is read."""
    if isinstance(value, UserDict):
        value = vars(value).get("data", {})
    if isinstance(value, dict):
        return list((OrderedDict if isinstance(value, OrderedDict) else dict).items(value))
    if isinstance(value, (list, tuple)):
        kind: Any = list if isinstance(value, list) else tuple
        return enumerate(kind.__iter__(value))
    if callable(value) or isinstance(value, types.ModuleType):
        return ()
    found = {}
    for kind in reversed(type(value).__mro__):
        for name, member in vars(kind).items():
            # one of `__slots__`
            if type(member) is types.MemberDescriptorType and type(value).__flags__ & _HEAP:
                with contextlib.suppress(AttributeError):  # nothing was put there
                    found[name] = member.__get__(value)
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        fields = {}
    return list({**found, **(fields if type(fields) is dict else {})}.items())


def _join(name: str, key: Any) -> str:
    return ("%s.%s" % (name, key) if name else str(key))[:MAX_NAME]


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def _roots(torch: Any, wanted: Dict[int, int]) -> List[Any]:
    """Models that hold a wanted parameter (identity -> its place), in the optimizers' order."""
    kind = torch.nn.Module
    made = [
        item
        for item in gc.get_objects()
        if issubclass(type(item), kind) and "_modules" in item.__dict__
    ]
    held = {id(child) for module in made for child in module._modules.values()}
    found = []
    for module in made:
        if id(module) not in held:
            places = [wanted[id(item)] for item in parameters(module) if id(item) in wanted]
            if places:
                found.append((min(places), -len(places), type(module).__name__, _unwrap(module)))
    covered: Set[int] = set()
    roots = []
    # two holders of one model (a wrapper kept in a list, say): the first names it
    for *_, module in sorted(found, key=lambda item: item[:3]):
        own = {id(item) for item in parameters(module) if id(item) in wanted}
        if own - covered:
            roots.append(module)
            covered |= own
    return roots


def _unwrap(module: Any) -> Any:
    while type(module).__name__ in _WRAPPERS:
        inner = [child for child in module._modules.values() if child is not None]
        if len(inner) != 1:
            break
        module = inner[0]
    return module
