"""What memory holds before anything is written to it: arrays and tensors that are made empty.

Pinned, they are filled with one number, varied with another; neither is NaN, so that a NaN that
torch's own `fill_uninitialized_memory` put there is gone. Out of sight: `np.ndarray(…)`,
`torch.Tensor(2, 3)`, `resize_`, and what C code allocates for itself (`np.divide(where=…)`): the
gate fills that from outside, by `MALLOC_PERTURB_`, where it is not NumPy's own store of small
blocks.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from typing import Any, Callable

from .. import imports
from ..patch import wrap
from .use import USES

NAME = "memory"
# of floating point, of whole numbers; the latter may be used as an index
_PINNED, _VARIED = (0.5, 1), (-1.5, 2)
_BYTES = 1 << 16  # of the beginning, which stand for the whole
_IN_TORCH = ("empty", "empty_like", "empty_strided", "empty_permuted")
_OF_TENSORS = ("new_empty", "new_empty_strided")


def install() -> None:
    """Wrap NumPy's ways to memory that is not written, once it is imported."""
    for name in ("empty", "empty_like"):
        around = functools.partial(_made, "numpy." + name, _array_held, _fill_array)
        imports.wrap_later("numpy", name, around)


def torch_arrived(torch: Any) -> None:
    """Wrap torch's. What keeps lists of these functions is asked for them before, and told of the
    wrapped ones. A run that is only varied keeps them as they are: torch's own flag fills what they
    make."""
    if USES.only_varies(NAME):
        return
    names = [name for name in _IN_TORCH if hasattr(torch, name)]
    for module, listing in (
        ("torch.utils._device", "_device_constructors"),
        ("torch.overrides", "get_ignored_functions"),
    ):
        getattr(sys.modules.get(module), listing, list)()
    held = functools.partial(_tensor_held, torch)
    for owner, called, those in (
        (torch, "torch", names),
        (torch.Tensor, "Tensor", _OF_TENSORS),
    ):
        for name in those:
            source = "%s.%s" % (called, name)
            wrap(owner, name, functools.partial(_made, source, held, _fill_tensor))

    def scripted(builtins: Any) -> None:
        for name in names:
            builtins._register_builtin(getattr(torch, name), "aten::" + name)

    def compiled(dynamo: Any) -> None:  # a graph keeps the call as it is, and does not break there
        for name in names:
            del getattr(torch, name)._torchdynamo_disable
            dynamo.allow_in_graph(getattr(torch, name))

    imports.after_import("torch.jit._builtins", scripted)
    imports.after_import("torch._dynamo", compiled)


def _made(
    source: str,
    held: Callable[[Any], bytes],
    fill: Callable[..., None],
    original: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    made = original(*args, **kwargs)

    def filled(with_what: Any) -> Any:
        fill(made, *with_what)
        return _Made(made, held)

    given = USES.ask(
        NAME,
        source,
        lambda: _Made(made, held),
        lambda _: filled(_PINNED),
        lambda: filled(_VARIED),
    )
    return given.what


class _Made:
    """What was made; as text, a digest of what it held, taken only where uses are watched."""

    def __init__(self, what: Any, held: Callable[[Any], bytes]) -> None:
        self.what, self._held = what, held

    def __repr__(self) -> str:
        return hashlib.blake2b(self._held(self.what), digest_size=8).hexdigest()


def _array_held(array: Any) -> bytes:
    if array.dtype.hasobject or not array.flags.c_contiguous:
        return b""
    return bytes(memoryview(array.reshape(-1).view("u1"))[:_BYTES]) if array.size else b""


def _fill_array(array: Any, floating: float, whole: int) -> None:
    kind = array.dtype.kind
    if kind in "fciub":
        array.fill(floating if kind in "fc" else whole == 1 if kind == "b" else whole)


def _plain(tensor: Any) -> bool:
    return (
        tensor.device.type in ("cpu", "cuda")
        and str(tensor.layout) == "torch.strided"
        and type(tensor).__name__ in ("Tensor", "Parameter")
    )


def _tensor_held(torch: Any, tensor: Any) -> bytes:
    if not _plain(tensor) or not tensor.numel() or not tensor.is_contiguous():
        return b""
    with torch.no_grad():
        return bytes(tensor.detach().reshape(-1).view(torch.uint8)[:_BYTES].cpu().tolist())


def _fill_tensor(tensor: Any, floating: float, whole: int) -> None:
    if not _plain(tensor):
        return
    inside = tensor.detach()
    whole = whole == 1 if str(inside.dtype).endswith("bool") else whole
    inside.fill_(floating if inside.is_floating_point() or inside.is_complex() else whole)
