"""Digests of declared files and folders: listed, read by a thread for each processor, in flat
memory, unless the cache knows them, and made into the one digest that stands for all of them: Repro
Gate's own, or DVC's."""

from __future__ import annotations

import errno
import hashlib
import json
import operator
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from repro_gate.data.cache import DataCache

MAX_FILES = 5_000_000
MAX_FOLDERS = 1_000_000  # each counted as often as a path leads to it
# dvc/ignore.py: the patterns that hold in every repository
_DVC_IGNORES = frozenset({b".git", b".hg", b".dvc"})
Progress = Callable[[int, int], None]  # bytes done, bytes in all
# an absolute path, and the kinds of digest to take
Wanted = tuple[Path, tuple[str, ...]]

SMALL = 1 << 20  # bytes; a smaller file is read sooner than it is looked up

_THREADS = 8
_PIECE = 1 << 20  # bytes
_PROGRESS_EVERY = 0.25  # seconds
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is not waited for


class Identity(NamedTuple):
    """What must stay the same for two readings to be of the same bytes."""

    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int


@dataclass(frozen=True)
class Listing:
    """One file (with an empty name) or all files below a folder, links followed, ordered by the
    bytes of their paths relative to that folder. `linked` are folders that were reached through a
    link."""

    is_folder: bool
    files: Sequence[tuple[bytes, Identity]]
    linked: tuple[bytes, ...] = ()


@dataclass(kw_only=True)
class Reading:
    """What was found at one path: `digests` by kind (`sha256`, `md5`), as a declaration writes
    them, or in `problem` why there are none. While it is read, `by_file` has those of each file, in
    the listing's order."""

    path: Path
    kinds: tuple[str, ...]
    listing: Listing | None = None
    key: str = ""  # the cache's
    digests: dict[str, str] = field(default_factory=dict)
    size: int = 0
    problem: str = ""  # what follows the path in a sentence
    failed: str = ""  # the file that has the problem, relative to the path; empty: the path itself
    by_file: list[list[bytes]] = field(default_factory=list)

    def fail(self, error: OSError) -> None:
        """Keep the first thing that went wrong."""
        if self.problem:
            return
        name = os.fsencode(error.filename or b"").removeprefix(os.fsencode(self.path))
        self.failed = os.fsdecode(name.lstrip(b"/"))
        if isinstance(error, FileNotFoundError):
            self.problem = "does not exist"
        elif error.errno == errno.ESTALE:
            self.problem = "changed while it was read"
        else:
            self.problem = f"cannot be read: {error.strerror or error}"


def read_digests(
    items: Collection[Wanted],
    progress: Progress | None = None,
    cache: DataCache | None = None,
) -> dict[Wanted, Reading]:
    """Return a reading for each path and its kinds of digest."""
    readings = {(path, kinds): Reading(path=path, kinds=kinds) for path, kinds in items}
    read_at = time.time_ns()
    for reading in readings.values():
        try:
            reading.listing = listing = list_files(reading.path)
            reading.size = sum(known.size for _, known in listing.files)
            if cache is not None:
                real = os.path.realpath(reading.path)
                besides = listing.is_folder, real, reading.kinds, listing.linked
                reading.key = digest_of_stats(listing.files, *besides)
                reading.digests = cache.find(reading.key)
        except OSError as error:
            reading.fail(error)
    unread = [reading for reading in readings.values() if not reading.digests]
    _digest_all([reading for reading in unread if reading.listing], progress)
    for reading in unread:
        listed = reading.listing
        if listed is None or reading.problem:
            continue
        for place, kind in enumerate(reading.kinds):
            whole = tree_sha256 if kind == "sha256" else dvc_md5
            of_kind = [digests[place] for digests in reading.by_file]
            reading.digests[kind] = whole(listed, of_kind)
        reading.by_file.clear()
        if cache is not None and (listed.is_folder or reading.size > SMALL):
            changes = [max(known.mtime_ns, known.ctime_ns) for _, known in listed.files]
            newest = max(changes, default=0)
            cache.keep(reading.key, reading.digests, newest=newest, read_at=read_at)
    return readings


def digest_file(
    path: Path | bytes,
    expected: Identity,
    kinds: tuple[str, ...],
    advance: Callable[[int], None] = lambda _: None,
) -> list[bytes]:
    """Return the digests of one regular file, by `kinds`. `expected` is its identity before;
    `advance` is told of the bytes read by and by.

    Raise OSError where it cannot be read, with errno ESTALE where it is not, or no longer, the
    file that `expected` is of.
    """
    hashes = [hashlib.new(kind, usedforsecurity=kind != "md5") for kind in kinds]
    done = 0
    with open(os.open(path, _FLAGS), "rb", buffering=0) as file:
        while done <= expected.size and (piece := file.read(_PIECE)):
            for digest in hashes:
                digest.update(piece)
            done += len(piece)
            advance(len(piece))
        status = os.fstat(file.fileno())
    is_same = stat.S_ISREG(status.st_mode) and identity(status) == expected
    if done != expected.size or not is_same:
        raise OSError(errno.ESTALE, "changed while it was read", path)
    return [digest.digest() for digest in hashes]


def file_sha256(path: Path | bytes) -> str:
    """Return the SHA-256 of a regular file in hex, links followed. Raise OSError, also for what is
    not a regular file (which is not waited for)."""
    return digest_file(path, identity(os.stat(path)), ("sha256",))[0].hex()


def _digest_all(readings: Collection[Reading], progress: Progress | None) -> None:
    """Fill in `by_file`. What cannot be read becomes the reading's problem; an interrupt ends the
    threads at their next piece."""
    jobs = []
    for reading in readings:
        assert reading.listing is not None
        files = reading.listing.files
        reading.by_file = [[]] * len(files)
        jobs += [(reading, at, name, known) for at, (name, known) in enumerate(files)]
    # None that is large is left for the end.
    jobs.sort(key=lambda job: job[-1].size, reverse=True)
    shared = iter(jobs)  # one step of a list's iterator is atomic
    total = sum(reading.size for reading in readings)
    done = 0
    lock = threading.Lock()
    stopped = threading.Event()

    def advance(count: int) -> None:
        nonlocal done
        if stopped.is_set():
            raise InterruptedError  # an OSError: the reading, which nobody will see, has a problem
        with lock:
            done += count

    def work() -> None:
        for reading, at, name, known in shared:
            path = os.fsencode(reading.path) + b"/" * bool(name) + name
            try:
                if not reading.problem:
                    digests = digest_file(path, known, reading.kinds, advance)
                    reading.by_file[at] = digests
            except OSError as error:
                error.filename = path
                reading.fail(error)

    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = {pool.submit(work) for _ in range(min(os.cpu_count() or 1, _THREADS))}
        try:
            while waiting:
                over, waiting = wait(waiting, _PROGRESS_EVERY, FIRST_EXCEPTION)
                for future in over:
                    future.result()
                if progress is not None and waiting:
                    progress(min(done, total), total)
        finally:
            stopped.set()
    if progress is not None:
        progress(total, total)


# ---- what lies below a declared path, and the one digest that stands for all of it


def identity(status: os.stat_result) -> Identity:
    """Return the identity of a file."""
    return Identity._make(getattr(status, f"st_{name}") for name in Identity._fields)


def list_files(root: Path) -> Listing:
    """Return all there is at `root`. Raise OSError: missing, unreadable, neither file nor folder, a
    folder in itself, more than the limits, which a few links to links would reach."""
    status = os.stat(root)
    if stat.S_ISREG(status.st_mode):
        return Listing(is_folder=False, files=[(b"", identity(status))])
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{root} is neither a file nor a folder")
    top = os.fsencode(root) + b"/"
    files = list[tuple[bytes, Identity]]()
    linked = list[bytes]()
    folders = 0
    waiting: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(b"", frozenset())]
    while waiting:
        prefix, above = waiting.pop()
        status = os.stat(top + prefix)
        here = (status.st_dev, status.st_ino)
        if here in above:
            raise OSError(
                f"{os.fsdecode(top + prefix)} leads back to a folder above it"
            )
        folders += 1
        with os.scandir(top + prefix) as found:
            for entry in found:
                name = prefix + entry.name
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    files.append((name, identity(status)))
                elif stat.S_ISDIR(status.st_mode):
                    waiting.append((name + b"/", above | {here}))
                    linked += [name + b"/"] if entry.is_symlink() else []
        if len(files) > MAX_FILES:
            raise OSError(f"more than {MAX_FILES:,} files lie below {root}")
        if folders + len(waiting) > MAX_FOLDERS:
            raise OSError(
                f"more than {MAX_FOLDERS:,} folders lie below {root}, links followed"
            )
    return Listing(is_folder=True, files=sorted(files), linked=tuple(linked))


def digest_of_stats(files: Sequence[tuple[bytes, Identity]], *besides: object) -> str:
    """Return a digest of names and identities, of no contents, and of what else is given."""
    digest = hashlib.sha256(repr(besides).encode())
    for file in files:
        digest.update(repr(file).encode())
    return digest.hexdigest()


def tree_sha256(listing: Listing, digests: Sequence[bytes]) -> str:
    """Return the sha256 that stands for a listing, in hex; `digests` are those of its files.
    `verify_data` says how it is made."""
    if not listing.is_folder:
        return digests[0].hex()
    tree = hashlib.sha256()
    for (name, _), digest in zip(listing.files, digests, strict=True):
        tree.update(digest.hex().encode() + b"  " + name + b"\0")
    return tree.hexdigest()


def dvc_md5(listing: Listing, digests: Sequence[bytes]) -> str:
    """Return the md5 that DVC states for a listing; `digests` are those of its files. For a folder,
    that of a JSON list of `{"md5", "relpath"}` with `.dir` behind it (dvc_data/hashfile/tree.py,
    `Tree.as_bytes` and `digest`).

    DVC does not walk into linked folders, nor into `.git`, `.hg` and `.dvc`. It orders by code
    point, which is the order of UTF-8 bytes: only names that are no UTF-8 move when the text is
    sorted.
    """
    if not listing.is_folder:
        return digests[0].hex()
    files = []
    for (name, _), digest in zip(listing.files, digests, strict=True):
        *folders, last = name.split(b"/")
        ignored = last == b".git" or not _DVC_IGNORES.isdisjoint(folders)
        if not ignored and not name.startswith(listing.linked):
            files.append({"md5": digest.hex(), "relpath": os.fsdecode(name)})
    files.sort(key=operator.itemgetter("relpath"))
    text = json.dumps(files).encode()
    return f"{hashlib.md5(text, usedforsecurity=False).hexdigest()}.dir"
