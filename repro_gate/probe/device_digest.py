"""Digests of tensors where they lie, on a device: one launch for all tensors that a hook of the
probe's reads, and one transfer that nothing waits for.

The digest of a tensor is made of 16 bytes of a SHA-256 of its header (dtype and shape) and four
64-bit sums, one for each lane, of its 32-bit words, little-endian, in logical order. A sum is made
in three levels, all modulo 2**64, so that the order of additions does not matter:

1. NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC", 1999): of the words x, y of one column in
   the 8 rows of a tile (32 KiB: 512 columns of 8 pairs), sum((x + k) * (y + l)) with x + k modulo
   2**32. All columns have the same keys, and each lane those of the one before it, one pair on
   (UMAC's Toeplitz form). Two tensors differ in some column, and any one of its lanes agrees with a
   probability of at most 2**-32 over the keys, any n lanes together with 2**(-32 * n): of the last
   pair that differs, each lane has a key that the lanes before it do not have there.
2. Multilinear hashing (Carter and Wegman 1979; Lemire and Kaser, "Strongly universal string
   hashing is fast", 2014): of the columns in the 16 tiles of a chunk (512 KiB), sum(m * low + n *
   high), low and high being the halves of a column's sum, with keys of each lane and tile. As a
   difference d of 32-bit numbers has at most 31 trailing zero bits, m * d takes any one value with
   at most 2**-33.
3. The same over all columns of all chunks, whose keys come from a counter of each lane (splitmix64;
   Steele, Lea and Flood 2014); bytes behind the last whole word are one more term.

So a lane agrees with at most 2**-32 + 2 * 2**-33 = 2**-31, and all four with at most 2**-124. Each
half of the digest folds two lanes, mixed(mixed(header + first) + second): for a given first lane
two different seconds never agree. It adds at most what a 64-bit hash adds, 2**-64 for each half.

The keys are fixed: this finds accidents, not forgers. `torch.hash_tensor` would be an XOR, which no
permutation changes."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import hashlib
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..trace.format import DIGEST_BYTES
from . import device_launch
from .device_launch import COLUMNS, ROWS, TILES
from .digest import unread
from .shared import PROCESS

LANES = 4  # independent sums of a tensor
PAIRS = ROWS + LANES - 1  # keys of the first level, in pairs
TILE = 2 * COLUMNS * ROWS  # words: 32 KiB
CHUNK = TILES * TILE  # words that one program of the kernel reads: 512 KiB
# bytes that are copied together, where a copy is needed: 32 MiB, and where memory is short an
# eighth or a 64th of that
_PIECE = 64 * CHUNK * 4
_AT_A_TIME = 4 * CHUNK * 4  # bytes that the eager form reads together: 2 MiB
_LOW = 0xFFFFFFFF
_GOLDEN = -7046029254386353131  # splitmix64's, as a signed integer, as those below

_TRIED: dict[
    Any, bool
] = {}  # device -> whether the kernels give what the eager form gives
SLOW: list[str] = []  # why tensors on a GPU were digested by torch's operators
# (thread, device) -> what the hook in progress reads
_BATCHES: dict[tuple[int, Any], Batch] = {}


class Tables(NamedTuple):
    """The keys, on one device: `nh` int32 [2 * PAIRS], `tiles` int64 [LANES, 2, TILES], `starts`
    (of the third level's counters) and `tails` int64 [LANES]."""

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


class Batch:
    """The tensors of one device that one hook reads, and their digests once it is launched."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._headers: list[bytes] = []
        self._addresses: list[int] = []
        self._sizes: list[int] = []
        self._tensors: list[Any] = []  # held until they are launched
        # place and tensor of those whose elements do not lie in logical order at a multiple of 4
        self._copied: list[tuple[int, Any]] = []
        self._fetched: Any = None
        self._digests = b""

    def add(
        self,
        headers: Sequence[bytes],
        addresses: Sequence[int],
        sizes: Sequence[int],
        tensors: Sequence[Any],
    ) -> int:
        """Add contiguous tensors at multiples of 4 bytes: 16 bytes of each one's header, its
        address and its size in bytes. Return the place of the first."""
        place = len(self._headers)
        self._headers += headers
        self._addresses += addresses
        self._sizes += sizes
        self._tensors += tensors
        return place

    def copy(self, header: bytes, tensor: Any) -> int:
        """Add any other strided tensor. Return its place."""
        place = self.add([header], [0], [0], [tensor])
        self._copied.append((place, tensor))
        return place

    def ready(self) -> bool:
        """Return whether the digests have arrived."""
        return self._fetched is not None and bool(self._fetched.ready())

    def digests(self, place: int, count: int) -> bytes:
        """Return digests in a row, 16 bytes each; wait for the device."""
        self.launch()
        if not self._digests:
            host = self._fetched.values()
            self._digests = ctypes.string_at(host.data_ptr(), host.numel() * 8)
        return self._digests[DIGEST_BYTES * place :][: DIGEST_BYTES * count]

    def launch(self) -> None:
        """Start what was added, once, on the current stream."""
        if self._fetched is not None:
            return
        _BATCHES.pop((_thread.get_ident(), self.device), None)
        device = self.device
        with _on(device):
            by_kernel = _usable(device)
            count = len(self._headers)
            forms = map(
                tuple, (self._addresses, self._sizes, range(count), [0] * count)
            )
            headers = b"".join(self._headers)
            table = _table(device, _stream(device), *forms, headers)
            out = torch.zeros(count, LANES, dtype=torch.int64, device=device)
            if by_kernel:
                _sums(table, out)
            else:
                for place, size in enumerate(self._sizes):
                    if size:
                        eager_sums(out[place], self._tensors[place])
            self._copies(out, by_kernel)
            self._fetched = fetch(
                _folded(table, out) if by_kernel else eager_folded(table, out)
            )
        self._tensors = self._copied = []

    def _copies(self, out: Any, by_kernel: bool) -> None:
        """Add the sums of what has to be copied, `most` bytes at a time: less where memory is
        short, and what needs more than there is stays unread."""
        most = _PIECE
        held: list[tuple[int, int, Any]] = []  # place, first byte, copy

        def add() -> None:
            if by_kernel and held:
                parts = [
                    (piece.data_ptr() - first, first + piece.nbytes, place, first)
                    for place, first, piece in held
                ]
                table = _table(self.device, _stream(self.device), *zip(*parts))
                _sums(table, out)
            for place, first, piece in () if by_kernel else held:
                eager_sums(out[place], piece, first)
            held.clear()

        for place, tensor in self._copied:
            first = 0
            while first < tensor.nbytes:
                try:
                    piece = _piece(tensor, first, most)
                except torch.cuda.OutOfMemoryError:
                    add()  # which frees them
                    if most == CHUNK * 4:
                        unread(
                            "tensors", "torch.Tensor without room for a copy", tensor
                        )
                        out[place] = 0
                        break
                    most //= 8
                    continue
                held.append((place, first, piece))
                first += piece.nbytes
                if sum(item.nbytes for _, _, item in held) >= most:
                    add()
        add()


def launch() -> None:
    """Start what the calling thread has read in the hook that ends."""
    own = _thread.get_ident()
    for key, waiting in [*_BATCHES.items()]:
        if key[0] == own:
            waiting.launch()


PROCESS.launch = launch


def batch(device: Any) -> Batch:
    """Return what the calling thread reads of a device in the hook in progress."""
    return _BATCHES.setdefault((_thread.get_ident(), device), Batch(device))


@contextlib.contextmanager
def _on(device: Any) -> Iterator[None]:
    """Make a device the current one. The training may have asked for an error wherever something
    waits for the device."""
    if device.type != "cuda":
        yield
        return
    mode = torch.cuda.get_sync_debug_mode()
    with torch.cuda.device(device), contextlib.ExitStack() as stack:
        if mode or device not in _TRIED:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("default")
            stack.callback(torch.cuda.set_sync_debug_mode, mode)
        yield


def _stream(device: Any) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def fetch(tensor: Any) -> Fetched:
    """Return a copy of a small tensor in host memory, on its way."""
    if tensor.device.type != "cuda":
        return Fetched(torch._C.TensorBase.cpu(tensor), None)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Fetched(host, event)


def _piece(tensor: Any, first: int, most: int) -> Any:
    """Return a contiguous copy of a tensor's elements in logical order, from byte `first` on: at
    most so many bytes. Beside it, memory is needed for the slices of the first dimension that hold
    them."""
    while tensor.dim() > 1 and len(tensor) == 1:
        tensor = tensor[0]
    tensor = (
        tensor.reshape(-1) if tensor.is_contiguous() or not tensor.dim() else tensor
    )
    size, row = tensor.element_size(), tensor[0].numel()
    begin, end = first // size, min((first + most) // size, tensor.numel())
    of = torch._C.TensorBase
    rows = of.resolve_neg(of.resolve_conj(tensor[begin // row : -(-end // row)]))
    flat = rows.contiguous().view(-1)[begin - begin // row * row :][: end - begin]
    return flat.clone() if flat.data_ptr() % 4 else flat


def eager_sums(out: Any, tensor: Any, first: int = 0) -> None:
    """Add the sums of a contiguous tensor to `out`, int64 [LANES], by torch's own operators: some
    sixty launches for each 2 MiB, and about 20 MiB of room. The tensor may be a part that begins
    at byte `first`, where a chunk does."""
    tables = _tables(out.device)
    flat = tensor.reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    content = flat.view(torch.uint8)
    whole = content.numel() // 4 * 4
    for begin in range(0, whole, _AT_A_TIME):
        piece = content[begin : min(begin + _AT_A_TIME, whole)]
        out += _piece_sums(tables, piece, (first + begin) // 4 // CHUNK)
    for place, byte in enumerate(content[whole:].to(torch.int64)):
        out += tables.tails * (byte << 8 * place)


def _piece_sums(tables: Tables, piece: Any, first: int) -> Any:
    """Return the sums of a piece of a tensor, whole words whose first chunk has this number: int64
    [LANES]."""
    device = piece.device
    tiles = -(-piece.numel() // 4 // TILE)
    chunks = -(-tiles // TILES)
    words = torch.zeros(tiles * TILE, dtype=torch.int32, device=device)
    words.view(torch.uint8)[: piece.numel()].copy_(piece)
    left, right = words.view(tiles, ROWS, 2, COLUMNS).to(torch.int64).unbind(2)
    columns = torch.arange(chunks * COLUMNS, device=device).view(chunks, COLUMNS)
    counters = 2 * (first * COLUMNS + columns)
    keys = tables.nh.view(PAIRS, 2, 1)
    total = torch.zeros(chunks * TILES, COLUMNS, dtype=torch.int64, device=device)
    sums = []
    for lane in range(LANES):
        k, m = keys[lane : lane + ROWS].unbind(1)
        nh = ((left + k & _LOW) * (right + m & _LOW)).sum(dim=1)  # [tiles, COLUMNS]
        low, high = tables.tiles[lane].repeat(1, chunks)[:, :tiles, None]
        total[:tiles] = low * (nh & _LOW) + high * (nh >> 32 & _LOW)
        column = total.view(chunks, TILES, COLUMNS).sum(dim=1)
        place = (counters + tables.starts[lane]) * _GOLDEN
        terms = _mixed(place) * (column & _LOW)
        terms += _mixed(place + _GOLDEN) * (column >> 32 & _LOW)
        sums.append(terms.sum())
    return torch.stack(sums)


def eager_folded(table: Table, out: Any) -> Any:
    """Return the digests, int64 [tensors, 2], of sums, by torch's own operators."""
    pairs = out.view(-1, 2, 2)
    headers = table.headers.view(-1, 2)
    return _mixed(_mixed(headers + pairs[:, :, 0]) + pairs[:, :, 1])


def _mixed(value: Any) -> Any:
    """Return the finalizer of splitmix64, of int64 of any shape: its constants as signed
    integers."""
    value = (value ^ (value >> 30 & (1 << 34) - 1)) * -4658895280553007687
    value = (value ^ (value >> 27 & (1 << 37) - 1)) * -7723592293110705685
    return value ^ (value >> 31 & (1 << 33) - 1)


class Table(NamedTuple):
    """What a launch reads, on the device: of each tensor address, size in bytes and row of its
    sums, int64 [tensors]; of each program tensor * 2**32 + chunk, int64 [programs]; headers, int64
    [2 * tensors]; their number, int64 [1]."""

    addresses: Any
    sizes: Any
    rows: Any
    programs: Any
    headers: Any
    count: Any


@functools.lru_cache(maxsize=100)
def _table(
    device: Any,
    stream: int,
    addresses: tuple[int, ...],
    sizes: tuple[int, ...],
    rows: tuple[int, ...],
    firsts: tuple[int, ...],
    headers: bytes = b"",
) -> Table:
    """Return the table of these tensors, of each from a byte on. Most tensors of a training lie
    where they lay, so it is remembered, for the stream that brings it."""
    programs = array("q")
    for number, (size, first) in enumerate(zip(sizes, firsts)):
        end = -(-max(size // 4, 1) // CHUNK) if size else 0
        programs.extend(
            range((number << 32) + first // 4 // CHUNK, (number << 32) + end)
        )
    parts = [array("q", addresses), array("q", sizes), array("q", rows), programs]
    parts += [array("q", headers), array("q", [len(sizes)])]
    content = torch.frombuffer(
        functools.reduce(array.__add__, parts), dtype=torch.int64
    )
    if device.type == "cuda":
        content = content.pin_memory()
    on_device = content.to(device, non_blocking=True)
    return Table(*on_device.split([len(part) for part in parts]))


def _sums(table: Table, out: Any, options: Mapping[str, int] | None = None) -> None:
    """Add the sums of the tensors of a table to `out`, int64 [tensors, LANES], by the kernel."""
    count = len(table.programs)
    if count:
        device_launch.launch(
            "sums", count, [*table[:4], *_tables(out.device), out], options
        )


def sums_by(
    device: Any, tensors: Sequence[Any], options: Mapping[str, int] | None = None
) -> Any:
    """Return the sums of contiguous tensors by the kernel, compiled with these options."""
    forms = [item.data_ptr() for item in tensors], [item.nbytes for item in tensors]
    count = len(tensors)
    table = _table(
        device, _stream(device), *map(tuple, forms), tuple(range(count)), (0,) * count
    )
    out = torch.zeros(count, LANES, dtype=torch.int64, device=device)
    _sums(table, out, options)
    return out


def _folded(table: Table, out: Any) -> Any:
    """Return what `eager_folded` returns, by the kernel."""
    digests = torch.empty(len(out), 2, dtype=torch.int64, device=out.device)
    programs = -(-len(out) // device_launch.BLOCK["block"])
    device_launch.launch("folded", programs, [out, table.headers, digests, table.count])
    return digests


def _usable(device: Any) -> bool:
    """Return whether the kernels work on a device. They are tried once, on a sample; no memory for
    that says nothing about them."""
    if device.type == "cuda" and device not in _TRIED:
        try:
            _TRIED[device] = _agrees(device)
            if not _TRIED[device]:
                SLOW.append("the sums of a sample were wrong")
        except torch.cuda.OutOfMemoryError:
            return False
        except Exception as error:
            _TRIED[device] = False
            SLOW.append(f"{type(error).__name__}: {error}")
    return _TRIED.get(device, False)


def _agrees(device: Any) -> bool:
    """Return whether the kernels give the digests of the eager form for a sample."""
    content = torch.arange(8 * CHUNK + 8 * TILE + 7, device=device).to(torch.uint8)
    sample = [content, content[8:23], content[4:]]
    where = tuple(item.data_ptr() for item in sample)
    sizes = tuple(item.nbytes for item in sample)
    forms = where, sizes, (0, 1, 2), (0, 0, 0)
    table = _table(device, _stream(device), *forms, bytes(range(48)))
    ours, theirs = torch.zeros(2, 3, LANES, dtype=torch.int64, device=device)
    _sums(table, ours)
    for row, item in zip(theirs, sample):
        eager_sums(row, item)
    return bool(torch.equal(_folded(table, ours), eager_folded(table, theirs)))


@functools.lru_cache(maxsize=None)
def _tables(device: Any) -> Tables:
    """Return the fixed keys, from SHAKE-128 of the digest's name."""
    others = [LANES * 2 * TILES, LANES, LANES]
    size = 2 * PAIRS * 4 + sum(others) * 8
    content = bytearray(hashlib.shake_128(b"repro-gate/digest/v3").digest(size))
    nh = torch.frombuffer(content, dtype=torch.int32, count=2 * PAIRS)
    rest = torch.frombuffer(content, dtype=torch.int64, offset=2 * PAIRS * 4)
    tiles, starts, tails = rest.split(others)
    parts = nh, tiles.view(LANES, 2, TILES), starts, tails
    return Tables(*(part.to(device) for part in parts))
