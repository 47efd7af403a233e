"""A member: safetensors files, a JSON header of names, types and offsets in front of the bytes.
The format is the one of huggingface/safetensors: 8 bytes length (little-endian), header, then the buffer without gaps.
"""

from __future__ import annotations

import json
import math
import os
import struct
from typing import Any, BinaryIO

from repro_gate.trace.artifacts.interface import MAX_SIZE, Contents, Unreadable
from repro_gate.trace.artifacts.strided import stream, tensor_leaf
from repro_gate.trace.artifacts.tree import Tree, text

MAX_HEADER = 32 * 1024 * 1024  # bytes; the reference implementation allows 100,000,000
_DTYPES = {  # torch's names, and bits of one item
    "BOOL": ("bool", 8),
    "U8": ("uint8", 8),
    "I8": ("int8", 8),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "F32": ("float32", 32),
    "F64": ("float64", 64),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
    "C64": ("complex64", 64),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F4": ("float4_e2m1fn", 4),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
}


def read(file: BinaryIO) -> Contents:
    """The leaves of a safetensors file, in the order of its header; metadata as text under `__metadata__`."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))[0]
    if length > min(MAX_HEADER, size - 8):
        raise Unreadable("its header is too long or cut off")
    header, start, tree = _header(file.read(length)), 8 + length, Tree()
    for key, value in _metadata(header.pop("__metadata__", {})):
        tree.add(f"__metadata__.{key}", text(value))
    described = {name: _described(name, item, size - start) for name, item in header.items()}
    _check_no_gaps([span for _, _, span in described.values()], size - start)
    for name, (dtype, shape, (begin, end)) in described.items():
        tree.add(name, tensor_leaf(dtype, shape, stream(file, start + begin, end - begin)))
    return tree.contents()


def _header(data: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise Unreadable("its header names a tensor twice")
        return found

    try:
        header = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Unreadable("its header is no JSON") from error
    if not isinstance(header, dict):
        raise Unreadable("its header is no JSON object")
    return header


def _metadata(item: Any) -> list[tuple[str, str]]:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        raise Unreadable("its metadata is malformed")
    return sorted(item.items())


def _described(name: str, item: Any, room: int) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """(dtype, shape, span) of one tensor; the span fits the shape."""
    try:
        kind, shape, (begin, end) = item["dtype"], tuple(item["shape"]), item["data_offsets"]
        sizes = all(type(part) is int and 0 <= part < MAX_SIZE for part in (begin, end, *shape))
        if not sizes or not isinstance(kind, str) or len(kind) > 64 or len(shape) > 64:
            raise ValueError(name)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the entry of {name!r} is malformed") from error
    dtype, bits = _DTYPES.get(kind, (kind, 0))
    if not begin <= end <= room or (bits and math.prod(shape) * bits != (end - begin) * 8):
        raise Unreadable(f"the offsets of {name!r} do not fit its shape, or reach past the end of the file")
    return dtype, shape, (begin, end)


def _check_no_gaps(spans: list[tuple[int, int]], room: int) -> None:
    """The buffer is covered once: no byte goes unseen, none is digested twice."""
    place = 0
    for begin, end in sorted(spans):
        if begin != place:
            raise Unreadable("its tensors overlap or leave gaps")
        place = end
    if place != room:
        raise Unreadable("bytes are left over behind its last tensor")
