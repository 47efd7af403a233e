"""The bits of what an operator returns: equality, a digest, the largest distance in ULP. Without
NumPy or the gate's packages."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, List, Optional, Union

from ..trace import ulp

Leaf = Union[str, Any]  # a tensor, or the text of anything else
_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_MOST_ULP = 1 << 62


def leaves(torch: Any, value: Any) -> List[Leaf]:
    """The dense tensors in a result, in order; a sparse one as its indices and values; what is no
    tensor as text."""
    from torch.utils._pytree import tree_leaves

    found: List[Leaf] = []
    for leaf in tree_leaves(value):
        if not isinstance(leaf, torch.Tensor):
            found.append(leaf.hex() if isinstance(leaf, float) else repr(leaf)[:200])
        else:
            found += _dense(torch, leaf.detach())
    return found


def _dense(torch: Any, tensor: Any) -> List[Any]:
    if tensor.is_nested:
        return [part for item in tensor.unbind() for part in _dense(torch, item)]
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return [tensor.contiguous()]


def equal(torch: Any, first: List[Leaf], second: List[Leaf]) -> bool:
    """Whether two results have the same leaves, bit for bit: -0.0 is not +0.0, and a NaN equals its
    own bits."""
    return len(first) == len(second) and all(_same(torch, a, b) for a, b in zip(first, second))


def _same(torch: Any, a: Leaf, b: Leaf) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(torch.equal(_integers(torch, a), _integers(torch, b)))
    )


def _integers(torch: Any, tensor: Any) -> Any:
    name = _INTEGERS.get(tensor.element_size())
    return (
        tensor
        if name is None or (tensor.ndim == 0 and tensor.numel() == 0)
        else tensor.view(getattr(torch, name))
    )


def digest(torch: Any, found: List[Leaf]) -> str:
    """SHA-256, cut to 128 bits, over the dtype, shape and bytes of each leaf."""
    total = hashlib.sha256()
    for leaf in found:
        if isinstance(leaf, str):
            total.update(b"text " + leaf.encode() + b"\0")
            continue
        total.update(("%s %s\0" % (leaf.dtype, list(leaf.shape))).encode())
        plain = leaf.cpu().contiguous()
        length = plain.numel() * plain.element_size()
        if length:
            total.update((ctypes.c_ubyte * length).from_address(plain.data_ptr()))
    return total.hexdigest()[:32]


def largest_ulp(torch: Any, first: List[Leaf], second: List[Leaf]) -> Optional[int]:
    """The largest number of representable values between two elements; None where no float differs,
    or where one side is NaN or missing."""
    largest: Optional[int] = None
    for a, b in zip(first, second):
        if (
            isinstance(a, str)
            or isinstance(b, str)
            or a.shape != b.shape
            or not ulp.exists(a.dtype)
            or not a.numel()
        ):
            continue
        absent = torch.isnan(a)
        if bool((absent != torch.isnan(b)).any()):
            return None
        numbers = (side.masked_fill(absent, 0.0) for side in (a, b))
        largest = max(largest or 0, min(ulp.largest(ulp.gaps(torch, *numbers)), _MOST_ULP))
    return largest


def size(tensor: Any) -> int:
    """Bytes of the memory that a tensor lies in; 0 where it has none of its own."""
    return (
        0
        if tensor.is_sparse or tensor.is_nested or tensor.device.type == "meta"
        else int(tensor.untyped_storage().nbytes())
    )


def fill(tensor: Any, byte: int, start: int = 0) -> None:
    """Write one byte all over a tensor's memory, from an offset on."""
    if size(tensor) > start:
        tensor.untyped_storage()[start:].fill_(byte)
