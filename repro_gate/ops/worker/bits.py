"""What an operator gives, by its bits: equality of results, a digest, the largest distance in ULP;
and the operators that it dispatches, and whether memory that nothing has written reaches the
result. Without NumPy or the gate's packages."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from ...probe.digest import digest_all
from ...trace import ulp
from ...trace.dispatch import (
    ASIDE,
    base,
    form,
    gives_unwritten,
    is_view,
    mode,
)

_MOST_ULP = 1 << 62
# What prepares or finishes nearly every operator. It is the kernel of a case only if nothing else
# was dispatched.
_COMMON = re.compile(
    "(clone|copy_|_to_copy|(new_)?(zeros|ones)|(zeros|ones|full)_like|fill_|zero_|full|arange"
    "|scalar_tensor)"
)


def tensors(value: Any) -> list[Any]:
    """Return the tensors in a result or in arguments, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def leaves(value: Any) -> list[Any]:
    """Return the dense tensors in a result, in order: a sparse one as indices and values, what is
    no tensor as the bytes of a text."""
    dense: list[Any] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            dense += _dense(leaf.detach())
        else:
            text = leaf.hex() if isinstance(leaf, float) else repr(leaf)[:200]
            content = list(text.encode())
            dense.append(torch.tensor(content, dtype=torch.uint8))
    return dense


def _dense(tensor: Any) -> list[Any]:
    if tensor.is_nested:
        parts: list[Any] = []
        for item in tensor.unbind():
            parts += _dense(item)
        return parts
    if str(tensor.layout).startswith("torch.sparse"):
        tensor = tensor.to_sparse_coo().coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return [tensor.contiguous()]


def equal(first: list[Any], second: list[Any]) -> bool:
    """Return whether two results have the same leaves, bit for bit: -0.0 is not +0.0, and a NaN
    equals its own bits."""
    if _kinds(first) != _kinds(second):
        return False
    return all(map(torch.equal, _bytes(first), _bytes(second)))


def _kinds(dense: list[Any]) -> list[Any]:
    return [(leaf.dtype, leaf.shape) for leaf in dense]


def _bytes(dense: list[Any]) -> Iterator[Any]:
    for leaf in dense:
        yield leaf.reshape(-1).view(torch.uint8)


def digest(dense: list[Any]) -> str:
    """Return one digest over the dtype, shape and bytes of every leaf."""
    digests = digest_all([leaf.cpu() for leaf in dense])
    return hashlib.sha256(digests).hexdigest()[:32]


def largest_ulp(first: list[Any], second: list[Any]) -> int | None:
    """Return the largest number of representable values between two elements; None if no float
    differs, or if one side is NaN or missing."""
    largest = None
    for a, b in zip(first, second):
        if _kinds([a]) != _kinds([b]):
            continue
        if ulp.integer(torch, a.dtype) is None or not a.numel():
            continue
        absent = torch.isnan(a)
        if not torch.equal(absent, torch.isnan(b)):
            return None
        numbers = [side.masked_fill(absent, 0.0) for side in (a, b)]
        distance = ulp.largest(ulp.gaps(torch, *numbers))
        largest = max(largest or 0, min(distance, _MOST_ULP))
    return largest


class Call(NamedTuple):
    """One operator as it was dispatched."""

    name: str = ""
    form: str = ""
    is_view: bool = False


def kernels(calls: list[Call]) -> list[Call]:
    """Return the operators that do the work, each once: neither views nor common to all; in a
    backward, those that say so."""
    working = [call for call in dict.fromkeys(calls) if not call.is_view]
    own = [
        call
        for call in working
        if not gives_unwritten(call.name) and not _COMMON.fullmatch(base(call.name))
    ]
    backward = [call for call in own if "backward" in call.name]
    last = working or calls
    return backward or own or last[-1:]


def record(
    run: Callable[[], Any],
    byte: int | None = None,
) -> tuple[list[Call], Any]:
    """Run once; return each operator in the order of its dispatch, and the result. `byte`: fill
    with it whatever `empty` and its like give."""
    calls: list[Call] = []

    def dispatched(
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        name = str(function)
        if name.startswith(ASIDE):
            return function(*args, **kwargs)
        call = Call(name, form(function, args, kwargs), is_view(function))
        calls.append(call)
        written = 0
        if base(name) in ("resize_", "resize_as_"):
            written = _size(args[0])
        result = function(*args, **kwargs)
        if byte is not None and gives_unwritten(name):
            for tensor in tensors(result):
                if _size(tensor) > written:
                    tensor.untyped_storage()[written:].fill_(byte)
        return result

    with mode(torch, dispatched):
        return calls, run()


def uninitialised(run: Callable[[], Any]) -> bool:
    """Return whether what `empty` and its like hold shows in the result: two executions, each with
    its own byte written there."""
    found = []
    for byte in (0x5A, 0x35, 0x35):
        _, result = record(run, byte)
        found.append(leaves(result))
    one, other, again = found
    return not equal(one, other) and equal(other, again)


def _size(tensor: Any) -> int:
    """Return the bytes of the memory that a tensor lies in, 0 if it has none of its own."""
    if tensor.is_sparse or tensor.is_nested or tensor.device.type == "meta":
        return 0
    return int(tensor.untyped_storage().nbytes())
