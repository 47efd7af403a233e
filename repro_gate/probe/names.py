"""Gives tensors the names a person knows: `blocks.3.attn.weight` rather than `param 17`.

Optimizers know tensors, modules know names. Root modules (those that no other module holds) are found among the objects of the garbage
collector, once for each set of optimizers; wrappers that only pass a model on (DDP, FSDP, torch.compile) leave no mark in a name.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Set, Tuple

from ..trace.format import MAX_NAME

_WRAPPERS = {"DistributedDataParallel", "DataParallel", "OptimizedModule", "FullyShardedDataParallel"}
_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_LEAVES = 100_000
_DEPTH = 8  # of nesting in a batch


class Names:
    """Names of parameters by identity, in the order of `parameters`; buffers as (name, holder, key), read anew at each step."""

    def __init__(self) -> None:
        self.by_id: Dict[int, str] = {}
        self.parameters: List[Tuple[str, Any]] = []
        self.buffers: List[Tuple[str, Dict[str, Any], str]] = []

    def knows(self, optimizer: Any) -> bool:
        return all(self.by_id.keys() >= set(map(id, group["params"])) for group in optimizer.param_groups)

    def add(self, name: str, parameter: Any) -> None:
        if id(parameter) not in self.by_id:
            self.by_id[id(parameter)] = name[:MAX_NAME]
            self.parameters.append((name[:MAX_NAME], parameter))

    def add_model(self, root: Any, prefix: str) -> None:
        for name, parameter in root.named_parameters():
            self.add(prefix + _plain(name), parameter)
        for path, module in root.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None:
                    self.buffers.append(((prefix + _plain(_join(path, key)))[:MAX_NAME], module._buffers, key))


def name_tensors(torch: Any, optimizers: List[Any]) -> Names:
    """Names for everything that the optimizers update, and for the frozen parameters and buffers of the same models."""
    parameters = [parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]]
    names = Names()
    roots = _roots(torch, {id(parameter): index for index, parameter in enumerate(parameters)})
    taken: Dict[str, int] = {}
    for root in roots:
        label = type(root).__name__
        number = taken[label] = taken.get(label, 0) + 1
        names.add_model(root, "%s%s." % (label, "" if number == 1 else "#%d" % number) if len(roots) > 1 else "")
    for number, optimizer in enumerate(optimizers):
        for at, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                names.add("%sparam_groups.%d.%d" % ("optimizer%d." % number if number else "", at, index), parameter)
    return names


def leaves(value: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """(name, leaf) for what a batch or an optimizer's state holds: through mappings, sequences, sets, dataclasses and plain objects.

    Each plain object is entered once, and at most 100,000 leaves are named: whatever hangs together, this ends.
    """
    return itertools.islice(_leaves(value, name[:MAX_NAME], 0, set()), _LEAVES)


def _leaves(value: Any, name: str, depth: int, seen: Set[int]) -> Iterator[Tuple[str, Any]]:
    inner: Any = ()
    if value is None:
        return
    if isinstance(value, (str, bytes, int, float, complex)) or hasattr(value, "dtype"):
        yield name or "value", value
    elif depth > _DEPTH:
        yield name, type(value).__name__  # not the value: its text may hold an address
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, (list, tuple)):
        inner = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif isinstance(value, (set, frozenset)):
        yield name, repr(sorted(map(repr, value)))  # a set has no order of its own
    elif hasattr(value, "__dict__") and not callable(value) and id(value) not in seen:
        seen.add(id(value))
        inner = vars(value).items()
    for key, item in inner:
        yield from _leaves(item, _join(name, key), depth + 1, seen)


def _join(name: str, key: Any) -> str:
    return ("%s.%s" % (name, key) if name else str(key))[:MAX_NAME]


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def _roots(torch: Any, wanted: Dict[int, int]) -> List[Any]:
    """Models that hold a wanted parameter (identity -> its place), in the optimizers' order."""
    kind = torch.nn.Module
    modules = [item for item in gc.get_objects() if issubclass(type(item), kind) and "_modules" in item.__dict__]
    held = {id(child) for module in modules for child in module._modules.values()}
    found = []
    for module in modules:
        places = [wanted[id(item)] for item in module.parameters() if id(item) in wanted] if id(module) not in held else []
        if places:
            found.append((min(places), -len(places), type(module).__name__, _unwrap(module)))
    found.sort(key=lambda item: item[:3])
    covered: Set[int] = set()
    roots = []
    for _, _, _, module in found:  # two holders of one model (a wrapper kept in a list, say): the first names it
        own = {id(item) for item in module.parameters() if id(item) in wanted}
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
