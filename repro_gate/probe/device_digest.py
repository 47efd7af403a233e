"""Digests of tensors where they lie, on a device: one launch for any number of them, and one
transfer that nothing waits for.

The digest of a tensor is the first 16 bytes of a SHA-256 of its header (dtype and shape) and four
64-bit sums. Over the choice of its keys, one sum is the same for two tensors that differ with a
probability of at most 2**-31, so all four are with at most 2**-124. A sum is made of the tensor's
32-bit words, little-endian, in three levels, all modulo 2**64, so that the order of additions does
not matter:

1. NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC", 1999): of the words x, y of one column in
the 4 rows of a tile (16 KiB: 512 columns of 4 pairs), sum((x + k) * (y + l)) with x + k modulo
2**32. Two different columns agree with at most 2**-32. 2. Multilinear hashing (Carter and Wegman
1979; Lemire and Kaser, "Strongly universal string hashing is fast", 2014): of the columns in the 8
tiles of a chunk (128 KiB), sum(m * low + n * high), low and high being the halves of a column's
sum. As a difference d of 32-bit numbers has at most 31 trailing zero bits, m * d takes any one
value with at most 2**-33. 3. The same over all columns of all chunks, whose keys come from a
counter (splitmix64; Steele, Lea and Flood 2014); bytes behind the last whole word are one more
term.

The keys are fixed: this finds accidents, not forgers. `torch.hash_tensor` would be an XOR, which no
permutation changes."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from ..trace.format import DIGEST_BYTES

LANES = 4  # independent sums of a tensor
COLUMNS, ROWS, TILES = 512, 4, 8
KERNEL_SHAPE = {"width": COLUMNS, "height": ROWS, "depth": TILES}
TILE = 2 * COLUMNS * ROWS  # words: 16 KiB
CHUNK = TILES * TILE  # words that one program of the kernel reads: 128 KiB
_AT_A_TIME = 16  # chunks that the eager form reads together: 2 MiB
_LOW = 0xFFFFFFFF

_TABLES: Dict[str, "Tables"] = {}  # by device
_PLANS: Dict[
    Tuple[str, Tuple[int, ...]], Any
] = {}  # by device and the tensors' sizes in bytes
_TRIED: List[str] = []  # devices on which the kernel has been tried
WITHOUT_TRITON: List[str] = []  # why the kernel cannot be used in this process
_MANY = 1_000


class Tables(NamedTuple):
    """The keys, on one device: `nh` int32 [LANES, 2, ROWS, COLUMNS], `tiles` int64 [LANES, 2,
    TILES], `starts` (of the third level's counters) and `tails` int64 [LANES]."""

    nh: Any
    tiles: Any
    starts: Any
    tails: Any


def header(tensor: Any) -> bytes:
    """Return what a digest sees of a tensor beside its elements."""
    return (
        "repro-gate/digest/v2|%s|%s|" % (tensor.dtype, tuple(tensor.shape))
    ).encode()


class Sums:
    """The sums of some tensors of one device, on their way: `places` are their indices, `host`
    int64 [tensors, LANES]."""

    def __init__(
        self, places: Sequence[int], headers: Sequence[bytes], host: Any, event: Any
    ) -> None:
        self._places, self._headers, self._host, self._event = (
            places,
            headers,
            host,
            event,
        )

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def digests(self) -> Iterator[Tuple[int, bytes]]:
        """Yield (index, digest) of each tensor; wait for the device."""
        if self._event is not None:
            self._event.synchronize()
        content = ctypes.string_at(self._host.data_ptr(), self._host.numel() * 8)
        for number, (place, name) in enumerate(zip(self._places, self._headers)):
            sums = content[number * LANES * 8 : (number + 1) * LANES * 8]
            yield place, hashlib.sha256(name + sums).digest()[:DIGEST_BYTES]


def begin(torch: Any, remote: Sequence[Tuple[int, Any]]) -> List[Sums]:
    """Start the sums of contiguous tensors, each with its index, on the devices that they lie
    on."""
    by_device: Dict[Any, List[Tuple[int, Any]]] = {}
    for item in remote:
        by_device.setdefault(item[1].device, []).append(item)
    return [_begin(torch, device, items) for device, items in by_device.items()]


def _begin(torch: Any, device: Any, items: Sequence[Tuple[int, Any]]) -> Sums:
    places, headers = (
        [place for place, _ in items],
        [header(tensor) for _, tensor in items],
    )
    with torch.cuda.device(device) if device.type == "cuda" else torch.no_grad():
        sums = _kernel_sums(torch, device, [tensor for _, tensor in items])
        if sums is None:
            sums = eager_sums(torch, device, [tensor for _, tensor in items])
        return Sums(places, headers, *fetch(torch, sums))


def fetch(torch: Any, tensor: Any) -> Tuple[Any, Any]:
    """Return a copy of a small tensor in host memory, and the event after which it holds the values
    (None: now)."""
    if tensor.device.type != "cuda":
        return tensor.cpu(), None
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event


def eager_sums(torch: Any, device: Any, tensors: Sequence[Any]) -> Any:
    """Return the sums of contiguous tensors of one device by torch's own operators: int64 [tensors,
    LANES]. Some sixty launches for each 2 MiB of a tensor, and about 20 MiB of room."""
    tables = _tables(torch, device)
    out = torch.zeros(len(tensors), LANES, dtype=torch.int64, device=device)
    for sums, tensor in zip(out, tensors):
        content = _bytes(torch, tensor)
        whole = content.numel() // 4 * 4
        for first in range(0, whole, _AT_A_TIME * CHUNK * 4):
            piece = content[first : min(first + _AT_A_TIME * CHUNK * 4, whole)]
            sums += _piece_sums(torch, tables, piece, first // 4 // CHUNK)
        tail = content[whole:].to(torch.int64)
        for place in range(tail.numel()):
            sums += tables.tails * (tail[place] << 8 * place)
    return out


def _bytes(torch: Any, tensor: Any) -> Any:
    flat = tensor.reshape(-1)
    return (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(
        torch.uint8
    )


def _piece_sums(torch: Any, tables: Tables, piece: Any, first: int) -> Any:
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
        low, high = (
            _mixed(counter) * (column & _LOW),
            _mixed(counter + 1) * (column >> 32 & _LOW),
        )
        sums.append((low + high).sum())
    return torch.stack(sums)


def _mixed(counter: Any) -> Any:
    """Return splitmix64 of a counter, int64 of any shape: its constants as signed integers."""
    value = counter * -7046029254386353131
    value = (value ^ (value >> 30 & (1 << 34) - 1)) * -4658895280553007687
    value = (value ^ (value >> 27 & (1 << 37) - 1)) * -7723592293110705685
    return value ^ (value >> 31 & (1 << 33) - 1)


def _kernel_sums(torch: Any, device: Any, tensors: Sequence[Any]) -> Any:
    """Return the sums of all tensors by one launch of the Triton kernel: int64 [tensors, LANES];
    None where Triton does not work: it is not there, the device is not CUDA's, or the sums of a
    sample are not those of the eager form."""
    if device.type != "cuda" or WITHOUT_TRITON:
        return None
    try:
        from . import device_kernel

        if str(device) not in _TRIED:
            content = torch.arange(4 * CHUNK + 16 * TILE + 7, device=device).to(
                torch.uint8
            )
            sample = [content, content[8:23], content[1:]]
            if not torch.equal(
                sums_by(torch, device_kernel, device, sample),
                eager_sums(torch, device, sample),
            ):
                raise ValueError("the sums of a sample were wrong")
            _TRIED.append(str(device))
        return sums_by(torch, device_kernel, device, tensors)
    except Exception as error:
        WITHOUT_TRITON.append("%s: %s" % (type(error).__name__, error))
        return None


def sums_by(torch: Any, device_kernel: Any, device: Any, tensors: Sequence[Any]) -> Any:
    """Return the same, with the kernel's module given: Triton's interpreter runs it on tensors of
    the CPU."""
    tables = _tables(torch, device)
    out = torch.zeros(len(tensors), LANES, dtype=torch.int64, device=device)
    aligned = [
        tensor if tensor.data_ptr() % 4 == 0 else tensor.clone() for tensor in tensors
    ]
    sizes = tuple([tensor.numel() * tensor.element_size() for tensor in aligned])
    addresses = [tensor.data_ptr() for tensor in aligned]
    pointers = torch.tensor(
        addresses, dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda"
    )
    plan = _programs(torch, device, sizes)
    if plan[0]:
        device_kernel.launch(
            torch,
            plan,
            pointers.to(device, non_blocking=True),
            tables,
            out,
            KERNEL_SHAPE,
        )
    return out


def _programs(torch: Any, device: Any, sizes: Tuple[int, ...]) -> Tuple[Any, ...]:
    """Return the number of programs for tensors of these sizes in bytes; and on the device the
    sizes, int64 [tensors], and tensor and chunk of each program, int32 [programs]. A training's
    tensors keep their sizes, so this is remembered."""
    key = (str(device), sizes)
    if key not in _PLANS:
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
        if len(_PLANS) >= _MANY:
            _PLANS.clear()
        _PLANS[key] = (len(which), *columns)
    plan: Tuple[Any, ...] = _PLANS[key]
    return plan


def _tables(torch: Any, device: Any) -> Tables:
    """Return the fixed keys, from SHAKE-128 of the digest's name."""
    tables = _TABLES.get(str(device))
    if tables is None:
        counts = [
            LANES * 2 * ROWS * COLUMNS * 4,
            LANES * 2 * TILES * 8,
            LANES * 8,
            LANES * 8,
        ]
        content = bytearray(
            hashlib.shake_128(b"repro-gate/digest/v2").digest(sum(counts))
        )
        nh = torch.frombuffer(content, dtype=torch.int32, count=counts[0] // 4).view(
            LANES, 2, ROWS, COLUMNS
        )
        rest = torch.frombuffer(content, dtype=torch.int64, offset=counts[0])
        tiles, starts, tails = rest.split([LANES * 2 * TILES, LANES, LANES])
        tables = Tables(
            *(
                part.to(device)
                for part in (nh, tiles.view(LANES, 2, TILES), starts, tails)
            )
        )
        _TABLES[str(device)] = tables
    return tables
