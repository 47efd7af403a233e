"""The form of a call of an operator, as JSON's own types: its arguments without the elements of
tensors. `ops/worker/inputs.py` makes arguments of a form again."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def described(value: Any, elements: bool = False) -> Any:
    """Return arguments as JSON's own types. What cannot be made again is {"unknown": its type}; a
    generator is null, for a measurement seeds its own."""
    if isinstance(value, torch.Tensor):
        return _tensor(value, elements)
    if isinstance(value, (list, tuple)):
        return [described(item, elements) for item in value]
    if isinstance(value, dict):
        return {key: described(item, elements) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    for name in ("dtype", "device", "layout", "memory_format"):
        if isinstance(value, getattr(torch, name)):
            return {name: str(value).replace("torch.", "")}
    if isinstance(value, torch.Generator):
        return None
    return {"unknown": type(value).__name__[:100]}


def _tensor(tensor: Any, elements: bool) -> dict[str, Any]:
    wrapper = torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor)
    if tensor.layout is not torch.strided or tensor.is_quantized or wrapper:
        return {"unknown": f"{type(tensor).__name__} of {tensor.layout}"[:100]}
    described = {
        "tensor": str(tensor.dtype).replace("torch.", ""),
        "size": list(tensor.size()),
        "stride": list(tensor.stride()),
        "device": str(tensor.device),
    }
    if (
        elements
        and tensor.numel()
        and not (tensor.is_floating_point() or tensor.is_complex())
    ):
        with contextlib.suppress(Exception):  # a dtype that has no smallest element
            is_mask = tensor.dtype is torch.bool
            distinct = tensor.sum() if is_mask else torch.unique(tensor).numel()
            least, most = tensor.min(), tensor.max()
            described["elements"] = [int(least), int(most), int(distinct)]
    return described
