"""ULP: how many representable values of their float type lie between two elements."""

from __future__ import annotations

from typing import Any

_FLOATS = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64")


def integer(torch: Any, dtype: Any) -> Any:
    """Return the dtype of integers that have the size of a float type; None of other types, which
    have no ULP here."""
    name = f"int{8 * dtype.itemsize}"
    return getattr(torch, name) if str(dtype) in _FLOATS else None


def gaps(torch: Any, x: Any, y: Any) -> Any:
    """Return that of each pair of elements, as int64: 0 for -0.0 and +0.0; of unlike sign it may
    wrap. The dtype has an ULP."""
    kind = integer(torch, x.dtype)
    magnitude = torch.iinfo(kind).max  # all bits but the sign

    def places(side: Any) -> Any:
        bits = side.contiguous().view(kind).to(torch.int64)
        return torch.where(bits < 0, -(bits & magnitude), bits & magnitude)

    first = places(x)
    second = places(y)
    return torch.maximum(first, second) - torch.minimum(first, second)


def largest(gaps: Any) -> int:
    """Return the largest of `gaps`, which must not be empty; 2**63 - 1 if one wrapped."""
    return int(gaps.max()) if gaps.min() >= 0 else (1 << 63) - 1
