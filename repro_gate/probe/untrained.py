"""What no optimizer updates, as it is when training ends: modules outside every optimizer's model
(an EMA, a best snapshot), and plain attributes of modules (counters, cached tensors). It is
compared for a notice only, so it is looked at once, and within bounds."""

from __future__ import annotations

import gc
import hashlib
from typing import Any, Iterator, List, Set, Tuple

from ..trace.format import MAX_UNMOVED, MAX_UNMOVED_NAME
from .digest import digest_all, in_memory
from .names import Names, modules, parameters

_MODULES = 10_000  # modules that are looked at
_BYTES = 256 * 1024 * 1024  # of tensors that are digested
Row = Tuple[str, str, str]


def look(torch: Any, names: Names) -> Tuple[List[Row], int]:
    """(`module` or `attribute`, name, digest as hex) of what exists now, sorted, and how many
    modules raised while they were looked at.

    Modules of one class share a name. A module may be of any kind (lazy, with methods of its own
    that raise): it hides no other.
    """
    made: List[Any] = []
    held: Set[int] = set()
    failed = 0
    for module in [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module)]:
        try:
            fields = object.__getattribute__(module, "__dict__")
            if "_modules" in fields and len(made) < _MODULES:  # else its `__init__` has not run
                made.append(module)
                held.update(id(child) for child in fields["_modules"].values())
        except Exception:
            failed += 1
    rows: List[Row] = []
    budget = [_BYTES]
    for root in sorted(
        (module for module in made if id(module) not in held), key=lambda item: type(item).__name__
    ):
        try:
            rows.extend(_rows(torch, root, names, budget))
        except Exception:
            failed += 1
        if len(rows) >= MAX_UNMOVED:
            break
    return sorted(rows)[:MAX_UNMOVED], failed


def _rows(torch: Any, root: Any, names: Names, budget: List[int]) -> Iterator[Row]:
    label, usual = type(root).__name__, vars(torch.nn.Module())
    tensors = [
        *parameters(root),
        *(
            item
            for _, module in modules(root)
            for item in module._buffers.values()
            if item is not None
        ),
    ]
    if tensors and _readable(torch, tensors, names, budget):
        yield (
            "module",
            label[:MAX_UNMOVED_NAME],
            hashlib.sha256(digest_all(torch, tensors)).hexdigest()[:32],
        )
    for path, module in modules(root):
        for key, value in list(vars(module).items()):
            name = ".".join(part for part in (label, path, key) if part)[:MAX_UNMOVED_NAME]
            if (
                key not in usual
                and isinstance(value, torch.Tensor)
                and _readable(torch, [value], names, budget)
            ):
                yield "attribute", name, digest_all(torch, [value]).hex()
            elif key not in usual and type(value) in (int, float):
                yield "attribute", name, hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _readable(torch: Any, tensors: List[Any], names: Names, budget: List[int]) -> bool:
    """Take the bytes of these tensors off the budget, where no optimizer's model holds them, all
    can be read and it is large enough."""
    if any(
        id(item) in names.by_id or not in_memory(torch, item) or item.layout is not torch.strided
        for item in tensors
    ):
        return False
    size = sum(item.numel() * item.element_size() for item in tensors)
    if size > budget[0]:
        return False
    budget[0] -= size
    return True
