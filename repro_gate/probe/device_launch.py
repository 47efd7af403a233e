"""Launches the kernels of `device_digest`: by Triton, or by the CUDA driver, which compiles
`device_kernel.ptx` itself.

Triton makes the program that launches a kernel with a C compiler. Where there is none, as in an
image without build tools, or no Triton, or where REPRO_GATE_KERNEL is `ptx`, the driver does it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

COLUMNS = 512
ROWS = 8
TILES = 16
SHAPE = {"width": COLUMNS, "height": ROWS, "depth": TILES}
BLOCK = {"block": 128}  # tensors whose sums one program of `folded` folds
# How `sums` can be compiled; the first is used. A thread of its widest form holds 168 registers, so
# that 12 warps share a multiprocessor; with 128 there are 16, with half as many columns 24.
VARIANTS: dict[str, dict[str, int]] = {
    "16 warps": {"num_warps": 4, "maxnreg": 128},
    "12 warps": {"num_warps": 4},
    "24 warps": {"num_warps": 8, "maxnreg": 80},
}
PTX = Path(__file__).with_name("device_kernel.ptx")
WITHOUT_TRITON: list[str] = []  # why Triton does not launch the kernels of this process
# (device, kernel) -> the driver's function
_LOADED: dict[tuple[int, str], Any] = {}


def launch(
    name: str,
    programs: int,
    arguments: Sequence[Any],
    options: Mapping[str, int] | None = None,
) -> None:
    """Queue a kernel (`sums` or `folded`) on the current stream of the device of its tensors.
    Raises RuntimeError where neither Triton nor the driver can."""
    device = arguments[0].device
    for_cuda = device.type == "cuda" and torch.version.hip is None
    if for_cuda and os.environ.get("REPRO_GATE_KERNEL") == "ptx":
        WITHOUT_TRITON[:] = ["REPRO_GATE_KERNEL is ptx"]
    if not WITHOUT_TRITON:
        known = (options or VARIANTS["16 warps"]) if for_cuda else {}
        try:
            _by_triton(name, programs, arguments, known)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            if not for_cuda:
                raise
            WITHOUT_TRITON.append(f"{type(error).__name__}: {error}")
    if WITHOUT_TRITON:
        _by_driver(name, programs, arguments)


def _by_triton(
    name: str, programs: int, arguments: Sequence[Any], options: Mapping[str, int]
) -> None:
    from . import device_kernel

    kernel = getattr(device_kernel, name)
    if arguments[0].is_cuda and not hasattr(kernel, "cache_key"):
        raise RuntimeError("Triton's interpreter cannot read a GPU's memory")
    shape = SHAPE if name == "sums" else BLOCK
    kernel[(programs,)](*arguments, **shape, **options)


def _by_driver(name: str, programs: int, arguments: Sequence[Any]) -> None:
    """Launch as above in the device's current context."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = arguments[0].device.index
    if (device, name) not in _LOADED:
        module = ctypes.c_void_p()
        function = ctypes.c_void_p()
        _called(driver.cuModuleLoadData(ctypes.byref(module), PTX.read_bytes() + b"\0"))
        _called(
            driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        )
        _LOADED[device, name] = function
    # Triton gives its kernels two more arguments, which these do not use
    places = [ctypes.c_void_p(item.data_ptr()) for item in arguments]
    places += [ctypes.c_void_p()] * 2
    values = (ctypes.c_void_p * len(places))(*map(ctypes.addressof, places))
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    threads = 32 * VARIANTS["16 warps"]["num_warps"]
    grid = programs, 1, 1, threads, 1, 1
    shared = 1024  # bytes, for sums over the warps: more than they need
    _called(
        driver.cuLaunchKernel(
            _LOADED[device, name], *grid, shared, stream, values, None
        )
    )


def _called(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver answered {status}")
