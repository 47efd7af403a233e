"""A member: numpy's .npy (one array) and .npz (a zip of them).
 The header is a Python literal, read by `ast.literal_eval` under numpy's own limit of 10,000 characters. Object arrays are
pickles: they are compared as bytes and never loaded.
"""

from __future__ import annotations

import ast
import os
import struct
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from repro_gate.trace.artifacts.interface import MAX_SIZE, Contents, Leaf, Unreadable
from repro_gate.trace.artifacts.numpy_pickle import numpy_dtype
from repro_gate.trace.artifacts.strided import Budget, column_major, gather, gathered, row_major, tensor_leaf
from repro_gate.trace.artifacts.tree import Tree
from repro_gate.trace.artifacts.zip_directory import Entry, entries, unpacked

MAX_HEADER = 10_000
MAX_FORTRAN = 256 * 1024 * 1024  # bytes of a compressed array in Fortran order, which must be held to be turned
_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class _Header:
    """What stands in front of the bytes. `dtype` is None for object and structured arrays, `description` always says what they are."""

    dtype: str | None
    itemsize: int
    description: str
    fortran: bool
    shape: tuple[int, ...]
    length: int  # bytes of the header itself


def read_npy(file: BinaryIO) -> Contents:
    """The one array of a .npy file."""
    size = os.fstat(file.fileno()).st_size
    tree = Tree()
    entry = Entry("", 0, size, size, True)
    tree.add("array", _array(file, entry, Budget(size)))
    return tree.contents()


def read(file: BinaryIO) -> Contents:
    """The arrays of a .npz file by name; an entry that is no array is compared as bytes."""
    tree = Tree()
    found = entries(file)
    budget = Budget(sum(entry.size for entry in found.values()))
    for name, entry in found.items():
        if name.endswith(".npy"):
            tree.add(name.removesuffix(".npy"), _array(file, entry, budget))
        else:
            tree.add(name, _raw("bytes", (entry.size,), unpacked(file, entry)))
    return tree.contents()


def _array(file: BinaryIO, entry: Entry, budget: Budget) -> Leaf:
    chunks = unpacked(file, entry)
    prefix = b""
    while len(prefix) < min(entry.size, MAX_HEADER + 12):
        prefix += next(chunks, b"")
    header = _header(prefix)
    length = entry.size - header.length
    rest = _chain(prefix[header.length :], chunks)
    if header.dtype is None:
        return _raw(header.description + (" (fortran)" if header.fortran else ""), header.shape, rest)
    layout = (column_major if header.fortran else row_major)(header.shape, header.itemsize)
    if layout.nbytes != length:
        raise Unreadable(f"the array {entry.name!r} has another size than its header says")
    budget.spend(layout)
    if layout.contiguous:
        return tensor_leaf(header.dtype, header.shape, rest)
    if not entry.stored:
        if length > MAX_FORTRAN:
            raise Unreadable("it holds a compressed array in Fortran order that is too large to be turned")
        return tensor_leaf(header.dtype, header.shape, gather(memoryview(b"".join(rest)), layout))
    return tensor_leaf(header.dtype, header.shape, gathered(file, entry.start + header.length, length, layout))


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _raw(dtype: str, shape: tuple[int, ...], chunks: Iterable[bytes]) -> Leaf:
    return replace(tensor_leaf(dtype, shape, chunks), kind="bytes")


def _header(prefix: bytes) -> _Header:
    """The header at the start of `prefix`: magic, version, length, and a Python literal."""
    if prefix[:6] != _MAGIC or len(prefix) < 12 or prefix[6] not in (1, 2, 3):
        raise Unreadable("an array in it does not start like a .npy file")
    begin = 10 if prefix[6] == 1 else 12
    length = struct.unpack("<H" if begin == 10 else "<I", prefix[8:begin])[0]
    if length > MAX_HEADER or begin + length > len(prefix):
        raise Unreadable("the header of an array in it is too long or cut off")
    try:
        with warnings.catch_warnings():  # of escapes that a Python literal should not have
            warnings.simplefilter("ignore")
            found = ast.literal_eval(prefix[begin : begin + length].decode("utf-8" if prefix[6] == 3 else "latin-1").strip())
        description, fortran, shape = found["descr"], found["fortran_order"], found["shape"]
        if len(found) != 3 or not isinstance(fortran, bool) or not isinstance(shape, tuple) or len(shape) > 64:
            raise ValueError("shape")
        if not all(type(size) is int and 0 <= size < MAX_SIZE for size in shape):
            raise ValueError("shape")
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError, UnicodeDecodeError) as error:
        raise Unreadable("the header of an array in it is malformed") from error
    known = numpy_dtype(description) if isinstance(description, str) else None
    shown = "object" if description in ("|O", "O") else repr(description) if not isinstance(description, str) else description
    return _Header(known[0] if known else None, known[1] if known else 0, shown, fortran, shape, begin + length)
