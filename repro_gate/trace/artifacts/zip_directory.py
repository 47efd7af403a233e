"""The entries of a hostile zip file: its directory read under limits, each entry's bytes located and held to the size of the file.
 `zipfile` reads the directory; data of stored entries is read from the file itself, at offsets checked
here.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from repro_gate.trace.artifacts.interface import CHUNK, Unreadable
from repro_gate.trace.artifacts.strided import stream

MAX_DIRECTORY = 8 * 1024 * 1024  # bytes of the central directory; about 100,000 entries
MAX_RATIO = 200  # uncompressed bytes for each byte of the file
FREE_INFLATION = 256 * 1024 * 1024  # uncompressed bytes whatever the size of the file


@dataclass(frozen=True)
class Entry:
    """One file inside the zip. `start` is where its bytes begin, `stored` whether they lie there uncompressed."""

    name: str
    start: int
    size: int
    packed: int
    stored: bool


class _Bounded(io.FileIO):
    """A file that refuses to be read in one large piece: `zipfile` reads the whole directory at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(MAX_DIRECTORY + 1 if size is None or size < 0 else min(size, MAX_DIRECTORY + 1)) or b""
        if len(data) > MAX_DIRECTORY:
            raise Unreadable(f"its zip directory is larger than {MAX_DIRECTORY // 2**20} MiB")
        return data


def entries(file: BinaryIO) -> dict[str, Entry]:
    """Entries by name. Raises Unreadable for what is no zip file, has two entries of one name, or unpacks to far more than its size."""
    size = os.fstat(file.fileno()).st_size
    try:
        with _Bounded(file.fileno(), "rb", closefd=False) as bounded, zipfile.ZipFile(bounded) as archive:
            found = [_located(file, info, size) for info in archive.infolist() if not info.filename.endswith("/")]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OSError, EOFError, OverflowError) as error:
        raise Unreadable(f"it is no readable zip file ({error})") from error
    by_name = {entry.name: entry for entry in found}
    if len(by_name) != len(found):
        raise Unreadable("two of its zip entries have the same name")
    if sum(entry.size for entry in found) > FREE_INFLATION + MAX_RATIO * size:
        raise Unreadable("it unpacks to far more than its size")
    if sum(entry.packed for entry in found) > size:
        raise Unreadable("its zip entries overlap")
    return by_name


def _located(file: BinaryIO, info: zipfile.ZipInfo, size: int) -> Entry:
    """Where the data begins: behind the local header, whose name and extra field may be longer than the directory's."""
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04" or info.flag_bits & 0x41:  # 0x1, 0x40: encrypted
        raise Unreadable(f"its zip entry {info.filename!r} is malformed or encrypted")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    start = info.header_offset + 30 + name_length + extra_length
    stored = info.compress_type == zipfile.ZIP_STORED
    if start + info.compress_size > size or (stored and info.compress_size != info.file_size):
        raise Unreadable(f"its zip entry {info.filename!r} reaches past the end of the file")
    if not stored and info.compress_type != zipfile.ZIP_DEFLATED:
        raise Unreadable(f"its zip entry {info.filename!r} is packed in a way that is not supported")
    return Entry(info.filename, start, info.file_size, info.compress_size, stored)


def unpacked(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    """An entry's bytes, chunk by chunk. Raises Unreadable where they are not exactly as many as the directory says."""
    if entry.stored:
        yield from stream(file, entry.start, entry.size)
        return
    inflate, left = zlib.decompressobj(-15), entry.size
    try:
        for piece in stream(file, entry.start, entry.packed):
            packed = piece
            while packed and not inflate.eof:
                data = inflate.decompress(packed, CHUNK)
                packed = inflate.unconsumed_tail
                left -= len(data)
                if left < 0:
                    raise Unreadable(f"its zip entry {entry.name!r} is larger than it says")
                if data:
                    yield data
    except zlib.error as error:
        raise Unreadable(f"its zip entry {entry.name!r} is damaged") from error
    if left != 0:
        raise Unreadable(f"its zip entry {entry.name!r} has another size than it says")


def whole(file: BinaryIO, entry: Entry, limit: int) -> bytes:
    """An entry's bytes at once. Raises Unreadable above `limit` bytes."""
    if entry.size > limit:
        raise Unreadable(f"its zip entry {entry.name!r} is larger than {limit:,} bytes")
    return b"".join(unpacked(file, entry))
