"""The bits of what an operator returns: equality, a digest, the largest distance in ULP. Without
NumPy or the gate's packages."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from ...trace import ulp

_MOST_ULP = 1 << 62


def tensors(torch: Any, value: Any) -> list[Any]:
    """Return the tensors in a result or in arguments, in order."""
    from torch.utils._pytree import tree_leaves

    return [item for item in tree_leaves(value) if isinstance(item, torch.Tensor)]


def leaves(torch: Any, value: Any) -> list[Any]:
    """Return the dense tensors in a result, in order, a sparse one as indices and values; what is
    no tensor as text."""
    from torch.utils._pytree import tree_leaves

    found: list[Any] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found += _dense(torch, leaf.detach())
        else:
            found.append(leaf.hex() if isinstance(leaf, float) else repr(leaf)[:200])
    return found


def _dense(torch: Any, tensor: Any) -> list[Any]:
    if tensor.is_nested:
        return [part for item in tensor.unbind() for part in _dense(torch, item)]
    if str(tensor.layout).startswith("torch.sparse"):
        tensor = tensor.to_sparse_coo().coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return [tensor.contiguous()]


def equal(torch: Any, first: list[Any], second: list[Any]) -> bool:
    """Return whether two results have the same leaves, bit for bit: -0.0 is not +0.0, and a NaN
    equals its own bits."""
    return len(first) == len(second) and all(_same(torch, a, b) for a, b in zip(first, second))


def _same(torch: Any, a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and bool(a == b)
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(torch.equal(*(side.reshape(-1).view(torch.uint8) for side in (a, b))))
    )


def digest(torch: Any, found: list[Any]) -> str:
    """Return SHA-256, cut to 128 bits, over the dtype, shape and bytes of each leaf."""
    total = hashlib.sha256()
    for leaf in found:
        if isinstance(leaf, str):
            total.update(b"text " + leaf.encode() + b"\0")
            continue
        total.update(("%s %s\0" % (leaf.dtype, list(leaf.shape))).encode())
        here = leaf.cpu().contiguous()
        length = here.numel() * here.element_size()
        if length:
            total.update((ctypes.c_ubyte * length).from_address(here.data_ptr()))
    return total.hexdigest()[:32]


def largest_ulp(torch: Any, first: list[Any], second: list[Any]) -> int | None:
    """Return the largest number of representable values between two elements; None if no float
    differs, or if one side is NaN or missing."""
    largest: int | None = None
    for a, b in zip(first, second):
        texts = isinstance(a, str) or isinstance(b, str)
        if texts or a.shape != b.shape or not ulp.exists(a.dtype) or not a.numel():
            continue
        absent = torch.isnan(a)
        if bool((absent != torch.isnan(b)).any()):
            return None
        numbers = (side.masked_fill(absent, 0.0) for side in (a, b))
        largest = max(largest or 0, min(ulp.largest(ulp.gaps(torch, *numbers)), _MOST_ULP))
    return largest


def size(tensor: Any) -> int:
    """Return the bytes of the memory that a tensor lies in, 0 if it has none of its own."""
    if tensor.is_sparse or tensor.is_nested or tensor.device.type == "meta":
        return 0
    return int(tensor.untyped_storage().nbytes())
