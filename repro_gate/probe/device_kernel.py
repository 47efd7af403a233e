"""The Triton kernel of `device_digest`, imported where there is Triton: one program for each 128
KiB of any tensor.

Triton launches a kernel by a program that it makes with a C compiler. Where there is none, as in an
image without build tools, the kernel is handed to the CUDA driver here.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

# device -> the driver's function, and its bytes of shared memory
_LOADED: dict[int, tuple[Any, int]] = {}
WARPS = 4  # a thread holds the keys of its columns in registers: 254 of them on sm_90, none spilled


def launch(
    plan: tuple[Any, ...],
    pointers: Any,
    tables: Sequence[Any],
    out: Any,
    shape: dict[str, int],
) -> None:
    """Add the sums of all tensors to `out`, int64 [tensors, LANES]. `plan` is that of
    `device_digest._programs`, `tables` are its Tables, `shape` is its KERNEL_SHAPE. Raises what
    Triton or the driver raises."""
    programs, sizes, which, chunk = plan
    arguments = (pointers, sizes, which, chunk, *tables, out)
    if not _LOADED:
        try:
            _sums[(programs,)](*arguments, **shape, num_warps=WARPS)
            return
        except Exception:
            if out.device.type != "cuda":
                raise
    _by_driver(programs, arguments, shape)


def compiled(capability: int, shape: dict[str, int]) -> Any:
    """Compile the kernel for GPUs of a compute capability (90: 9.0), which need not be here:
    `asm["cubin"]`, `metadata.name` and `.shared`."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    narrow = {"which", "chunk", "nh"}
    signature = {
        name: "constexpr" if name in shape else "*i32" if name in narrow else "*i64"
        for name in _sums.arg_names
    }
    source = ASTSource(fn=_sums, signature=signature, constexprs=shape)
    return triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": WARPS}
    )


def _by_driver(programs: int, arguments: Sequence[Any], shape: dict[str, int]) -> None:
    """Launch as above, by the CUDA driver in the device's current context and stream."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = arguments[-1].device.index
    if device not in _LOADED:
        major, minor = torch.cuda.get_device_capability(device)
        made = compiled(10 * major + minor, shape)
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        _called(driver.cuModuleLoadData(ctypes.byref(module), made.asm["cubin"]))
        _called(
            driver.cuModuleGetFunction(
                ctypes.byref(function), module, made.metadata.name.encode()
            )
        )
        _LOADED[device] = function, made.metadata.shared
    function, shared = _LOADED[device]
    places = [ctypes.c_void_p(item.data_ptr()) for item in arguments] + [
        ctypes.c_void_p()
    ] * 2  # newer Tritons have two more, unused here
    values = (ctypes.c_void_p * len(places))(
        *(ctypes.addressof(place) for place in places)
    )
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    _called(
        driver.cuLaunchKernel(
            function, programs, 1, 1, 32 * WARPS, 1, 1, shared, stream, values, None
        )
    )


def _called(status: int) -> None:
    if status:
        raise RuntimeError("the CUDA driver answered %d" % status)


@triton.jit
def _sums(
    pointers,
    sizes,
    which,
    chunk,
    nh,
    tiles,
    starts,
    tails,
    out,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
):
    program = tl.program_id(0)
    tensor = tl.load(which + program)
    part = tl.load(chunk + program).to(tl.int64)
    size = tl.load(sizes + tensor)
    address = tl.load(pointers + tensor)
    words = address.to(tl.pointer_type(tl.int32))
    whole = size // 4
    first = part * (depth * 2 * height * width)
    column = tl.arange(0, width)
    row = tl.arange(0, height)[:, None]
    place = row * (2 * width) + column[None, :]
    key = row * width + column[None, :]
    k0, l0 = _keys(nh, key, 0, height, width)
    k1, l1 = _keys(nh, key, 1, height, width)
    k2, l2 = _keys(nh, key, 2, height, width)
    k3, l3 = _keys(nh, key, 3, height, width)
    a0 = tl.zeros([width], tl.int64)
    a1 = tl.zeros([width], tl.int64)
    a2 = tl.zeros([width], tl.int64)
    a3 = tl.zeros([width], tl.int64)
    used = tl.minimum(depth, tl.cdiv(whole - first, 2 * height * width)).to(tl.int32)
    for tile in range(used):
        at = first + tile * (2 * height * width) + place
        left = tl.load(words + at, mask=at < whole, other=0)
        right = tl.load(words + at + width, mask=at + width < whole, other=0)
        a0 += _tile(left, right, k0, l0, tiles + tile, depth)
        a1 += _tile(left, right, k1, l1, tiles + 2 * depth + tile, depth)
        a2 += _tile(left, right, k2, l2, tiles + 4 * depth + tile, depth)
        a3 += _tile(left, right, k3, l3, tiles + 6 * depth + tile, depth)
    counter = 2 * (part * width + column)
    sums = out + tensor.to(tl.int64) * 4
    tl.atomic_add(sums, _columns(a0, counter + tl.load(starts)))
    tl.atomic_add(sums + 1, _columns(a1, counter + tl.load(starts + 1)))
    tl.atomic_add(sums + 2, _columns(a2, counter + tl.load(starts + 2)))
    tl.atomic_add(sums + 3, _columns(a3, counter + tl.load(starts + 3)))
    # the last chunk has the bytes behind the last word
    if first + depth * 2 * height * width >= whole:
        content = address.to(tl.pointer_type(tl.uint8)) + 4 * whole
        behind = tl.arange(0, 4)
        bytes_ = tl.load(content + behind, mask=behind < size % 4, other=0).to(tl.int64)
        tail = tl.sum(bytes_ << (8 * behind).to(tl.int64))
        tl.atomic_add(sums, tail * tl.load(tails))
        tl.atomic_add(sums + 1, tail * tl.load(tails + 1))
        tl.atomic_add(sums + 2, tail * tl.load(tails + 2))
        tl.atomic_add(sums + 3, tail * tl.load(tails + 3))


@triton.jit
def _keys(nh, key, lane: tl.constexpr, height: tl.constexpr, width: tl.constexpr):
    table = nh + lane * 2 * height * width
    return tl.load(table + key), tl.load(table + height * width + key)


@triton.jit
def _tile(left, right, k, m, multipliers, depth: tl.constexpr):
    """Return the first two levels for one tile and lane: int64 [width]."""
    product = (left + k).to(tl.uint32, bitcast=True).to(tl.int64) * (right + m).to(
        tl.uint32, bitcast=True
    ).to(tl.int64)
    nh = tl.sum(product, axis=0)
    return tl.load(multipliers) * (nh & 0xFFFFFFFF) + tl.load(multipliers + depth) * (
        (nh >> 32) & 0xFFFFFFFF
    )


@triton.jit
def _columns(column, counter):
    """Return the third level for one lane: an int64."""
    return tl.sum(
        _mixed(counter) * (column & 0xFFFFFFFF)
        + _mixed(counter + 1) * ((column >> 32) & 0xFFFFFFFF)
    )


@triton.jit
def _mixed(counter):
    """Return splitmix64: its constants as signed 64-bit integers."""
    value = counter * -7046029254386353131
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return value ^ ((value >> 31) & 0x1FFFFFFFF)
