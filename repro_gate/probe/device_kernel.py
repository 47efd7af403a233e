"""The Triton kernels of `device_digest`, imported where there is Triton, and `device_kernel.ptx`,
which Triton makes of them: `python -m repro_gate.probe.device_kernel`.

A program of `sums` reads one chunk of a tensor. Where the chunk is whole and begins at a multiple
of 16 bytes, each load takes 16 bytes, without masks. The keys are the same for all columns: 22 of
them, so that a thread has registers for the loads of a whole tile on their way.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import re
from pathlib import Path

import triton
import triton.language as tl

from .device_launch import BLOCK, PTX, SHAPE, VARIANTS

CAPABILITY = 75  # of the oldest GPUs that the PTX is for: 7.5
VERSION = "7.0"  # of the PTX, which every driver for CUDA 11 and newer reads
# The addresses of the tables differ: without this, some would get a kernel of their own.
_SUMS = (
    "pointers",
    "sizes",
    "rows",
    "programs",
    "keys",
    "tiles",
    "starts",
    "tails",
    "out",
)
_FOLDED = "out", "headers", "digests", "count"


@triton.jit(do_not_specialize=_SUMS)
def sums(
    pointers,
    sizes,
    rows,
    programs,
    keys,
    tiles,
    starts,
    tails,
    out,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
):
    place = tl.load(programs + tl.program_id(0))
    tensor = place >> 32
    part = place & 0xFFFFFFFF
    size = tl.load(sizes + tensor)
    address = tl.load(pointers + tensor)
    whole = size // 4
    tile_words: tl.constexpr = 2 * height * width
    first = part * (depth * tile_words)
    column = tl.arange(0, width)
    a0 = tl.zeros([width], tl.uint64)
    a1 = tl.zeros([width], tl.uint64)
    a2 = tl.zeros([width], tl.uint64)
    a3 = tl.zeros([width], tl.uint64)
    if (address % 16 == 0) & (first + depth * tile_words <= whole):
        begin = (address + 4 * first).to(tl.pointer_type(tl.int32))
        words = tl.multiple_of(begin, 16)
        for tile in range(depth):
            n0 = tl.zeros([width], tl.uint64)
            n1 = tl.zeros([width], tl.uint64)
            n2 = tl.zeros([width], tl.uint64)
            n3 = tl.zeros([width], tl.uint64)
            for row in tl.static_range(height):
                at = words + tile * tile_words + row * 2 * width + column
                left = tl.load(at)
                right = tl.load(at + width)
                n0 += _product(left, right, keys + 2 * row)
                n1 += _product(left, right, keys + 2 * row + 2)
                n2 += _product(left, right, keys + 2 * row + 4)
                n3 += _product(left, right, keys + 2 * row + 6)
            a0 += _tile(n0, tiles + tile, depth)
            a1 += _tile(n1, tiles + 2 * depth + tile, depth)
            a2 += _tile(n2, tiles + 4 * depth + tile, depth)
            a3 += _tile(n3, tiles + 6 * depth + tile, depth)
    else:
        words = address.to(tl.pointer_type(tl.int32))
        used = tl.minimum(depth, tl.cdiv(whole - first, tile_words)).to(tl.int32)
        for tile in range(used):
            n0 = tl.zeros([width], tl.uint64)
            n1 = tl.zeros([width], tl.uint64)
            n2 = tl.zeros([width], tl.uint64)
            n3 = tl.zeros([width], tl.uint64)
            for row in range(height):
                at = first + tile * tile_words + row * 2 * width + column
                left = tl.load(words + at, mask=at < whole, other=0)
                right = tl.load(words + at + width, mask=at + width < whole, other=0)
                n0 += _product(left, right, keys + 2 * row)
                n1 += _product(left, right, keys + 2 * row + 2)
                n2 += _product(left, right, keys + 2 * row + 4)
                n3 += _product(left, right, keys + 2 * row + 6)
            a0 += _tile(n0, tiles + tile, depth)
            a1 += _tile(n1, tiles + 2 * depth + tile, depth)
            a2 += _tile(n2, tiles + 4 * depth + tile, depth)
            a3 += _tile(n3, tiles + 6 * depth + tile, depth)
    counter = (2 * (part * width + column)).to(tl.uint64)
    total = out + 4 * tl.load(rows + tensor)
    # the last chunk has the bytes behind the last word
    tail = tl.zeros([1], tl.int64).sum()
    if first + depth * tile_words >= whole:
        behind = tl.arange(0, 4)
        content = (address + 4 * whole).to(tl.pointer_type(tl.uint8)) + behind
        rest = tl.load(content, mask=behind < size % 4, other=0).to(tl.int64)
        tail = tl.sum(rest << (8 * behind).to(tl.int64))
    tl.atomic_add(total, _columns(a0, counter, starts) + tail * tl.load(tails))
    tl.atomic_add(
        total + 1, _columns(a1, counter, starts + 1) + tail * tl.load(tails + 1)
    )
    tl.atomic_add(
        total + 2, _columns(a2, counter, starts + 2) + tail * tl.load(tails + 2)
    )
    tl.atomic_add(
        total + 3, _columns(a3, counter, starts + 3) + tail * tl.load(tails + 3)
    )


@triton.jit
def _product(left, right, keys):
    """Return the first level's product of the words of a row, by its two keys."""
    one = (left + tl.load(keys)).to(tl.uint32, bitcast=True).to(tl.uint64)
    return one * (right + tl.load(keys + 1)).to(tl.uint32, bitcast=True).to(tl.uint64)


@triton.jit
def _tile(column, multipliers, depth: tl.constexpr):
    """Return the second level's term of the columns of one tile."""
    low = tl.load(multipliers).to(tl.uint64, bitcast=True)
    high = tl.load(multipliers + depth).to(tl.uint64, bitcast=True)
    return low * (column & 0xFFFFFFFF) + high * (column >> 32)


@triton.jit
def _columns(column, counter, start):
    """Return the third level of the columns of a chunk: one int64."""
    place = (counter + tl.load(start).to(tl.uint64, bitcast=True)) * 0x9E3779B97F4A7C15
    other = place + 0x9E3779B97F4A7C15
    terms = _mixed(place) * (column & 0xFFFFFFFF) + _mixed(other) * (column >> 32)
    return tl.sum(terms.to(tl.int64, bitcast=True))


@triton.jit
def _mixed(value):
    """Return the finalizer of splitmix64."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


@triton.jit(do_not_specialize=_FOLDED)
def folded(out, headers, digests, count, block: tl.constexpr):
    tensor = tl.program_id(0) * block + tl.arange(0, block)
    used = tensor < tl.load(count)
    for half in tl.static_range(2):
        sums_ = out + 4 * tensor + 2 * half
        first = tl.load(sums_, mask=used, other=0).to(tl.uint64, bitcast=True)
        second = tl.load(sums_ + 1, mask=used, other=0).to(tl.uint64, bitcast=True)
        header = tl.load(headers + 2 * tensor + half, mask=used, other=0)
        value = _mixed(_mixed(header.to(tl.uint64, bitcast=True) + first) + second)
        tl.store(
            digests + 2 * tensor + half, value.to(tl.int64, bitcast=True), mask=used
        )


def made(capability: int = CAPABILITY) -> str:
    """Return the PTX of both kernels for GPUs of a compute capability (75: 7.5) and newer."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", capability, 32)
    texts = []
    for kernel, names, shape in ((sums, _SUMS, SHAPE), (folded, _FOLDED, BLOCK)):
        signature = {name: "*i32" if name == "keys" else "*i64" for name in names}
        signature |= dict.fromkeys(shape, "constexpr")
        source = ASTSource(fn=kernel, signature=signature, constexprs=shape)
        options = next(iter(VARIANTS.values()))
        text = triton.compile(source, target=target, options=options).asm["ptx"]
        texts.append(re.sub(r"(?m)\s*(?://.*)?$|^\s*\.(?:loc|file) .*$", "", text))
    heads = r"(?m)^\.(?:version|target|address_size) .*\n"
    text = (texts[0] + re.sub(heads, "", texts[1])).strip() + "\n"
    return re.sub(r"(?m)^\.version .*", f".version {VERSION}", text)


if __name__ == "__main__":
    Path(PTX).write_text(made(), encoding="ascii")
