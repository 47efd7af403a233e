"""Bytes of an array in logical order: streamed where the array is contiguous, gathered by strided copies where it is not.
 Does in flat memory what `tensor.contiguous().numpy().tobytes()` does, with
no torch and no numpy: a strided `memoryview` slice is copied by one C loop, so the longest axis is the one that is sliced.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import mmap
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

from repro_gate.trace.artifacts.interface import CHUNK, FREE_EXPANSION, MAX_EXPANSION, MAX_SLICES, Leaf, Unreadable, on_time
from repro_gate.trace.artifacts.tree import shown_float

_WORDS: dict[int, Literal["Q", "I", "H", "B"]] = {8: "Q", 4: "I", 2: "H", 1: "B"}
_SHOWN = {  # how one element is shown: the formats of `struct`
    "float64": "<d",
    "float32": "<f",
    "float16": "<e",
    "int64": "<q",
    "int32": "<i",
    "int16": "<h",
    "int8": "<b",
    "uint64": "<Q",
    "uint32": "<I",
    "uint16": "<H",
    "uint8": "<B",
    "bool": "<?",
}
_Axis = tuple[int, int]  # size, stride in items
_Axes = tuple[_Axis, ...]


@dataclass(frozen=True)
class Layout:
    """Where the items of an array lie in its storage. Offset and strides count items; strides are not negative."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    offset: int = 0

    @property
    def count(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in logical order."""
        return self.count * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether logical order is storage order, without gaps."""
        axes = _merged(self)
        return len(axes) == 0 or self.count == 0 or (len(axes) == 1 and axes[0][1] == 1)

    def end(self) -> int:
        """One past the last item that is read, counted from the start of the storage."""
        return self.offset + (0 if self.count == 0 else 1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides)))


class Budget:
    """How much work one file may cause: digested bytes and strided copies."""

    def __init__(self, file_size: int) -> None:
        self.bytes = FREE_EXPANSION + MAX_EXPANSION * file_size
        self.slices = MAX_SLICES

    def spend(self, layout: Layout) -> None:
        """Take one array's work from the budget. Raises Unreadable when it is used up."""
        self.bytes -= layout.nbytes
        if not layout.contiguous:
            longest = max(size for size, _ in _merged(layout))
            self.slices -= layout.count // longest * (layout.itemsize // _word(layout.itemsize))
        if self.bytes < 0 or self.slices < 0:
            raise Unreadable("its tensors are far larger than the file that holds them, or scattered over it")


def row_major(shape: Sequence[int], itemsize: int) -> Layout:
    """The layout of a contiguous array in C order."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Layout(tuple(shape), tuple(strides), itemsize)


def column_major(shape: Sequence[int], itemsize: int) -> Layout:
    """The layout of a contiguous array in Fortran order."""
    strides = [math.prod(shape[:axis]) for axis in range(len(shape))]
    return Layout(tuple(shape), tuple(strides), itemsize)


def tensor_leaf(dtype: str, shape: Sequence[int], chunks: Iterable[bytes | memoryview]) -> Leaf:
    """The leaf of an array whose logical bytes are `chunks`; a single element also gets its value."""
    digest = hashlib.sha256(f"{dtype}\0{tuple(shape)}\0".encode())
    first, total = b"", 0
    for chunk in chunks:
        on_time()
        if not total and len(chunk) <= 16:
            first = bytes(chunk)
        total += len(chunk)
        digest.update(chunk)
    value = _shown(dtype, first) if math.prod(shape) == 1 and total == len(first) else None
    return Leaf("tensor", dtype, tuple(shape), digest.hexdigest(), value)


def stream(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    """`length` bytes of the file from `start`, chunk by chunk. Raises Unreadable where the file ends before."""
    file.seek(start)
    while length > 0:
        chunk = file.read(min(CHUNK, length))
        if not chunk:
            raise Unreadable("it is truncated")
        length -= len(chunk)
        yield chunk


def gather(storage: memoryview, layout: Layout) -> Iterator[memoryview]:
    """The array's logical bytes out of its storage (bytes), block by block. The caller has checked `layout.end()` and the budget."""
    if layout.count == 0:
        return
    word = _word(layout.itemsize)
    with storage[: len(storage) // word * word] as even, even.cast(_WORDS[word]) as words:
        yield from _blocks(words, layout.offset, _merged(layout), layout.itemsize // word)


def gathered(file: BinaryIO, start: int, length: int, layout: Layout) -> Iterator[memoryview]:
    """`gather` out of a part of a file, which is mapped, not loaded. Nobody else may shorten it meanwhile: `collect` makes copies."""
    with (
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
        view[start : start + length] as storage,
    ):
        yield from gather(storage, layout)


def swapped(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Chunks with the byte order of items of `size` bytes turned round."""
    for chunk in chunks:
        items = array(_WORDS[size])
        items.frombytes(chunk)
        items.byteswap()
        yield items.tobytes()


def _word(itemsize: int) -> int:
    return next(size for size in _WORDS if itemsize % size == 0)


def _merged(layout: Layout) -> _Axes:
    """Axes without those of size 1, neighbours that lie as one axis in storage made one."""
    axes: list[_Axis] = []
    for size, step in zip(layout.shape, layout.strides):
        if size == 1:
            continue
        if axes and axes[-1][1] == step * size:
            axes[-1] = (axes[-1][0] * size, step)
        else:
            axes.append((size, step))
    return tuple(axes)


def _blocks(words: memoryview, offset: int, axes: _Axes, per_item: int) -> Iterator[memoryview]:
    """Split along the leading axes until a block fits into a chunk."""
    on_time()
    limit = max(1, CHUNK // (per_item * words.itemsize))
    if math.prod(size for size, _ in axes) <= limit:
        yield _block(words, offset, axes, per_item)
        return
    (size, step), rest = axes[0], axes[1:]
    rows = max(1, limit // math.prod(inner for inner, _ in rest))
    for start in range(0, size, rows):
        part = min(rows, size - start)
        yield from _blocks(words, offset + start * step, rest if part == 1 else ((part, step), *rest), per_item)


def _block(words: memoryview, offset: int, axes: _Axes, per_item: int) -> memoryview:
    """One block in logical order: the longest axis by slices, the others one index at a time."""
    axes = axes or ((1, 1),)
    sizes = [size for size, _ in axes]
    out = memoryview(bytearray(math.prod(sizes) * per_item * words.itemsize)).cast(_WORDS[words.itemsize])
    dense = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    longest = max(range(len(sizes)), key=sizes.__getitem__)
    count, step, gap = sizes[longest], axes[longest][1], dense[longest]
    others = [axis for axis in range(len(sizes)) if axis != longest]
    for index in itertools.product(*(range(sizes[axis]) for axis in others)):
        source = offset + sum(place * axes[axis][1] for place, axis in zip(index, others))
        target = sum(place * dense[axis] for place, axis in zip(index, others))
        for word in range(per_item):
            span = out[target * per_item + word : (target + (count - 1) * gap) * per_item + word + 1 : gap * per_item]
            first = source * per_item + word
            if step:
                span[:] = words[first : first + (count - 1) * step * per_item + 1 : step * per_item]
            else:  # an expanded axis: one item, many times
                span[:] = memoryview(words[first : first + 1].tobytes() * count).cast(_WORDS[words.itemsize])
    return out.cast("B")


def _shown(dtype: str, data: bytes) -> str | None:
    """One element as text, None for a dtype that has no spelling here."""
    if dtype == "bfloat16" and len(data) == 2:
        dtype, data = "float32", b"\0\0" + data
    form = _SHOWN.get(dtype)
    if form is None or struct.calcsize(form) != len(data):
        return None
    value = struct.unpack(form, data)[0]
    return shown_float(value, struct.pack("<d", value)) if isinstance(value, float) else str(value)
