"""Reads files and digests them: a large one in pieces, or a batch of small ones in one go.
So this file imports the standard library and nothing of the package.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

KINDS = {"sha256": 32, "md5": 16, "md5-dos2unix": 16}  # digests that can be taken, and their bytes
IDENTITY_BYTES = 40
SMALL = 1 << 20  # bytes; a file up to this size is read in one go
LENGTH = struct.Struct("<I")

_IDENTITY = struct.Struct("<5Q")
_WORD = (1 << 64) - 1
_PIECE = 256 * 1024  # bytes; stays in a core's own cache, which a larger one does not
_LEGACY_PIECE = 1 << 20  # bytes; DVC's own, since a line end that falls between two pieces is left as it is
_LEGACY_TEXT = bytes(range(32, 127)) + b"\n\r\t\f\b"  # dvc_data/hashfile/istextfile.py
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)


def identity(status: os.stat_result) -> bytes:
    """What must not move for two readings to be of the same bytes: size, times of change of contents and inode, inode, device."""
    return _IDENTITY.pack(
        status.st_size & _WORD, status.st_mtime_ns & _WORD, status.st_ctime_ns & _WORD, status.st_ino & _WORD, status.st_dev & _WORD
    )


def size_in(found: bytes) -> int:
    """The size in bytes that an identity holds."""
    return int(_IDENTITY.unpack(found)[0])


def parts_of(found: bytes) -> tuple[int, int, int, int, int]:
    """An identity's size, times of change of contents and inode in nanoseconds since 1970 (one before that as a far later one), inode and
    device."""
    size, contents, inode_change, inode, device = _IDENTITY.unpack(found)
    return size, contents, inode_change, inode, device


def digest_file(path: bytes, expected: bytes, kinds: tuple[str, ...], advance: Callable[[int], None] | None = None) -> list[bytes]:
    """The digests of one regular file, by `kinds`. `expected` is its identity before; `advance` is told of the bytes read by and by.

    Raises OSError where it cannot be read, with errno ESTALE where it is not, or no longer, the file that `expected` is of.
    """
    size = size_in(expected)
    descriptor = os.open(path, _FLAGS)
    try:
        if size <= SMALL:
            data = os.read(descriptor, size + 1)
            if len(data) < size:
                data += _rest(descriptor, size + 1 - len(data))
            count, found = len(data), _digests(data, kinds)
        else:
            count, found = _streamed(descriptor, size, kinds, advance or _nobody)
        if count != size or identity(os.fstat(descriptor)) != expected:
            raise OSError(errno.ESTALE, "changed while it was read", path)
        return found
    finally:
        os.close(descriptor)


def digest_batch(request: bytes) -> tuple[bytes, bytes]:
    """The digests of a batch of files, one after the other, and what went wrong with the first that failed.

    A request is the kinds (a comma between), NUL, the folder with its slash, NUL, and for each file its name, NUL and identity. What went
    wrong is empty, or the errno in decimal, NUL, the name, NUL, the reason.
    """
    kinds_text, root, files = request.split(b"\0", 2)
    kinds = tuple(kinds_text.decode("ascii").split(","))
    found, at = list[bytes](), 0
    while at < len(files):
        end = files.index(b"\0", at)
        name, at = files[at:end], end + 1 + IDENTITY_BYTES
        try:
            found += digest_file(root + name, files[end + 1 : at], kinds)
        except OSError as error:
            reason = os.fsencode(error.strerror or str(error))
            return b"".join(found), b"%d\0%b\0%b" % (error.errno or 0, name, reason)
    return b"".join(found), b""


def _rest(descriptor: int, size: int) -> bytes:
    """What more there is, up to `size` bytes: one read may give less than the file has (a network's file system)."""
    pieces = list[bytes]()
    while size > 0 and (piece := os.read(descriptor, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _digests(data: bytes, kinds: tuple[str, ...]) -> list[bytes]:
    if kinds == ("sha256",):
        return [hashlib.sha256(data).digest()]
    text = data.replace(b"\r\n", b"\n") if "md5-dos2unix" in kinds and _is_text(data) else data
    return [
        hashlib.sha256(data).digest() if kind == "sha256" else hashlib.md5(data if kind == "md5" else text, usedforsecurity=False).digest()
        for kind in kinds
    ]


def _streamed(descriptor: int, size: int, kinds: tuple[str, ...], advance: Callable[[int], None]) -> tuple[int, list[bytes]]:
    hashes: list[Any] = [hashlib.sha256() if kind == "sha256" else hashlib.md5(usedforsecurity=False) for kind in kinds]
    with contextlib.suppress(AttributeError, OSError):  # a hint: not on macOS, and not for what is not a file
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    legacy = "md5-dos2unix" in kinds
    buffer = memoryview(bytearray(_LEGACY_PIECE if legacy else _PIECE))
    done, text = 0, False
    with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        while done <= size and (count := _fill(file, buffer, whole=legacy)):
            piece = buffer[:count]
            if legacy and not done:
                text = _is_text(bytes(piece[:512]))
            for kind, digest in zip(kinds, hashes, strict=True):
                digest.update(bytes(piece).replace(b"\r\n", b"\n") if text and kind == "md5-dos2unix" else piece)
            done += count
            advance(count)
    return done, [digest.digest() for digest in hashes]


def _fill(file: Any, buffer: memoryview, *, whole: bool) -> int:
    """Read into the buffer: what one read gives, or (`whole`) until it is full or the file ends. Returns the number of bytes."""
    count = int(file.readinto(buffer) or 0)
    while whole and count < len(buffer) and (more := int(file.readinto(buffer[count:]) or 0)):
        count += more
    return count


def _is_text(data: bytes) -> bool:
    """DVC's guess before version 3, from a file's first 512 bytes: no NUL, and at most 30 % that is no ASCII text."""
    block = data[:512]
    return not block or (b"\0" not in block and len(block.translate(None, _LEGACY_TEXT)) / len(block) <= 0.30)


def _nobody(_: int) -> None:
    """Nobody asked for progress."""


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are none. Each message is its length and its bytes; an answer is the digests, then what went wrong."""
    while len(header := requests.read(LENGTH.size)) == LENGTH.size:
        answers.writelines(LENGTH.pack(len(part)) + part for part in digest_batch(requests.read(LENGTH.unpack(header)[0])))
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
