"""How far two tensors are apart: max abs, ULP and L2, in float64 and in pieces of bounded size.

Runs in the training's interpreter, since it needs torch: by `keep` in the second run of a pair, and by `measure` for `repro-gate compare`.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

PIECE = 128 * 1024  # elements at a time: 1 MiB as float64, so that the temporaries stay in the cache
Figures = Tuple[Optional[float], Optional[int], Optional[float], Optional[float]]

_MAGNITUDE = {
    "torch.float16": ("int16", 0x7FFF),
    "torch.bfloat16": ("int16", 0x7FFF),
    "torch.float32": ("int32", 0x7FFFFFFF),
    "torch.float64": ("int64", 0x7FFFFFFFFFFFFFFF),
}


def measure(torch: Any, reference: Any, tensor: Any) -> Figures:
    """(max_abs, max_ulp, l2, l2 of the reference). Both are CPU tensors of one dtype and shape.

    ULP: the number of representable values of the dtype between two elements (0 for -0.0 and +0.0), for the four common float types.
    Infinities that both sides share are no distance. A figure that does not exist, because an element is NaN, or infinite on one side
    only, or because the dtype has no ULP, is None.
    """
    if reference.dtype.is_complex:
        reference, tensor = torch.view_as_real(reference.resolve_conj()), torch.view_as_real(tensor.resolve_conj())
    a, b = reference.reshape(-1), tensor.reshape(-1)
    largest, ulps, squares, norms = 0.0, 0, 0.0, 0.0
    for start in range(0, a.numel(), PIECE):
        x, y = a[start : start + PIECE], b[start : start + PIECE]
        same = torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        wide = x.to(torch.float64)
        norms += float((wide * wide).sum())
        if not same:
            other = y.to(torch.float64)
            gap = (other - wide).abs().masked_fill_(other == wide, 0.0)
            largest = max(float(gap.max()), largest) if largest == largest else largest  # in this order a NaN stays one
            squares += float((gap * gap).sum())
            ulps = max(ulps, _ulps(torch, x, y))
    return (
        _finite(largest),
        (None if ulps < 0 or str(a.dtype) not in _MAGNITUDE or _finite(squares) is None else ulps),
        _finite(squares**0.5),
        _finite(norms**0.5),
    )


def _ulps(torch: Any, x: Any, y: Any) -> int:
    integer, magnitude = _MAGNITUDE.get(str(x.dtype), ("", 0))
    if not integer:
        return -1
    places: List[Any] = []
    for side in (x, y):
        bits = side.contiguous().view(getattr(torch, integer)).to(torch.int64)
        size = bits & magnitude
        places.append(torch.where(bits < 0, -size, size))
    gap = torch.maximum(*places) - torch.minimum(*places)
    wrapped = gap[gap < 0]  # two float64 of unlike sign can be 2**63 values and more apart
    return int(wrapped.max()) + 2**64 if wrapped.numel() else int(gap.max())


def _finite(value: float) -> Optional[float]:
    return value if value - value == 0 else None
