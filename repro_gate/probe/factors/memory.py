"""What memory holds before anything is written to it: arrays and tensors that are made empty.

Pinned, they are filled with one number, varied with another; neither is NaN, so that a NaN that
torch's own `fill_uninitialized_memory` put there is gone. Out of sight: `np.ndarray(…)`,
`torch.Tensor(2, 3)`, `resize_`, and what C code allocates for itself (`np.divide(where=…)`): the
gate fills that from outside, by `MALLOC_PERTURB_`, where it is not NumPy's own store of small
blocks.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from .. import imports
from .use import USES

NAME = "memory"
# of floating point, of whole numbers; the latter may be used as an index
_PINNED = (0.5, 1)
_VARIED = (-1.5, 2)
_BYTES = 1 << 16  # of the beginning, which stand for the whole
_IN_TORCH = "empty empty_like empty_strided empty_permuted"
_OF_TENSORS = " Tensor.new_empty Tensor.new_empty_strided"
Numbers = tuple[float, int]


def install() -> None:
    """Wrap NumPy's ways to memory that is not written, once it is imported."""
    _wrap("numpy", "empty empty_like", _array_content, _fill_array)


def torch_arrived(torch: Any) -> None:
    """Wrap torch's. A run that is only varied keeps them as they are: torch's own flag fills what
    they make."""
    if USES.only_varies(NAME):
        return
    content = functools.partial(_tensor_content, torch)
    _wrap("torch", _IN_TORCH + _OF_TENSORS, content, _fill_tensor)

    def scripted(builtins: Any) -> None:
        for name in _IN_TORCH.split():
            builtins._register_builtin(getattr(torch, name), "aten::" + name)

    imports.after_import("torch.jit._builtins", scripted)


def _wrap(
    module: str,
    names: str,
    content: Callable[[Any], bytes],
    fill: Callable[[Any, Numbers], None],
) -> None:
    def filled(numbers: Numbers, made: Any) -> Any:
        fill(made, numbers)
        return made

    USES.wrap(
        NAME,
        module,
        names,
        lambda _, made: filled(_PINNED, made),
        varied=functools.partial(filled, _VARIED),
        content=content,
    )


def _array_content(array: Any) -> bytes:
    if array.dtype.hasobject or not array.flags.c_contiguous:
        return b""
    return array.reshape(-1).view("u1")[:_BYTES].tobytes() if array.size else b""


def _fill_array(array: Any, numbers: Numbers) -> None:
    kind = array.dtype.kind
    if kind in "fciu":
        array.fill(numbers[kind in "iu"])
    elif kind == "b":
        array.fill(numbers == _PINNED)


def _is_strided(tensor: Any) -> bool:
    return (
        tensor.device.type in ("cpu", "cuda")
        and str(tensor.layout) == "torch.strided"
        and type(tensor).__name__ in ("Tensor", "Parameter")
    )


def _tensor_content(torch: Any, tensor: Any) -> bytes:
    if not _is_strided(tensor) or not tensor.numel() or not tensor.is_contiguous():
        return b""
    with torch.no_grad():
        numbers = tensor.detach().reshape(-1).view(torch.uint8)[:_BYTES]
        return bytes(numbers.cpu().tolist())


def _fill_tensor(tensor: Any, numbers: Numbers) -> None:
    if not _is_strided(tensor):
        return
    inside = tensor.detach()
    if str(inside.dtype) == "torch.bool":
        inside.fill_(numbers == _PINNED)
    else:
        inside.fill_(numbers[not (inside.is_floating_point() or inside.is_complex())])
