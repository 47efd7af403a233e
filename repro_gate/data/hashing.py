"""Digests of declared files and folders: read by a thread for each processor, in flat memory,
unless the cache knows them."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.data.cache import DataCache
from repro_gate.data.tree import (
    Listing,
    dvc_md5,
    entry_identity,
    entry_name,
    identity,
    list_files,
    listing_identity,
    size_in,
    tree_sha256,
)

Progress = Callable[[int, int], None]  # bytes done, bytes in all
Wanted = tuple[Path, tuple[str, ...]]  # an absolute path, and the kinds of digest to take

KINDS = {"sha256": 32, "md5": 16}  # digests that can be taken, and their bytes
SMALL = 1 << 20  # bytes; a smaller file is read sooner than it is looked up

_THREADS = 8
_BATCH_FILES = 256
_BATCH_BYTES = 8 << 20
_PIECE = 1 << 20  # bytes
_PROGRESS_EVERY = 0.25  # seconds
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)


@dataclass(kw_only=True)
class Reading:
    """What was found at one path: `digests` by kind, as a declaration writes them, or in `problem`
    why there are none.

    While it is read, `file_digests` has for each kind those of all files, in the listing's order.
    """

    path: Path
    kinds: tuple[str, ...]
    digests: dict[str, str] = field(default_factory=dict)
    size: int = 0
    files: int = 0
    is_folder: bool = False
    cached: bool = False
    problem: str = ""  # what follows the path in a sentence
    failed: str = ""  # the file that has the problem, relative to the path; empty: the path itself
    file_digests: dict[str, bytearray] = field(default_factory=dict)

    def fail(self, name: bytes, error: OSError) -> None:
        """Keep the first thing that went wrong."""
        if self.problem:
            return
        self.failed = os.fsdecode(name)
        if isinstance(error, FileNotFoundError):
            self.problem = "does not exist"
        elif error.errno == errno.ESTALE:
            self.problem = "changed while it was read"
        else:
            self.problem = f"cannot be read: {error.strerror or error}"


def read_digests(
    wanted: Collection[Wanted], progress: Progress | None = None, cache: DataCache | None = None
) -> dict[Wanted, Reading]:
    """A reading for each wanted path and kinds of digest."""
    readings = {(path, kinds): Reading(path=path, kinds=kinds) for path, kinds in wanted}
    unread = [
        (reading, listing)
        for reading in readings.values()
        if (listing := _plan(reading, cache)) is not None
    ]
    read_at = time.time_ns()
    _digest_all(unread, progress, sum(reading.size for reading in readings.values()))
    while unread:
        _finish(*unread.pop(), cache, read_at)
    return readings


def digest_file(
    path: bytes,
    expected: bytes,
    kinds: tuple[str, ...],
    advance: Callable[[int], None] = lambda _: None,
) -> list[bytes]:
    """The digests of one regular file, by `kinds`. `expected` is its identity before; `advance` is
    told of the bytes read by and by.

    Raises OSError where it cannot be read, with errno ESTALE where it is not, or no longer, the
    file that `expected` is of.
    """
    size, done = size_in(expected), 0
    hashes = [hashlib.new(kind, usedforsecurity=kind != "md5") for kind in kinds]
    descriptor = os.open(path, _FLAGS)
    try:
        at_end = False
        while not at_end and done <= size:
            asked = min(_PIECE, size + 1 - done)
            piece = _read(descriptor, asked)
            for digest in hashes:
                digest.update(piece)
            done, at_end = done + len(piece), len(piece) < asked
            advance(len(piece))
        if done != size or identity(os.fstat(descriptor)) != expected:
            raise OSError(errno.ESTALE, "changed while it was read", path)
        return [digest.digest() for digest in hashes]
    finally:
        os.close(descriptor)


def _read(descriptor: int, count: int) -> bytes:
    """Exactly so many bytes, or all up to the end: one read may give less than the file has (a
    network's file system)."""
    data = os.read(descriptor, count)
    while 0 < len(data) < count and (more := os.read(descriptor, count - len(data))):
        data += more
    return data


def _digest_all(
    unread: Collection[tuple[Reading, Listing]], progress: Progress | None, total: int
) -> None:
    """Fill in `file_digests`. What cannot be read becomes the reading's problem; an interrupt ends
    the threads at their next piece."""
    # large files first: none is left for the end
    jobs = sorted(_jobs(unread), key=lambda job: job[-1], reverse=True)
    done, lock, stopped = total - sum(job[-1] for job in jobs), threading.Lock(), threading.Event()

    def advance(count: int) -> None:
        nonlocal done
        if stopped.is_set():
            raise InterruptedError  # an OSError: the reading, which nobody will see, has a problem
        with lock:
            done += count

    def digest(reading: Reading, listing: Listing, first: int, last: int) -> None:
        folder = os.fsencode(listing.root) + (b"/" if listing.is_folder else b"")
        for number in range(first, last):
            if reading.problem:
                return
            entry = listing.entries[number]
            try:
                digests = digest_file(
                    folder + entry_name(entry), entry_identity(entry), reading.kinds, advance
                )
            except OSError as error:
                reading.fail(entry_name(entry), error)
                return
            for kind, value in zip(reading.kinds, digests, strict=True):
                reading.file_digests[kind][number * KINDS[kind] : (number + 1) * KINDS[kind]] = (
                    value
                )

    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with ThreadPoolExecutor(min(processors, _THREADS)) as pool:
        try:
            waiting = {pool.submit(digest, *job[:-1]) for job in jobs}
            while waiting:
                over, waiting = wait(waiting, _PROGRESS_EVERY, FIRST_EXCEPTION)
                for future in over:
                    future.result()
                if progress is not None and waiting:
                    progress(min(done, total), total)
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    if progress is not None:
        progress(total, total)


def _jobs(
    unread: Collection[tuple[Reading, Listing]],
) -> Iterator[tuple[Reading, Listing, int, int, int]]:
    """Files `first` to before `last` of a listing, and their bytes: a few hundred small ones, or a
    large one."""
    for reading, listing in unread:
        first, size = 0, 0
        for number, entry in enumerate(listing.entries):
            own = size_in(entry_identity(entry))
            if number > first and (number - first == _BATCH_FILES or size + own > _BATCH_BYTES):
                yield reading, listing, first, number, size
                first, size = number, 0
            size += own
        yield reading, listing, first, len(listing.entries), size


def _plan(reading: Reading, cache: DataCache | None) -> Listing | None:
    """List what there is; None where nothing has to be read."""
    try:
        listing = list_files(reading.path)
    except OSError as error:
        name = os.fsencode(error.filename) if isinstance(error.filename, str | bytes) else b""
        reading.fail(name.removeprefix(os.fsencode(reading.path)).lstrip(b"/"), error)
        return None
    reading.size, reading.files, reading.is_folder = (
        listing.size,
        len(listing.entries),
        listing.is_folder,
    )
    if cache is not None and _is_kept(listing):
        found = {
            kind: cache.find(*_key(listing, kind), listing_identity(listing))
            for kind in reading.kinds
        }
        if None not in found.values():
            reading.digests, reading.cached = (
                {kind: digest for kind, digest in found.items() if digest is not None},
                True,
            )
            return None
    reading.file_digests = {
        kind: bytearray(KINDS[kind] * len(listing.entries)) for kind in reading.kinds
    }
    return listing


def _finish(reading: Reading, listing: Listing, cache: DataCache | None, read_at: int) -> None:
    """Make the one digest of each kind, and remember what was read."""
    columns, reading.file_digests = reading.file_digests, {}
    if reading.problem:
        return
    for kind in reading.kinds:
        reading.digests[kind] = (
            tree_sha256(listing, columns[kind])
            if kind == "sha256"
            else dvc_md5(listing, columns[kind])
        )
        if cache is None or not _is_kept(listing):
            continue
        found, now = reading.digests[kind], listing_identity(listing)
        cache.keep(*_key(listing, kind), now, found, newest=listing.newest, read_at=read_at)


def _is_kept(listing: Listing) -> bool:
    return listing.is_folder or listing.size > SMALL


def _key(listing: Listing, kind: str) -> tuple[str, Path]:
    """What the cache calls a digest (a folder's is another thing than a file's), and the real path
    that it is of."""
    return f"folder:{kind}" if listing.is_folder else kind, Path(os.path.realpath(listing.root))
