"""What stands beside the training when it ends: modules that no optimizer's model holds (an EMA, a best snapshot), and plain attributes of
modules (counters, cached tensors). It is compared for a notice only, so it is looked at once, and within bounds.
"""

from __future__ import annotations

import gc
import hashlib
from typing import Any, Iterator, List, Tuple

from ..trace.format import MAX_BESIDE, MAX_BESIDE_NAME
from .digest import digest_all, in_memory
from .names import Names

_MODULES = 10_000  # modules that are looked at
_BYTES = 256 * 1024 * 1024  # of tensors that are digested
Row = Tuple[str, str, str]


def look(torch: Any, names: Names) -> List[Row]:
    """(`module` or `attribute`, name, digest as hex) of what exists now, sorted. Modules of one class share a name."""
    kind = torch.nn.Module
    modules = [item for item in gc.get_objects() if issubclass(type(item), kind) and "_modules" in item.__dict__][:_MODULES]
    held = {id(child) for module in modules for child in module._modules.values()}
    rows: List[Row] = []
    budget = [_BYTES]
    for root in sorted((module for module in modules if id(module) not in held), key=lambda item: type(item).__name__):
        label = type(root).__name__
        tensors = [*root.parameters(), *root.buffers()]
        if tensors and not any(id(item) in names.by_id for item in tensors) and _affords(torch, tensors, budget):
            digest = hashlib.sha256(digest_all(torch, tensors)).hexdigest()[:32]
            rows.append(("module", label[:MAX_BESIDE_NAME], digest))
        for name, digest in _attributes(torch, root, label, names, budget):
            rows.append(("attribute", name[:MAX_BESIDE_NAME], digest))
        if len(rows) >= MAX_BESIDE:
            break
    return sorted(rows)[:MAX_BESIDE]


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
