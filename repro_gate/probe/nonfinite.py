"""Finds tensors that hold NaN at the start of training and still do at its end. Looks three times
in a process, never at every step."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

from .digest import local

MOST = 100  # tensors that are named


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
            if len(self._found) < MOST and (kind, name) not in self._found and self._nan(tensor):
                self._found[kind, name] = (tensor, step, self._nan(tensor, whole=True))

    def lasting(self) -> List[List[Any]]:
        """[kind, name, step, whether all of it was NaN] of what still holds NaN now."""
        return [
            [kind, name, step, whole]
            for (kind, name), (tensor, step, whole) in self._found.items()
            if self._nan(tensor)
        ]

    def _nan(self, tensor: Any, whole: bool = False) -> bool:
        """Whether any element (`whole`: every element) is NaN. A tensor that cannot be asked
        (sparse, float8, on `meta`) has none."""
        torch, part = self._torch, local(tensor)
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                if (
                    not (part.is_floating_point() or part.is_complex())
                    or not part.numel()
                    or not part.untyped_storage().nbytes()
                ):
                    return False
                if not whole and not part.is_complex() and bool(torch.isfinite(part.sum())):
                    # one pass without a temporary; a sum that is not finite may be an overflow
                    return False
                return bool(torch.isnan(part).all() if whole else torch.isnan(part).any())
        except Exception:  # a tensor subclass may refuse any operator; the training must not notice
            return False
