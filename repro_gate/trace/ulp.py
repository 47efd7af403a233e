"""ULP: how many representable values of their float type lie between two elements."""

from __future__ import annotations

from typing import Any

_MAGNITUDE = {  # dtype -> the integer of its size, all bits but the sign
    "torch.float16": ("int16", 0x7FFF),
    "torch.bfloat16": ("int16", 0x7FFF),
    "torch.float32": ("int32", 0x7FFFFFFF),
    "torch.float64": ("int64", 0x7FFFFFFFFFFFFFFF),
}


def exists(dtype: Any) -> bool:
    """Return whether a dtype has an ULP here."""
    return str(dtype) in _MAGNITUDE


def integer(torch: Any, dtype: Any) -> Any:
    """Return the dtype of integers that have the size of a float type; None of other types."""
    name, _ = _MAGNITUDE.get(str(dtype), ("", 0))
    return getattr(torch, name) if name else None


def gaps(
    torch: Any,
    x: Any,
    y: Any,
) -> Any:
    """Return that of each pair of elements, as int64: 0 for -0.0 and +0.0; of unlike sign it may
    wrap. The dtype has an ULP."""
    integer, magnitude = _MAGNITUDE[str(x.dtype)]

    def places(side: Any) -> Any:
        bits = side.contiguous().view(getattr(torch, integer)).to(torch.int64)
        return torch.where(bits < 0, -(bits & magnitude), bits & magnitude)

    first = places(x)
    second = places(y)
    return torch.maximum(first, second) - torch.minimum(first, second)


def largest(gaps: Any) -> int:
    """Return the largest of `gaps`, which must not be empty; 2**63 - 1 if one wrapped."""
    return int(gaps.max()) if gaps.min() >= 0 else (1 << 63) - 1
