"""The state at the end of a training that its steps do not record.

- What no optimizer updates, as it is when training ends: modules outside every optimizer's model
  (an EMA, a best snapshot), and plain attributes of modules (counters, cached tensors). It is
  compared for a notice only, so it is looked at once, and within bounds.
- Tensors that hold NaN at the start of training and still do at its end. They are looked at three
  times in a process, never at every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..trace.format import MAX_NAME, MAX_UNMOVED
from .digest import digest_all, in_memory, local
from .names import Names, modules, parameters, roots

_MODULES = 10_000  # modules that are looked at
_NAN = 100  # tensors with NaN that are named
_BYTES = 256 * 1024 * 1024  # of tensors that are digested
Row = tuple[str, str, str]


def look(names: Names) -> tuple[list[Row], int]:
    """Return (`module` or `attribute`, name, digest as hex) of what exists now, sorted, and how
    many modules raised while they were looked at.

    Modules of one class share a name. A module may be of any kind (lazy, with methods of its own
    that raise): it hides no other."""
    failed = 0
    rows: list[Row] = []
    budget = [_BYTES]
    found = sorted(roots()[:_MODULES], key=lambda item: type(item).__name__)
    for root in found:
        try:
            rows.extend(_rows(root, names, budget))
        except Exception:
            failed += 1
        if len(rows) >= MAX_UNMOVED:
            break
    return sorted(rows)[:MAX_UNMOVED], failed


def _rows(root: Any, names: Names, budget: list[int]) -> Iterator[Row]:
    label = type(root).__name__
    usual = vars(torch.nn.Module())
    tensors = parameters(root)
    for _, module in modules(root):
        tensors += [item for item in module._buffers.values() if item is not None]
    if tensors and _readable(tensors, names, budget):
        yield "module", label[:MAX_NAME], _digest(digest_all(tensors))
    for path, module in modules(root):
        for key, value in list(vars(module).items()):
            if key in usual or key.startswith("_torchdynamo"):
                continue
            name = ".".join(filter(None, (label, path, key)))[:MAX_NAME]
            if type(value) in (int, float):
                yield "attribute", name, _digest(repr(value).encode())
            elif not issubclass(type(value), torch.Tensor):
                continue
            elif _readable([value], names, budget):
                yield "attribute", name, digest_all([value]).hex()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _readable(tensors: list[Any], names: Names, budget: list[int]) -> bool:
    """Take the bytes of these tensors off the budget, if it is large enough, no optimizer's model
    holds them and all can be read."""
    size = 0
    for item in tensors:
        is_strided = item.layout is torch.strided
        if id(item) in names.by_id or not (is_strided and in_memory(item)):
            return False
        size += item.numel() * item.element_size()
    if size > budget[0]:
        return False
    budget[0] -= size
    return True


class NonFinite:
    """Parameters that an optimizer updates, and buffers, that held NaN when they were looked at
    first."""

    def __init__(self) -> None:
        # (kind, name) -> tensor, step, whether all of it was NaN
        self._tensors: dict[tuple[str, str], tuple[Any, int, bool]] = {}

    def look(self, kind: str, items: Iterable[tuple[str, Any]], step: int) -> None:
        known = self._tensors
        for name, tensor in items:
            key = (kind, name)
            if len(known) < _NAN and key not in known and _nan(tensor):
                known[key] = tensor, step, _nan(tensor, whole=True)

    def lasting(self) -> list[tuple[Any, ...]]:
        """Return (kind, name, step, whether all of it was NaN) of what still holds NaN now."""
        found = []
        for (kind, name), (tensor, step, whole) in self._tensors.items():
            if _nan(tensor):
                found.append((kind, name, step, whole))
        return found


def not_zero(tensor: Any) -> bool:
    """Return whether any element is not zero. A tensor that cannot be asked counts as such."""
    try:
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            part = local(tensor)
            return not in_memory(part) or bool(part.any())
    except Exception:
        return True


def _nan(tensor: Any, whole: bool = False) -> bool:
    """Return whether any element (`whole`: every element) is NaN. A tensor that cannot be asked
    (sparse, float8, on `meta`) has none."""
    part = local(tensor)
    # A tensor subclass may refuse any operator; the training must not notice.
    try:
        with torch.no_grad():
            if not in_memory(part):
                return False
            # One pass without a temporary; a sum that is not finite may be an overflow.
            is_summed = not whole and not part.dtype.is_complex
            if is_summed and torch.isfinite(torch.sum(part)):
                return False
            is_nan = torch.isnan(part)
            return bool(torch.all(is_nan) if whole else torch.any(is_nan))
    except Exception:
        return False
