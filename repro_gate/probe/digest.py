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
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from ..trace.format import DIGEST_BYTES, MAX_NAME
from ..trace.writer import Later, Row
from .patch import held

# `tensors of type …`, `values of type …`: what could not be read, so that digests cover no more of
# it than its type
UNREAD: dict[str, None] = {}
# XXH3, 128 bits, of an empty text: a loaded extension must return this
EMPTY = "99aa06d3014798d86001c324468d497f"
_DEPTH = 8  # of wrapper subclasses in one another
_PARTS = 100  # of one of them
_MANY, _NEW = 10_000, (0, None)  # headers that are remembered; of one that is not
# All memory, by address. `from_address` would run the audit hooks for each tensor.
_MEMORY = memoryview((ctypes.c_char * sys.maxsize).from_address(0))
# the file of the gate's own xxhash extension; it, or one beside it, may fit this interpreter
EXTENSION: list[str | None] = []
# (dtype, shape, whether on the CPU) of an earlier tensor -> its size in bytes, its prepared header;
# on a device its header
_HEADERS: dict[tuple[Any, Any, bool], tuple[int, Any]] = {}
_ROWS = ("crow_indices", "col_indices", "values")
_COLUMNS = ("ccol_indices", "row_indices", "values")
_LAYOUTS = {  # methods of a sparse tensor that give its parts
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": _ROWS,
    "torch.sparse_bsr": _ROWS,
    "torch.sparse_csc": _COLUMNS,
    "torch.sparse_bsc": _COLUMNS,
}


class Algorithm(NamedTuple):
    """Computes the 16 bytes of one tensor: `digest(content, prepared)`, where `prepare` makes
    `prepared` once from the header."""

    name: str
    prepare: Callable[[bytes], Any]
    digest: Callable[[Any, Any], bytes]


@functools.lru_cache(maxsize=None)
def chosen() -> Algorithm:
    """Return the digest of this process."""
    # `.cpython-311-x86_64-linux-gnu.so`: the ABI in full
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    own = filter(None, EXTENSION)
    files = [os.path.join(os.path.dirname(path), "_xxhash" + suffix) for path in own]
    folders = filter(os.path.isabs, sys.path)
    files += [os.path.join(path, "xxhash", "_xxhash" + suffix) for path in folders]
    extension = next(filter(None, map(_loaded, files)), None)
    if extension is None:
        return Algorithm("sha256-128", hashlib.sha256, _sha256)
    return Algorithm("xxh3-128", _seed, extension.xxh3_128_digest)


def _loaded(path: str) -> Any:
    """Return the extension in a file, without a name in `sys.modules`; None if it is absent or
    returns a wrong digest."""
    try:
        spec: Any = importlib.util.spec_from_file_location("_xxhash", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module if module.xxh3_128_digest(b"", 0).hex() == EMPTY else None
    except Exception:  # not there, or built for another C library
        return None


def _seed(header: bytes) -> int:
    return int.from_bytes(hashlib.sha256(header).digest()[:8], "little")


def _sha256(content: Any, header: Any) -> bytes:
    state = header.copy()
    state.update(content)
    return bytes(state.digest()[:DIGEST_BYTES])


def header(tensor: Any) -> bytes:
    """Return what a digest covers of a tensor besides its elements."""
    return f"repro-gate/digest/v2|{tensor.dtype}|{tuple(tensor.shape)}|".encode()


def describe(name: str, tensor: Any) -> Row:
    """Return the row that names a tensor in a table: (name, dtype, shape of the local shard)."""
    tensor = local(tensor)
    return name[:MAX_NAME], str(tensor.dtype).replace("torch.", ""), _shape(tensor)


def local(tensor: Any) -> Any:
    """Return the part of a tensor that lives in this process: a DTensor's local shard, else the
    tensor itself. One with elements of its own comes without the methods of its class, which may be
    the training's."""
    kind = type(tensor)
    if hasattr(kind, "_local_tensor"):
        return tensor._local_tensor
    torch = held("torch")
    core = torch._C
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor
    if _wraps(kind) or shapeless(tensor):
        return tensor
    # a sparse one has no storage to share
    with contextlib.suppress(Exception), torch.no_grad(), core.DisableTorchFunction():
        is_plain = kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        if is_plain or core.TensorBase.data_ptr(tensor):
            with core._DisableTorchDispatch():
                return core.TensorBase.as_subclass(tensor, torch.Tensor)
    return tensor


def _wraps(kind: type) -> bool:
    return hasattr(kind, "__tensor_flatten__") or kind.__name__ == "FakeTensor"


def bare() -> Any:
    """Return a context outside torch.func's transforms: inside them a new tensor would be wrapped
    and have no memory to read."""
    torch = held("torch")
    if torch._C._functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def in_memory(tensor: Any) -> bool:
    """Return whether the tensor itself (or the parts of a sparse one) has its elements in memory.
    False for meta and fake tensors, and for wrapper subclasses (torchao's, nested ones), which
    contain other tensors and have a null data pointer."""
    torch = held("torch")
    tensor = local(tensor)
    kind = type(tensor)
    if _wraps(kind):
        return False
    if tensor.device.type == "meta" or shapeless(tensor):
        return False
    if tensor.layout is not torch.strided or not torch._C.TensorBase.numel(tensor):
        return True
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        if _cut(tensor):
            return False
        if not tensor.is_cpu:
            return True  # some devices have no pointers
    try:
        return bool(torch._C.TensorBase.data_ptr(tensor))
    except Exception:  # torch.func's and other wrappers
        return False


def _cut(tensor: Any) -> bool:
    """Return whether the storage ends before the last element, as after
    `untyped_storage().resize_(…)`."""
    of = held("torch")._C.TensorBase
    try:
        last = of.storage_offset(tensor)
        for size, stride in zip(tensor.shape, of.stride(tensor)):
            last += (size - 1) * stride
        end = (last + 1) * of.element_size(tensor)
        return bool(end > of.untyped_storage(tensor).nbytes())
    except Exception:  # it has no storage
        return False


def shapeless(tensor: Any) -> bool:
    """Return whether a tensor has no shape yet, as those of lazy modules before their first
    forward."""
    return hasattr(type(tensor), "materialize")


def _composed(tensor: Any, depth: int) -> bytes:
    """Return the digest of a tensor that consists of others (wrapper subclasses, sparse and
    quantized ones): of its type, dtype and shape, and the name and digest of each part. For any
    other tensor, the digest of its type alone."""
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    if shapeless(tensor):
        return _sha256(b"", hashlib.sha256(kind.encode()))
    fields = ("repro-gate/digest/v1", kind, str(tensor.dtype), _shape(tensor))
    state = hashlib.sha256(repr(fields).encode())
    try:
        names, parts = _parts(tensor)
        if depth >= _DEPTH or len(parts) > _PARTS:
            raise ValueError("nested too deep")
        content = repr(names).encode() + digest_all(parts, depth + 1)
    except Exception:
        content = b""
        unread("tensors", kind + " (meta)" * (tensor.device.type == "meta"))
    return _sha256(content, state)


def unread(what: str, kind: str) -> None:
    """Note that elements of a type could not be read."""
    if len(UNREAD) < _PARTS:
        UNREAD[f"{what} of type {kind[:200]}"] = None


def _parts(tensor: Any) -> tuple[list[str], list[Any]]:
    """Return a name for each part of a tensor (with a layout, or a scale and zero point), and the
    parts."""
    torch = held("torch")
    if hasattr(type(tensor), "__tensor_flatten__"):
        if hasattr(tensor, "trigger_wait"):
            tensor.trigger_wait()  # the result of a collective that may not have arrived yet
        names = list(type(tensor).__tensor_flatten__(tensor)[0])
        return names, [getattr(tensor, name) for name in names]
    if tensor.is_quantized:
        scheme = str(tensor.qscheme())
        parts = [tensor.int_repr()]
        if "per_channel" in scheme:
            parts += [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
            return [scheme, str(tensor.q_per_channel_axis())], parts
        return [scheme, repr((tensor.q_scale(), tensor.q_zero_point()))], parts
    if tensor.layout is torch.strided:
        raise ValueError("its elements have no memory")
    layout = str(tensor.layout)
    # jagged, mkldnn
    others = ("values",) if hasattr(tensor, "values") else ("to_dense",)
    return [layout], [getattr(tensor, name)() for name in _LAYOUTS.get(layout, others)]


def _shape(tensor: Any) -> tuple[int, ...]:
    if shapeless(tensor):
        return ()
    # a ragged dimension has no size
    return tuple(size if type(size) is int else 0 for size in tensor.shape)


class Digests(Later):
    """Digests, 16 bytes for each tensor in order, which a device may still be computing."""

    def __init__(self, digests: list[bytes], remote: Sequence[Any] = ()) -> None:
        self._digests, self._remote = digests, remote  # `device_digest.Sums`
        self._among: tuple[Sequence[int], list[bytes]] = (), []

    def among(self, places: Sequence[int], others: list[bytes]) -> Digests:
        """Return these digests merged, at their places, with those of values that are no
        tensors."""
        self._among = places, others
        return self

    def ready(self) -> bool:
        return all(item.sums.ready() for item in self._remote)

    def fields(self) -> dict[str, bytes]:
        return {"digests": self.result()}

    def result(self) -> bytes:
        """Return all digests; wait for the device."""
        for item in self._remote:
            for index, digest in item.digests():
                self._digests[index] = digest
        self._remote = ()
        places, others = self._among
        for place, digest in zip(places, self._digests):
            others[place] = digest
        return b"".join(others or self._digests)


def digest_all(tensors: Sequence[Any], depth: int = 0) -> bytes:
    """Return the digests of all tensors, 16 bytes each, in order. Leaves tensors, generators and
    autograd as they were."""
    return begin(tensors, depth).result()


# How a tensor of a place in a list was read: a weak reference to it, its address, its form, its
# size, the prepared header, its bytes (None: on a device). This one: nothing was read there.
SLOT: tuple[Any, ...] = (lambda: None, 0, None, 0, None, None)


def begin(
    tensors: Sequence[Any],
    depth: int = 0,
    slots: list[tuple[Any, ...]] | None = None,
    made_anew: bool = False,
) -> Digests:
    """Digest all tensors; those on a device are digested there, in the order of its stream, and
    only `result` waits for them. `slots`, one for each tensor, say how the tensors in these places
    were read before; one that lies where it lay is read in the same way. `made_anew`: these are
    other tensors each time, as gradients are, whose storages nobody cuts."""
    torch = held("torch")
    digest = chosen().digest
    plain, parameter = torch.Tensor, torch.nn.Parameter
    of = torch._C.TensorBase  # whose methods nobody can replace
    data_ptr, is_contiguous, is_neg = of.data_ptr, of.is_contiguous, of.is_neg
    strided = torch.strided
    digests: list[bytes] = []
    remote: list[tuple[int, bytes, Any]] = []
    with bare(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        for index, tensor in enumerate(tensors):
            slot = slots[index] if slots else SLOT
            last, address, known, size, prepared, content = slot
            if (
                last() is tensor
                and data_ptr(tensor) == address
                and tensor.dtype is known[0]
                and tensor.shape == known[1]
                and is_contiguous(tensor)
                and not is_neg(tensor)
            ):
                pass  # it is read as it was read then
            elif (
                (type(tensor) is plain or type(tensor) is parameter)
                and tensor.layout is strided
                and is_contiguous(tensor)
                and not is_neg(tensor)
            ):
                form = tensor.dtype, tensor.shape, tensor.is_cpu
                offset = of.storage_offset(tensor)
                is_new = form != known or last() is tensor or offset or not made_anew
                if form != known:
                    size, prepared = _HEADERS.get(form, _NEW)
                if is_new and prepared is not None:
                    # To look at the storage of each gradient would take as long as its digest.
                    end = offset * of.element_size(tensor) + size
                    if end > of.untyped_storage(tensor).nbytes():
                        prepared = None
                pointer = 0 if prepared is None else data_ptr(tensor)
                content = _MEMORY[pointer : pointer + size] if form[2] else None
                if not pointer:
                    prepared = None
                elif slots and is_new:
                    reference = weakref.ref(tensor)
                    slots[index] = reference, pointer, form, size, prepared, content
            else:
                prepared = None
            if prepared is None:
                try:
                    read = _read(local(tensor), depth)
                except Exception:  # a class whose methods raise
                    read = _unreadable(tensor)
                if isinstance(read, bytes):
                    digests.append(read)
                    continue
                prepared, tensor = read
            if content is None:
                remote.append((index, prepared, tensor))
                digests.append(b"")
            else:
                digests.append(digest(content, prepared))
        if not remote:
            return Digests(digests)
        from . import device_digest

        return Digests(digests, device_digest.begin(remote))


def _read(tensor: Any, depth: int) -> bytes | tuple[bytes, Any]:
    """Return the digest of a tensor, or its header and its elements in logical order if they are on
    a device. Remember how the fast path of `begin` can read it next time."""
    torch = held("torch")
    of = torch._C.TensorBase
    strided = tensor.layout is torch.strided and not tensor.is_quantized
    if not (strided and in_memory(tensor)):
        return _composed(tensor, depth)
    tensor = of.contiguous(of.resolve_neg(of.resolve_conj(tensor)))
    name = header(tensor)
    size = of.numel(tensor) * of.element_size(tensor)
    if not tensor.is_cpu:
        if tensor.is_cuda:
            _remember(tensor, size, name)
        return name, tensor
    _, prepare, digest = chosen()
    prepared = prepare(name)
    pointer = of.data_ptr(tensor)
    if pointer:
        _remember(tensor, size, prepared)
    elif size:
        unread("tensors", str(type(tensor)))
        size = 0
    return digest(_MEMORY[pointer : pointer + size], prepared)


def _unreadable(tensor: Any) -> bytes:
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    unread("tensors", kind)
    return _sha256(b"", hashlib.sha256(kind.encode()))


def _remember(tensor: Any, size: int, prepared: Any) -> None:
    """Remember how the fast path of `begin` reads such a tensor. A complex one may be conjugated,
    which its memory does not show."""
    if not tensor.dtype.is_complex:
        if len(_HEADERS) >= _MANY:
            _HEADERS.clear()
        _HEADERS[tensor.dtype, tensor.shape, tensor.is_cpu] = size, prepared
