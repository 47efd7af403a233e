"""Digests of tensors: 16 bytes that see dtype, shape, element order, -0.0 against +0.0 and NaN payloads, the same on CPU and GPU.

Name: `sha256-128` over `header | bytes` for tensors up to 64 KiB; above that `sha256-128` over `header | row sums | last bytes`. The header
is dtype and shape (and layout, scale and zero point of a sparse or quantized tensor). A row is 32 KiB, read as 4096 64-bit integers x, and
summed up four times modulo 2**64: sum(k[i] * x[i]) with two sets of 64-bit keys, and, with two more sets, over the same bytes read from an
offset of 4. A sum modulo 2**64 does not depend on the order of additions, so any number of threads gives the same digest. Why four:
multilinear hashing (Carter and Wegman 1979; Lemire and Kaser, "Strongly universal string hashing is fast", 2014) misses a difference d with
probability 2**-(64 - z), z being the trailing zero bits of d; read at offsets 0 and 4, every 32-bit word is once the low half of its
integer, so z <= 31 in one of the two readings, and two independent keys give at most 2**-66 for each row that differs. The keys are fixed:
this finds accidents, not forgers, who own the process anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from typing import Any, Dict, List, Sequence, Tuple

from ..trace.format import DIGEST_BYTES, MAX_NAME
from ..trace.writer import Row

LANES = 4096  # 64-bit integers in a row
ROW = LANES * 8  # bytes
SMALL = 64 * 1024  # up to here SHA-256 sees the bytes themselves
BLOCK_ROWS = 32  # rows summed up at a time on a CPU: 1 MiB stays in the second-level cache for all four readings
DEVICE_ROWS = 2048  # on a device: 64 MiB, the size of the products held at a time

UNREAD: Dict[str, None] = {}  # types of tensors whose elements could not be read: their digests say nothing of them
_DEPTH = 8  # of wrapper subclasses in one another
_PARTS = 100  # of one of them

_HEADERS: Dict[Tuple[Any, Tuple[int, ...]], Tuple[Any, Any]] = {}  # (dtype, shape) -> SHA-256 of the header, ctypes type of the content
_KEYS: Dict[str, Any] = {}


def describe(name: str, tensor: Any) -> Row:
    """The row that names a tensor in a table: (name, dtype, shape of the local shard)."""
    tensor = local(tensor)
    return name[:MAX_NAME], str(tensor.dtype).replace("torch.", ""), _shape(tensor)


def local(tensor: Any) -> Any:
    """The part of a tensor that lives in this process: a DTensor's local shard, else the tensor itself."""
    shard = getattr(tensor, "_local_tensor", None)
    return tensor if shard is None else shard


def bare(torch: Any) -> Any:
    """A context outside torch.func's transforms, in which a new tensor would be one of theirs, without memory to read."""
    functorch: Any = getattr(torch._C, "_functorch", None)
    if not hasattr(functorch, "peek_interpreter_stack") or functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def in_memory(torch: Any, tensor: Any) -> bool:
    """Whether the elements lie in memory of the tensor's own (or in the parts of a sparse one): not so for meta and fake tensors, and for
    wrapper subclasses (torchao's, nested ones), which hold other tensors and whose own data pointer is null."""
    tensor = local(tensor)
    if hasattr(type(tensor), "__tensor_flatten__") or tensor.device.type == "meta" or type(tensor).__name__ == "FakeTensor":
        return False
    if tensor.layout is not torch.strided or not tensor.numel():
        return True
    if not tensor.is_cpu and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return True  # some devices have no pointers
    try:
        return bool(tensor.data_ptr())
    except Exception:  # torch.func's and other wrappers
        return False


def _composed(torch: Any, tensor: Any, depth: int) -> bytes:
    """The digest of a tensor that others make up (wrapper subclasses, sparse and quantized ones): its type, dtype and shape, and name and
    digest of each. Else that of its type alone."""
    kind = "%s.%s" % (type(tensor).__module__, type(tensor).__qualname__)
    header = hashlib.sha256(repr(("repro-gate/digest/v1", kind, str(tensor.dtype), _shape(tensor))).encode("utf-8", "backslashreplace"))
    try:
        names, parts = _parts(torch, tensor)
        if depth >= _DEPTH or len(parts) > _PARTS:
            raise ValueError("nested too deep")
        header.update(repr(names).encode("utf-8", "backslashreplace") + digest_all(torch, parts, depth + 1))
    except Exception:
        if len(UNREAD) < _PARTS:
            UNREAD[kind + " (meta)" * (tensor.device.type == "meta")] = None
    return bytes(header.digest()[:DIGEST_BYTES])


def _parts(torch: Any, tensor: Any) -> Tuple[List[str], List[Any]]:
    """What names the parts that make up a tensor (with a layout, or a scale and zero point), and the parts."""
    if hasattr(type(tensor), "__tensor_flatten__"):
        if hasattr(tensor, "trigger_wait"):
            tensor.trigger_wait()  # the result of a collective that may still be on its way
        names = list(type(tensor).__tensor_flatten__(tensor)[0])
        return names, [getattr(tensor, name) for name in names]
    if tensor.is_quantized:
        if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
            scales = [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
            return [str(tensor.qscheme()), str(tensor.q_per_channel_axis())], [tensor.int_repr(), *scales]
        return [str(tensor.qscheme()), repr((tensor.q_scale(), tensor.q_zero_point()))], [tensor.int_repr()]
    layout = str(tensor.layout)
    if tensor.layout is torch.strided:
        raise ValueError("its elements have no memory")
    if tensor.layout is torch.sparse_coo:
        return [layout], [tensor._indices(), tensor._values()]
    if hasattr(tensor, "crow_indices") and tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [layout], [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [layout], [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [layout], [tensor.values() if hasattr(tensor, "values") else tensor.to_dense()]  # jagged, mkldnn


def _shape(tensor: Any) -> Tuple[int, ...]:
    return tuple(size if type(size) is int else 0 for size in tensor.shape)  # a ragged dimension has no size


def digest_all(torch: Any, tensors: Sequence[Any], depth: int = 0) -> bytes:
    """Digests of all tensors, 16 bytes each, in order. Leaves tensors, generators and autograd as they were."""
    out: List[bytes] = [b""] * len(tensors)
    remote: List[Tuple[int, Any]] = []
    with bare(torch), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        for index, tensor in enumerate(tensors):
            own = local(tensor)
            if own.layout is not torch.strided or own.is_quantized or not in_memory(torch, own):
                out[index] = _composed(torch, own, depth)
                continue
            plain = _plain(own)
            if plain.is_cpu:
                out[index] = _cpu_digest(torch, plain)
            else:
                remote.append((index, plain))
        if remote:
            _device_digests(torch, remote, out)
    return b"".join(out)


def _plain(tensor: Any) -> Any:
    """A contiguous, resolved tensor with the same elements in logical order."""
    tensor = local(tensor)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _header(tensor: Any) -> Tuple[Any, Any]:
    """A SHA-256 object that has seen dtype and shape, and the ctypes type of the content (a char array of its bytes)."""
    key = (tensor.dtype, tensor.shape)
    known = _HEADERS.get(key)
    if known is None:
        if len(_HEADERS) > 10_000:
            _HEADERS.clear()
        header = hashlib.sha256(("repro-gate/digest/v1|%s|%s|" % (tensor.dtype, tuple(tensor.shape))).encode())
        known = _HEADERS[key] = header, ctypes.c_char * (tensor.numel() * tensor.element_size())
    return known[0].copy(), known[1]


def _cpu_digest(torch: Any, tensor: Any) -> bytes:
    header, array = _header(tensor)
    size = array._length_
    if size and not tensor.data_ptr():
        UNREAD[str(type(tensor))[:200]] = None
    elif size:
        content = array.from_address(tensor.data_ptr())
        if size > SMALL:
            rows = (size - 4) // ROW
            for part in _cpu_sums(torch, content, rows):
                header.update(memoryview((ctypes.c_char * (part.numel() * 8)).from_address(part.data_ptr())))
            content = memoryview(content)[rows * ROW :]
        header.update(content)
    return bytes(header.digest()[:DIGEST_BYTES])


def _cpu_sums(torch: Any, content: Any, rows: int) -> List[Any]:
    """The four sums of each row: int64 tensors [rows], one for each set of keys. `torch.mv` makes each in one pass without a temporary."""
    keys = _keys(torch, "cpu")
    sums = [torch.empty(rows, dtype=torch.int64, device="cpu") for _ in range(4)]
    readings = [torch.frombuffer(content, dtype=torch.int64, count=rows * LANES, offset=offset).view(rows, LANES) for offset in (0, 4)]
    for start in range(0, rows, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, rows)
        for index in range(4):
            torch.mv(readings[index // 2][start:end], keys[index], out=sums[index][start:end])
    return sums


def _device_digests(torch: Any, remote: List[Tuple[int, Any]], out: List[bytes]) -> None:
    """Digest tensors on their device: sums are made there, and one transfer for each device brings them over."""
    by_device: Dict[Any, List[Tuple[int, Any]]] = {}
    for item in remote:
        by_device.setdefault(item[1].device, []).append(item)
    for items in by_device.values():
        parts = [_device_part(torch, tensor) for _, tensor in items]
        flat = torch.cat([part for part in parts if part.numel()] or [parts[0]]).cpu()
        content = ctypes.string_at(flat.data_ptr(), flat.numel()) if flat.numel() else b""
        start = 0
        for (index, tensor), part in zip(items, parts):
            header, _ = _header(tensor)
            header.update(content[start : start + part.numel()])
            start += part.numel()
            out[index] = bytes(header.digest()[:DIGEST_BYTES])


def _device_part(torch: Any, tensor: Any) -> Any:
    """What SHA-256 is to see of one tensor, as uint8 on its device: all of a small one, the row sums and last bytes of a large one."""
    content = tensor.reshape(-1)
    content = (torch.view_as_real(content).reshape(-1) if content.is_complex() else content).view(torch.uint8)
    size = content.numel()
    if size <= SMALL:
        return content
    rows = (size - 4) // ROW
    keys = _keys(torch, tensor.device)
    sums = []
    for index in range(4):
        offset = 4 * (index // 2)
        pieces = []
        for start in range(0, rows, DEVICE_ROWS):
            end = min(start + DEVICE_ROWS, rows)
            piece = content[start * ROW + offset : end * ROW + offset]
            if piece.storage_offset() % 8 or piece.data_ptr() % 8:
                piece = piece.clone()
            pieces.append((piece.view(torch.int64).view(-1, LANES) * keys[index]).sum(dim=1))
        sums.append(torch.cat(pieces).view(torch.uint8))
    return torch.cat([*sums, content[rows * ROW :]])


def _keys(torch: Any, device: Any) -> Any:
    """Four sets of 4096 fixed 64-bit keys, from SHAKE-128 of the digest's name: int64 [4, 4096] on `device`."""
    keys = _KEYS.get(str(device))
    if keys is None:
        content = bytearray(hashlib.shake_128(b"repro-gate/digest/v1").digest(4 * ROW))
        keys = _KEYS[str(device)] = torch.frombuffer(content, dtype=torch.int64).view(4, LANES).to(device)
    return keys
