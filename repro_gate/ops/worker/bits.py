"""What an operator gives, by its bits: equality of results, a digest, the largest distance in ULP;
and the operators that it dispatches, which of them gave other bits for equal ones, and whether
memory that nothing has written reaches the result. Without NumPy or the gate's packages."""

from __future__ import annotations

import ctypes
import hashlib
import re
import time
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.utils._pytree import tree_leaves

from ...trace import ulp
from ...trace.dispatch import ASIDE, base, form, gives_unwritten, is_view, mode

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
    found: list[Any] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found += _dense(leaf.detach())
        else:
            text = leaf.hex() if isinstance(leaf, float) else repr(leaf)[:200]
            found.append(torch.tensor(list(text.encode()), dtype=torch.uint8))
    return found


def _dense(tensor: Any) -> list[Any]:
    if tensor.is_nested:
        return [part for item in tensor.unbind() for part in _dense(item)]
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
    return len(first) == len(second) and all(map(_same, first, second))


def _same(a: Any, b: Any) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(torch.equal(*(side.reshape(-1).view(torch.uint8) for side in (a, b))))
    )


def digest(found: list[Any]) -> str:
    """Return SHA-256, cut to 128 bits, over the dtype, shape and bytes of each leaf."""
    total = hashlib.sha256()
    for leaf in found:
        total.update(f"{leaf.dtype} {list(leaf.shape)}\0".encode())
        here = leaf.cpu().contiguous()
        length = here.numel() * here.element_size()
        if length:
            total.update((ctypes.c_ubyte * length).from_address(here.data_ptr()))
    return total.hexdigest()[:32]


def largest_ulp(first: list[Any], second: list[Any]) -> int | None:
    """Return the largest number of representable values between two elements; None if no float
    differs, or if one side is NaN or missing."""
    largest: int | None = None
    for a, b in zip(first, second):
        if a.shape != b.shape or not ulp.exists(a.dtype) or not a.numel():
            continue
        absent = torch.isnan(a)
        if not torch.equal(absent, torch.isnan(b)):
            return None
        numbers = (side.masked_fill(absent, 0.0) for side in (a, b))
        largest = max(
            largest or 0, min(ulp.largest(ulp.gaps(torch, *numbers)), _MOST_ULP)
        )
    return largest


@dataclass
class Call:
    """One operator as it was dispatched, with the digests of what went in and what came out, where
    they are asked for."""

    name: str = ""
    form: str = ""
    view: bool = False
    inputs: str = ""
    outputs: str = ""
    raised: bool = False


def kernel(calls: list[Call]) -> Call:
    """Return the operator that does the work: the first that is neither a view nor common to all;
    in a backward, one that says so."""
    working = [call for call in calls if not call.view]
    own = [
        call
        for call in working
        if not _COMMON.fullmatch(base(call.name)) and not gives_unwritten(call.name)
    ]
    backward = [call for call in own if "backward" in call.name]
    return (backward or own or working or calls or [Call()])[0]


def record(
    run: Callable[[], Any], byte: int | None = None, digests: bool = False
) -> tuple[list[Call], Any]:
    """Run once; return each operator in the order of its dispatch, and the result. `byte`: fill
    with it whatever `empty` and its like give. An operator's exception ends the record."""
    calls: list[Call] = []

    def dispatched(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(function)
        if name.startswith(ASIDE):
            return function(*args, **kwargs)
        call = Call(name, form(function, args, kwargs), is_view(function))
        calls.append(call)
        if digests:
            call.inputs = _digest((args, kwargs))
        written = _bytes_of(args[0]) if base(name) in ("resize_", "resize_as_") else 0
        try:
            result = function(*args, **kwargs)
        except Exception:
            call.raised = True
            raise
        if byte is not None and gives_unwritten(name):
            for tensor in tensors(result):
                if _bytes_of(tensor) > written:
                    tensor.untyped_storage()[written:].fill_(byte)
        if digests:
            call.outputs = _digest(
                (result, args) if function._schema.is_mutable else result
            )
        return result

    try:
        with mode(torch, dispatched):
            return calls, run()
    except Exception:
        if not any(call.raised for call in calls):
            raise
    return calls, None


def first_differing(run: Callable[[], Any], seconds: float) -> Call | None:
    """Return the first operator that, in one of many executions, gave other bits than in the first
    for equal ones; None if none did."""
    first, _ = record(run, digests=True)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for call, before in zip(record(run, digests=True)[0], first):
            if (call.name, call.inputs) != (before.name, before.inputs):
                break  # what went in differs already: the cause was no operator's
            if call.outputs != before.outputs:
                return before
    return None


def uninitialised(run: Callable[[], Any]) -> bool:
    """Return whether what `empty` and its like hold shows in the result: two executions, each with
    its own byte written there."""
    one, other, again = (leaves(record(run, byte)[1]) for byte in (0x5A, 0x35, 0x35))
    return not equal(one, other) and equal(other, again)


def _bytes_of(tensor: Any) -> int:
    """Return the bytes of the memory that a tensor lies in, 0 if it has none of its own."""
    if tensor.is_sparse or tensor.is_nested or tensor.device.type == "meta":
        return 0
    return int(tensor.untyped_storage().nbytes())


def _digest(value: Any) -> str:
    try:
        return digest(leaves(value))
    except (RuntimeError, NotImplementedError):
        # a layout that cannot be read here: never told from another
        return ""
