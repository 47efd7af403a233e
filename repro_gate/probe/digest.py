"""Digests of tensors: 16 bytes that see dtype, shape, element order, -0.0 against +0.0 and NaN
payloads, whatever the memory layout.

A tensor of the CPU is read where it lies. `xxh3-128` is XXH3 (xxhash.com, 128 bits) of its elements
in logical order, seeded with 64 bits of a SHA-256 of dtype and shape. It comes from the extension
of the `xxhash` package: the gate's own file where this interpreter has the ABI that it was built
for, else the training's; it is loaded under no name, so that the training sees nothing of it. Where
there is neither, the digest is `sha256-128`, the first 16 bytes of a SHA-256 of dtype, shape and
elements. XXH3 is no cryptographic hash: this finds accidents, not forgers, who own the process
anyway. Two traces are compared only where both name the same digest. A tensor on a device is
digested there (`device_digest.py`), in the same way under either name.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..trace.format import DIGEST_BYTES, MAX_NAME
from ..trace.writer import Later, Row
from . import device_digest
from .device_digest import Sums

# types of tensors whose elements could not be read: their digests say nothing of them
UNREAD: Dict[str, None] = {}
# XXH3, 128 bits, of nothing: what a loaded extension must say
EMPTY = "99aa06d3014798d86001c324468d497f"
_SHA256 = hashlib.sha256
_DEPTH = 8  # of wrapper subclasses in one another
_PARTS = 100  # of one of them
_MANY = 10_000  # headers that are remembered
# the file of the gate's own xxhash extension, as the gate says; it need not fit this interpreter
EXTENSION: List[Optional[str]] = []
_CHOSEN: List["Algorithm"] = []
_ROWS = ("crow_indices", "col_indices", "values")
_COLUMNS = ("ccol_indices", "row_indices", "values")
_LAYOUTS = {  # methods of a sparse tensor that give its parts
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _ROWS,
    "torch.sparse_bsr": _ROWS,
    "torch.sparse_csc": _COLUMNS,
    "torch.sparse_bsc": _COLUMNS,
}


class Algorithm:
    """How the bytes of one tensor become 16: `digest(content, prepared)`, `prepared` made once of
    its header by `prepare`. `headers` has that of each (dtype, shape) that came before, behind the
    ctypes type of the bytes."""

    def __init__(self, extension: Any) -> None:
        self.name = "sha256-128" if extension is None else "xxh3-128"
        self.prepare: Callable[[bytes], Any] = _SHA256 if extension is None else _seed
        self.digest: Callable[[Any, Any], bytes] = (
            _sha256 if extension is None else extension.xxh3_128_digest
        )
        self.headers: Dict[Tuple[Any, Tuple[int, ...]], Tuple[Any, Any]] = {}


def chosen() -> Algorithm:
    """Return the digest of this process."""
    if not _CHOSEN:
        # `.cpython-311-x86_64-linux-gnu.so`: the ABI in full
        suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
        own, name = (
            [path for path in EXTENSION if path],
            os.path.join("xxhash", "_xxhash" + suffix),
        )
        files = [path for path in own if path.endswith(suffix)]
        files += [
            os.path.join(folder, name) for folder in sys.path if os.path.isabs(folder)
        ]
        extensions = (found for found in map(_loaded, files) if found is not None)
        _CHOSEN.append(Algorithm(next(extensions, None)))
    return _CHOSEN[0]


def _loaded(path: str) -> Any:
    """Return the extension in a file, under no name in `sys.modules`; None if it is not there or
    not what it should be."""
    try:
        loader = importlib.machinery.ExtensionFileLoader("_xxhash", path)
        spec = importlib.util.spec_from_file_location("_xxhash", path, loader=loader)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
        return module if module.xxh3_128_digest(b"", 0).hex() == EMPTY else None
    except Exception:  # not there, or built for another C library
        return None


def _seed(header: bytes) -> int:
    return int.from_bytes(_SHA256(header).digest()[:8], "little")


def _sha256(content: Any, header: Any) -> bytes:
    state = header.copy()
    state.update(content)
    return bytes(state.digest()[:DIGEST_BYTES])


def describe(name: str, tensor: Any) -> Row:
    """Return the row that names a tensor in a table: (name, dtype, shape of the local shard)."""
    tensor = local(tensor)
    return name[:MAX_NAME], str(tensor.dtype).replace("torch.", ""), _shape(tensor)


def local(tensor: Any) -> Any:
    """Return the part of a tensor that lives in this process: a DTensor's local shard, else the
    tensor itself."""
    shard = getattr(tensor, "_local_tensor", None)
    return tensor if shard is None else shard


def bare(torch: Any) -> Any:
    """Return a context outside torch.func's transforms, in which a new tensor would be one of
    theirs, without memory to read."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def in_memory(torch: Any, tensor: Any) -> bool:
    """Return whether the elements lie in memory of the tensor's own (or in the parts of a sparse
    one): not so for meta and fake tensors, and for wrapper subclasses (torchao's, nested ones),
    which hold other tensors and whose own data pointer is null."""
    tensor = local(tensor)
    kind = type(tensor)
    if hasattr(kind, "__tensor_flatten__") or kind.__name__ == "FakeTensor":
        return False
    if tensor.device.type == "meta" or shapeless(tensor):
        return False
    if tensor.layout is not torch.strided or not tensor.numel():
        return True
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        if _cut(tensor):
            return False
        if not tensor.is_cpu:
            return True  # some devices have no pointers
    try:
        return bool(tensor.data_ptr())
    except Exception:  # torch.func's and other wrappers
        return False


def _cut(tensor: Any) -> bool:
    """Return whether the storage ends before the last element, as after
    `untyped_storage().resize_(…)`."""
    try:
        last = tensor.storage_offset() + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())
        )
        return bool(
            (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes()
        )
    except Exception:  # it has no storage
        return False


def shapeless(tensor: Any) -> bool:
    """Return whether a tensor has no shape yet, as those of lazy modules before their first
    forward."""
    return hasattr(type(tensor), "materialize")


def _composed(torch: Any, tensor: Any, depth: int) -> bytes:
    """Return the digest of a tensor that others make up (wrapper subclasses, sparse and quantized
    ones): its type, dtype and shape, and name and digest of each. Else that of its type alone."""
    kind = "%s.%s" % (type(tensor).__module__, type(tensor).__qualname__)
    if shapeless(tensor):
        return bytes(_SHA256(kind.encode()).digest()[:DIGEST_BYTES])
    header = _SHA256(
        _text(("repro-gate/digest/v1", kind, str(tensor.dtype), _shape(tensor)))
    )
    try:
        names, parts = _parts(torch, tensor)
        if depth >= _DEPTH or len(parts) > _PARTS:
            raise ValueError("nested too deep")
        header.update(_text(names) + digest_all(torch, parts, depth + 1))
    except Exception:
        if len(UNREAD) < _PARTS:
            UNREAD[kind + " (meta)" * (tensor.device.type == "meta")] = None
    return bytes(header.digest()[:DIGEST_BYTES])


def _text(value: Any) -> bytes:
    return repr(value).encode("utf-8", "backslashreplace")


def _parts(torch: Any, tensor: Any) -> Tuple[List[str], List[Any]]:
    """Return what names the parts that make up a tensor (with a layout, or a scale and zero point),
    and the parts."""
    if hasattr(type(tensor), "__tensor_flatten__"):
        if hasattr(tensor, "trigger_wait"):
            tensor.trigger_wait()  # the result of a collective that may still be on its way
        names = list(type(tensor).__tensor_flatten__(tensor)[0])
        return names, [getattr(tensor, name) for name in names]
    if tensor.is_quantized:
        names = [str(tensor.qscheme())]
        if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
            scales = [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
            return [*names, str(tensor.q_per_channel_axis())], [
                tensor.int_repr(),
                *scales,
            ]
        return [*names, repr((tensor.q_scale(), tensor.q_zero_point()))], [
            tensor.int_repr()
        ]
    if tensor.layout is torch.strided:
        raise ValueError("its elements have no memory")
    layout = str(tensor.layout)
    # jagged, mkldnn
    others = ("values",) if hasattr(tensor, "values") else ("to_dense",)
    return [layout], [getattr(tensor, name)() for name in _LAYOUTS.get(layout, others)]


def _shape(tensor: Any) -> Tuple[int, ...]:
    if shapeless(tensor):
        return ()
    # a ragged dimension has no size
    return tuple(size if type(size) is int else 0 for size in tensor.shape)


class Digests(Later):
    """Digests that may still be on their way from a device, 16 bytes for each tensor in order."""

    def __init__(self, found: List[bytes], remote: Sequence[Sums]) -> None:
        self.found, self._remote = found, remote
        self._among: Tuple[Sequence[int], List[bytes]] = (), []

    def among(self, places: Sequence[int], others: List[bytes]) -> Digests:
        """Return these digests, put at their places among those of what is no tensor."""
        self._among = places, others
        return self

    def ready(self) -> bool:
        return all(sums.ready() for sums in self._remote)

    def fields(self) -> Dict[str, bytes]:
        return {"digests": self.result()}

    def result(self) -> bytes:
        """Return all digests; wait for the device."""
        for sums in self._remote:
            for index, digest in sums.digests():
                self.found[index] = digest
        self._remote = ()
        places, others = self._among
        for place, digest in zip(places, self.found):
            others[place] = digest
        return b"".join(others or self.found)


def digest_all(torch: Any, tensors: Sequence[Any], depth: int = 0) -> bytes:
    """Return the digests of all tensors, 16 bytes each, in order. Leaves tensors, generators and
    autograd as they were."""
    return begin(torch, tensors, depth).result()


class Slots(List[Any]):
    """How tensors that are there at every step were read last: (weak reference to it, address,
    shape, dtype, its bytes, prepared header) for each."""

    def __init__(self, count: int) -> None:
        super().__init__([(_nothing, 0, (), None, None, None)] * count)


def _nothing() -> None:
    """As a weak reference to what is gone."""


def begin(
    torch: Any, tensors: Sequence[Any], depth: int = 0, slots: Optional[Slots] = None
) -> Digests:
    """Digest all tensors; those on a device are digested there, in the order of its stream, and
    only `result` waits for them. With `slots` (of the same tensors at the last step) a tensor that
    lies where it lay is read as it was read then."""
    algorithm = chosen()
    digest, headers = algorithm.digest, algorithm.headers
    usual, strided = (torch.Tensor, torch.nn.Parameter), torch.strided
    found: List[bytes] = []
    remote: List[Tuple[int, Any]] = []
    with bare(torch), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        for index, tensor in enumerate(tensors):
            if slots:
                last, address, shape, dtype, content, prepared = slots[index]
                alike = (
                    last() is tensor
                    and tensor.data_ptr() == address
                    and tensor.shape == shape
                    and tensor.dtype is dtype
                )
                if alike and tensor.is_contiguous() and not tensor.is_neg():
                    found.append(digest(content, prepared))
                    continue
            if (
                type(tensor) in usual
                and tensor.is_cpu
                and tensor.layout is strided
                and tensor.is_contiguous()
                and not tensor.is_neg()
            ):
                header = headers.get((tensor.dtype, tensor.shape))
                if header is not None:
                    pointer, size = tensor.data_ptr(), tensor.element_size()
                    end = (tensor.storage_offset() + tensor.numel()) * size
                    if pointer and end <= tensor.untyped_storage().nbytes():
                        content, prepared = header[0].from_address(pointer), header[1]
                        if slots:
                            place = (pointer, tensor.shape, tensor.dtype)
                            slots[index] = (
                                weakref.ref(tensor),
                                *place,
                                content,
                                prepared,
                            )
                        found.append(digest(content, prepared))
                        continue
            own = local(tensor)
            if (
                own.layout is not strided
                or own.is_quantized
                or not in_memory(torch, own)
            ):
                found.append(_composed(torch, own, depth))
                continue
            contiguous = _contiguous(own)
            if contiguous.is_cpu:
                found.append(_read(algorithm, contiguous))
            else:
                remote.append((len(found), contiguous))
                found.append(b"")
        return Digests(found, device_digest.begin(torch, remote) if remote else ())


def _contiguous(tensor: Any) -> Any:
    """Return a contiguous, resolved tensor with the same elements in logical order."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _read(algorithm: Algorithm, tensor: Any) -> bytes:
    """Return the digest of a contiguous tensor of the CPU. What the short way of `begin` may read
    next time is remembered."""
    prepared = algorithm.prepare(device_digest.header(tensor))
    array = ctypes.c_char * (tensor.numel() * tensor.element_size())
    pointer = tensor.data_ptr()
    if array._length_ and not pointer:
        UNREAD[str(type(tensor))[:200]] = None
    if not pointer:
        return algorithm.digest(b"", prepared)
    if (
        not tensor.is_complex()
    ):  # one of those may be conjugated, which its memory does not show
        if len(algorithm.headers) >= _MANY:
            algorithm.headers.clear()
        algorithm.headers[tensor.dtype, tensor.shape] = array, prepared
    return algorithm.digest(array.from_address(pointer), prepared)
