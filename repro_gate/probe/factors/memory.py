"""What memory holds before anything is written to it: arrays and tensors that are made empty.

Pinned, they are filled with one number, varied with another; neither is NaN, so that a NaN that
torch's own `fill_uninitialized_memory` put there is gone. Out of sight: `np.ndarray(…)`,
`torch.Tensor(2, 3)`, `resize_`, and what C code allocates for itself (`np.divide(where=…)`): the
gate fills that from outside, by `MALLOC_PERTURB_`, where it is not NumPy's own store of small
blocks.
"""

from __future__ import annotations

from typing import Any, Callable

from .. import imports
from ..digest import digest_all
from .use import ask_about, only_varies

NAME = "memory"
# of floating point, of whole numbers (they may be used as an index), of booleans
_PINNED = (0.5, 1, True)
_VARIED = (-1.5, 2, False)
_MOST = 1 << 23  # elements of the beginning, which stand for the whole
_IN_TORCH = "empty empty_like empty_strided empty_permuted"
_OF_TENSORS = " Tensor.new_empty Tensor.new_empty_strided"


def install() -> None:
    """Wrap NumPy's ways to memory that is not written, once it is imported."""

    def content(array: Any) -> bytes:
        if array.dtype.hasobject:
            return b""
        return bytes(array.ravel("K")[:_MOST].tobytes())

    def fill(array: Any, numbers: tuple[float, int, bool]) -> Any:
        if array.dtype.kind in "fciub":
            array.fill(numbers["fciub".index(array.dtype.kind) // 2])
        return array

    _wrap("numpy", "empty empty_like", content, fill)


def torch_arrived(torch: Any) -> None:
    """Wrap torch's. A run that is only varied keeps them as they are: torch's own flag fills what
    they make."""
    if only_varies(NAME):
        return

    def usual(tensor: Any) -> bool:
        is_own = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        is_near = tensor.device.type in ("cpu", "cuda")
        return is_own and is_near and tensor.layout is torch.strided

    def content(tensor: Any) -> bytes:
        if not usual(tensor) or not tensor.is_contiguous():
            return b""
        with torch.no_grad():
            return digest_all([tensor.reshape(-1)[:_MOST]])

    def fill(tensor: Any, numbers: tuple[float, int, bool]) -> Any:
        if usual(tensor):
            inside = tensor.detach()
            is_whole = not (inside.is_floating_point() or inside.is_complex())
            inside.fill_(numbers[is_whole + (inside.dtype is torch.bool)])
        return tensor

    _wrap("torch", _IN_TORCH + _OF_TENSORS, content, fill)

    def scripted(builtins: Any) -> None:
        for name in _IN_TORCH.split():
            builtins._register_builtin(getattr(torch, name), "aten::" + name)

    imports.after_import("torch.jit._builtins", scripted)


def _wrap(
    module: str, names: str, content: Callable[[Any], bytes], fill: Callable[..., Any]
) -> None:
    ask_about(
        NAME,
        module,
        names,
        lambda _, made: fill(made, _PINNED),
        varied=lambda made: fill(made, _VARIED),
        content=content,
    )
