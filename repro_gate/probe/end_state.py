"""What a training leaves behind, beside what its steps record.

- What no optimizer updates, as it is when training ends: modules outside every optimizer's model
  (an EMA, a best snapshot), and plain attributes of modules (counters, cached tensors). It is
  compared for a notice only, so it is looked at once, and within bounds.
- Tensors that hold NaN at the start of training and still do at its end. They are looked at three
  times in a process, never at every step.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from ..trace.format import MAX_UNMOVED, MAX_UNMOVED_NAME
from .digest import digest_all, in_memory, local
from .names import Names, living_modules, modules, parameters

_MODULES = 10_000  # modules that are looked at
_NAN = 100  # tensors with NaN that are named
_BYTES = 256 * 1024 * 1024  # of tensors that are digested
Row = Tuple[str, str, str]


def look(torch: Any, names: Names) -> Tuple[List[Row], int]:
    """Return (`module` or `attribute`, name, digest as hex) of what exists now, sorted, and how
    many modules raised while they were looked at.

    Modules of one class share a name. A module may be of any kind (lazy, with methods of its own
    that raise): it hides no other."""
    made: List[Any] = []
    children: Set[int] = set()
    failed = 0
    for module in living_modules(torch):
        try:
            fields = object.__getattribute__(module, "__dict__")
            if (
                "_modules" in fields and len(made) < _MODULES
            ):  # else its `__init__` has not run
                made.append(module)
                children.update(id(child) for child in fields["_modules"].values())
        except Exception:
            failed += 1
    rows: List[Row] = []
    budget = [_BYTES]
    roots = [module for module in made if id(module) not in children]
    for root in sorted(roots, key=lambda item: type(item).__name__):
        try:
            rows.extend(_rows(torch, root, names, budget))
        except Exception:
            failed += 1
        if len(rows) >= MAX_UNMOVED:
            break
    return sorted(rows)[:MAX_UNMOVED], failed


def _rows(torch: Any, root: Any, names: Names, budget: List[int]) -> Iterator[Row]:
    label, usual = type(root).__name__, vars(torch.nn.Module())
    tensors = parameters(root)
    for _, module in modules(root):
        tensors += [item for item in module._buffers.values() if item is not None]
    if tensors and _readable(torch, tensors, names, budget):
        yield "module", label[:MAX_UNMOVED_NAME], _digest(digest_all(torch, tensors))
    for path, module in modules(root):
        for key, value in list(vars(module).items()):
            name = ".".join(part for part in (label, path, key) if part)[
                :MAX_UNMOVED_NAME
            ]
            if key in usual:
                continue
            if isinstance(value, torch.Tensor) and _readable(
                torch, [value], names, budget
            ):
                yield "attribute", name, digest_all(torch, [value]).hex()
            elif type(value) in (int, float):
                yield "attribute", name, _digest(repr(value).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _readable(torch: Any, tensors: List[Any], names: Names, budget: List[int]) -> bool:
    """Take the bytes of these tensors off the budget, if it is large enough, no optimizer's model
    holds them and all can be read."""
    size = 0
    for item in tensors:
        if id(item) in names.by_id or not in_memory(torch, item):
            return False
        if item.layout is not torch.strided:
            return False
        size += item.numel() * item.element_size()
    if size > budget[0]:
        return False
    budget[0] -= size
    return True


class NonFinite:
    """Parameters that an optimizer updates, and buffers, that held NaN when they were looked at
    first."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._found: Dict[
            Tuple[str, str], Tuple[Any, int, bool]
        ] = {}  # (kind, name) -> tensor, step, whether all of it was NaN

    def look(self, kind: str, items: Iterable[Tuple[str, Any]], step: int) -> None:
        for name, tensor in items:
            if (
                len(self._found) < _NAN
                and (kind, name) not in self._found
                and self._nan(tensor)
            ):
                self._found[kind, name] = (tensor, step, self._nan(tensor, whole=True))

    def lasting(self) -> List[List[Any]]:
        """Return [kind, name, step, whether all of it was NaN] of what still holds NaN now."""
        return [
            [kind, name, step, whole]
            for (kind, name), (tensor, step, whole) in self._found.items()
            if self._nan(tensor)
        ]

    def _nan(self, tensor: Any, whole: bool = False) -> bool:
        """Return whether any element (`whole`: every element) is NaN. A tensor that cannot be asked
        (sparse, float8, on `meta`) has none."""
        torch, part = self._torch, local(tensor)
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                if not in_memory(torch, part):
                    return False
                if (
                    not whole
                    and not part.is_complex()
                    and bool(torch.isfinite(part.sum()))
                ):
                    # one pass without a temporary; a sum that is not finite may be an overflow
                    return False
                return bool(
                    torch.isnan(part).all() if whole else torch.isnan(part).any()
                )
        except (
            Exception
        ):  # a tensor subclass may refuse any operator; the training must not notice
            return False
