"""What no optimizer moves, as it is when training ends: modules outside every optimizer's model (an EMA, a best snapshot), and plain
attributes of modules (counters, cached tensors). It is compared for a notice only, so it is looked at once, and within bounds."""

from __future__ import annotations

import gc
import hashlib
from typing import Any, Iterator, List, Set, Tuple

from ..trace.format import MAX_UNMOVED, MAX_UNMOVED_NAME
from .digest import digest_all, in_memory
from .names import Names

_MODULES = 10_000  # modules that are looked at
_BYTES = 256 * 1024 * 1024  # of tensors that are digested
Row = Tuple[str, str, str]


def look(torch: Any, names: Names) -> Tuple[List[Row], int]:
    """(`module` or `attribute`, name, digest as hex) of what exists now, sorted, and how many modules raised while they were looked at.

    Modules of one class share a name. A module may be of any kind (lazy, with methods of its own that raise): it hides no other.
    """
    kind, failed = torch.nn.Module, 0
    modules = [item for item in gc.get_objects() if issubclass(type(item), kind)]
    made: List[Any] = []
    held: Set[int] = set()
    for module in modules:
        try:
            fields = object.__getattribute__(module, "__dict__")
            if "_modules" in fields and len(made) < _MODULES:  # else its `__init__` has not run
                made.append(module)
                held.update(id(child) for child in fields["_modules"].values())
        except Exception:
            failed += 1
    rows: List[Row] = []
    budget = [_BYTES]
    for root in sorted((module for module in made if id(module) not in held), key=lambda item: type(item).__name__):
        try:
            rows.extend(_rows(torch, root, names, budget))
        except Exception:
            failed += 1
        if len(rows) >= MAX_UNMOVED:
            break
    return sorted(rows)[:MAX_UNMOVED], failed


def _rows(torch: Any, root: Any, names: Names, budget: List[int]) -> Iterator[Row]:
    label = type(root).__name__
    tensors = [*root.parameters(), *root.buffers()]
    if tensors and not any(id(item) in names.by_id for item in tensors) and _affords(torch, tensors, budget):
        digest = hashlib.sha256(digest_all(torch, tensors)).hexdigest()[:32]
        yield "module", label[:MAX_UNMOVED_NAME], digest
    for name, digest in _attributes(torch, root, label, names, budget):
        yield "attribute", name[:MAX_UNMOVED_NAME], digest


def _attributes(torch: Any, root: Any, label: str, names: Names, budget: List[int]) -> Iterator[Tuple[str, str]]:
    usual = vars(torch.nn.Module())
    for path, module in root.named_modules():
        for key, value in list(vars(module).items()):
            if key in usual or (type(value) not in (int, float) and not isinstance(value, torch.Tensor)):
                continue
            if isinstance(value, torch.Tensor):
                if id(value) in names.by_id or not _affords(torch, [value], budget):
                    continue
                digest = digest_all(torch, [value]).hex()
            else:
                digest = hashlib.sha256(repr(value).encode()).hexdigest()[:32]
            yield ".".join(part for part in (label, path, key) if part), digest


def _affords(torch: Any, tensors: List[Any], budget: List[int]) -> bool:
    """Take these tensors' bytes off the budget, where all can be read and it is large enough."""
    if not all(in_memory(torch, item) and item.layout is torch.strided for item in tensors):
        return False
    size = sum(item.numel() * item.element_size() for item in tensors)
    if size > budget[0]:
        return False
    budget[0] -= size
    return True
