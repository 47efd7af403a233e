"""Digests of tensors where they lie, on a device: one launch for any number of them, and one
transfer that nothing waits for.

The digest of a tensor is the first 16 bytes of a SHA-256 of its header (dtype and shape) and four
64-bit sums. Over the choice of its keys, one sum is the same for two tensors that differ with a
probability of at most 2**-31, so all four are with at most 2**-124. A sum is made of the tensor's
32-bit words, little-endian, in three levels, all modulo 2**64, so that the order of additions does
not matter:

1. NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC", 1999): of the words x, y of one column in
   the 4 rows of a tile (16 KiB: 512 columns of 4 pairs), sum((x + k) * (y + l)) with x + k modulo
   2**32. Two different columns agree with at most 2**-32.
2. Multilinear hashing (Carter and Wegman 1979; Lemire and Kaser, "Strongly universal string hashing
   is fast", 2014): of the columns in the 8 tiles of a chunk (128 KiB), sum(m * low + n * high), low
   and high being the halves of a column's sum. As a difference d of 32-bit numbers has at most 31
   trailing zero bits, m * d takes any one value with at most 2**-33.
3. The same over all columns of all chunks, whose keys come from a counter (splitmix64; Steele, Lea
   and Flood 2014); bytes behind the last whole word are one more term.

The keys are fixed: this finds accidents, not forgers. `torch.hash_tensor` would be an XOR, which no
permutation changes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..trace.format import DIGEST_BYTES

LANES = 4  # independent sums of a tensor
COLUMNS = 512
ROWS = 4
TILES = 8
KERNEL_SHAPE = {"width": COLUMNS, "height": ROWS, "depth": TILES}
TILE = 2 * COLUMNS * ROWS  # words: 16 KiB
CHUNK = TILES * TILE  # words that one program of the kernel reads: 128 KiB
_AT_A_TIME = 16 * CHUNK * 4  # bytes that the eager form reads together: 2 MiB
_LOW = 0xFFFFFFFF

_TRIED: list[Any] = []  # devices on which the kernel has been tried
WITHOUT_TRITON: list[str] = []  # why the kernel cannot be used in this process


class Tables(NamedTuple):
    """The keys, on one device: `nh` int32 [LANES, 2, ROWS, COLUMNS], `tiles` int64 [LANES, 2,
    TILES], `starts` (of the third level's counters) and `tails` int64 [LANES]."""

    nh: Any
    tiles: Any
    starts: Any
    tails: Any


class Fetched(NamedTuple):
    """A small tensor in host memory, and the event after which it holds the values (None: now)."""

    host: Any
    event: Any

    def ready(self) -> bool:
        """Return whether the values have arrived."""
        return self.event is None or bool(self.event.query())

    def values(self) -> Any:
        """Return the tensor; wait for the device."""
        if self.event is not None:
            self.event.synchronize()
        return self.host


class Sums(NamedTuple):
    """The sums of some tensors of one device, on their way: `places` are their indices, `sums`
    int64 [tensors, LANES]."""

    places: Sequence[int]
    headers: Sequence[bytes]
    sums: Fetched

    def digests(self) -> Iterator[tuple[int, bytes]]:
        """Yield (index, digest) of each tensor; wait for the device."""
        host = self.sums.values()
        content = ctypes.string_at(host.data_ptr(), host.numel() * 8)
        for number, (place, name) in enumerate(zip(self.places, self.headers)):
            sums = content[number * LANES * 8 : (number + 1) * LANES * 8]
            yield place, hashlib.sha256(name + sums).digest()[:DIGEST_BYTES]


def begin(remote: Sequence[tuple[int, bytes, Any]]) -> list[Sums]:
    """Start the sums of contiguous tensors, each behind its index and its header, on the devices
    that they lie on."""
    by_device: dict[Any, list[Any]] = {}
    for item in remote:
        by_device.setdefault(item[2].device, []).append(item)
    begun = []
    for device, items in by_device.items():
        places, headers, tensors = zip(*items)
        with torch.cuda.device(device) if device.type == "cuda" else torch.no_grad():
            sums = _kernel_sums(device, tensors)
            if sums is None:
                sums = eager_sums(device, tensors)
            begun.append(Sums(places, headers, fetch(sums)))
    return begun


def fetch(tensor: Any) -> Fetched:
    """Return a copy of a small tensor in host memory, on its way."""
    if tensor.device.type != "cuda":
        return Fetched(torch._C.TensorBase.cpu(tensor), None)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Fetched(host, event)


def eager_sums(device: Any, tensors: Sequence[Any]) -> Any:
    """Return the sums of contiguous tensors of one device by torch's own operators: int64 [tensors,
    LANES]. Some sixty launches for each 2 MiB of a tensor, and about 20 MiB of room."""
    tables = _tables(device)
    out = torch.zeros(len(tensors), LANES, dtype=torch.int64, device=device)
    for sums, tensor in zip(out, tensors):
        flat = tensor.reshape(-1)
        flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
        content = flat.view(torch.uint8)
        whole = content.numel() // 4 * 4
        for first in range(0, whole, _AT_A_TIME):
            piece = content[first : min(first + _AT_A_TIME, whole)]
            sums += _piece_sums(tables, piece, first // 4 // CHUNK)
        tail = content[whole:].to(torch.int64)
        for place in range(tail.numel()):
            sums += tables.tails * (tail[place] << 8 * place)
    return out


def _piece_sums(tables: Tables, piece: Any, first: int) -> Any:
    """Return the sums of a piece of a tensor, whole words whose first chunk has this number: int64
    [LANES]."""
    tiles = -(-piece.numel() // 4 // TILE)
    chunks = -(-tiles // TILES)
    words = torch.zeros(chunks * CHUNK, dtype=torch.int32, device=piece.device)
    words.view(torch.uint8)[: piece.numel()].copy_(piece)
    pairs = words.view(-1, TILES, ROWS, 2, COLUMNS).to(torch.int64)
    place = torch.arange(chunks * TILES, device=piece.device)
    used = (place < tiles).view(chunks, TILES, 1)
    columns = torch.arange(chunks * COLUMNS, device=piece.device).view(chunks, COLUMNS)
    counters = 2 * (first * COLUMNS + columns)
    sums = []
    for lane in range(LANES):
        left = (pairs[:, :, :, 0] + tables.nh[lane, 0]) & _LOW
        right = (pairs[:, :, :, 1] + tables.nh[lane, 1]) & _LOW
        nh = (left * right).sum(dim=2)  # [chunks, TILES, COLUMNS]
        m, n = tables.tiles[lane][:, :, None]
        column = ((m * (nh & _LOW) + n * (nh >> 32 & _LOW)) * used).sum(dim=1)
        counter = counters + tables.starts[lane]
        low = _mixed(counter) * (column & _LOW)
        high = _mixed(counter + 1) * (column >> 32 & _LOW)
        sums.append((low + high).sum())
    return torch.stack(sums)


def _mixed(counter: Any) -> Any:
    """Return splitmix64 of a counter, int64 of any shape: its constants as signed integers."""
    value = counter * -7046029254386353131
    value = (value ^ (value >> 30 & (1 << 34) - 1)) * -4658895280553007687
    value = (value ^ (value >> 27 & (1 << 37) - 1)) * -7723592293110705685
    return value ^ (value >> 31 & (1 << 33) - 1)


def _kernel_sums(device: Any, tensors: Sequence[Any]) -> Any:
    """Return the sums of all tensors by one launch of the Triton kernel: int64 [tensors, LANES];
    None where Triton does not work: it is not there, the device is not CUDA's, or the sums of a
    sample are not those of the eager form."""
    if device.type != "cuda" or WITHOUT_TRITON:
        return None
    try:
        from . import device_kernel

        if device not in _TRIED:
            content = torch.arange(4 * CHUNK + 16 * TILE + 7, device=device)
            content = content.to(torch.uint8)
            sample = [content, content[8:23], content[1:]]
            by_kernel = sums_by(device_kernel, device, sample)
            if not torch.equal(by_kernel, eager_sums(device, sample)):
                raise ValueError("the sums of a sample were wrong")
            _TRIED.append(device)
        return sums_by(device_kernel, device, tensors)
    except Exception as error:
        WITHOUT_TRITON.append(f"{type(error).__name__}: {error}")
        return None


def sums_by(device_kernel: Any, device: Any, tensors: Sequence[Any]) -> Any:
    """Return the same, with the kernel's module given: Triton's interpreter runs it on tensors of
    the CPU."""
    tables = _tables(device)
    out = torch.zeros(len(tensors), LANES, dtype=torch.int64, device=device)
    addresses = [tensor.data_ptr() for tensor in tensors]
    copies = []  # held until the kernel is queued
    for number, address in enumerate(addresses):
        if address % 4:
            copies.append(tensors[number].clone())
            addresses[number] = copies[-1].data_ptr()
    sizes = tuple([tensor.numel() * tensor.element_size() for tensor in tensors])
    pointers = torch.tensor(
        addresses,
        dtype=torch.int64,
        device="cpu",
        pin_memory=device.type == "cuda",
    )
    plan = _programs(device, sizes)
    if plan[0]:
        on_device = pointers.to(device, non_blocking=True)
        device_kernel.launch(plan, on_device, tables, out, KERNEL_SHAPE)
    return out


@functools.lru_cache(maxsize=1_000)
def _programs(device: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the number of programs for tensors of these sizes in bytes; and on the device the
    sizes, int64 [tensors], and tensor and chunk of each program, int32 [programs]. A training's
    tensors keep their sizes, so this is remembered."""
    counts = [-(-max(size // 4, 1) // CHUNK) if size else 0 for size in sizes]
    which = [number for number, count in enumerate(counts) for _ in range(count)]
    chunk = [place for count in counts for place in range(count)]
    columns = []
    for values, dtype in (
        (sizes, torch.int64),
        (which, torch.int32),
        (chunk, torch.int32),
    ):
        columns.append(torch.tensor(values, dtype=dtype, device="cpu").to(device))
    return (len(which), *columns)


@functools.lru_cache(maxsize=None)
def _tables(device: Any) -> Tables:
    """Return the fixed keys, from SHAKE-128 of the digest's name."""
    of_nh = LANES * 2 * ROWS * COLUMNS
    others = [LANES * 2 * TILES, LANES, LANES]
    size = of_nh * 4 + sum(others) * 8
    content = bytearray(hashlib.shake_128(b"repro-gate/digest/v2").digest(size))
    nh = torch.frombuffer(content, dtype=torch.int32, count=of_nh)
    rest = torch.frombuffer(content, dtype=torch.int64, offset=of_nh * 4)
    tiles, starts, tails = rest.split(others)
    parts = (
        nh.view(LANES, 2, ROWS, COLUMNS),
        tiles.view(LANES, 2, TILES),
        starts,
        tails,
    )
    return Tables(*(part.to(device) for part in parts))
