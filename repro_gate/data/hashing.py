"""Digests of all files of several listings, on all processors, in flat memory.
 Large files are read by threads (hashing releases the interpreter's lock); small ones cost more interpreter than
hashing, so from a few thousand on, one thread keeps them to itself and up to two others hand them to child processes that run
`reader`. A child is a fresh program (never a fork of this one); where none can be started, the work is done here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from repro_gate.data import reader
from repro_gate.data.reader import KINDS, LENGTH, SMALL, digest_batch, digest_file, size_in
from repro_gate.data.tree import Listing, entry_identity, entry_name

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_THREADS = 8  # reading large files
_CHILDREN = 2  # each takes 12 MB; with the gate's own process all stays below 64 MiB
_MANY_FILES, _MANY_BYTES = 4_000, 128 << 20  # small files from which a child's start is worth its 20 ms
_BATCH_FILES = 256
_BATCH_BYTES = 8 << 20
_TOLD_EVERY = 0.25  # seconds between two calls of `progress`
_STUCK = 5.0  # seconds that a child gets to end after its input was closed


@dataclass
class Work:
    """One listing to be digested. `digests` has, for each kind, those of all files in the order of the listing; `known` are the files whose
    digests are there already. `error` and `failed` (the file, relative to the listing's root) say why they are not complete."""

    listing: Listing
    kinds: tuple[str, ...]
    digests: dict[str, bytearray] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    error: OSError | None = None
    failed: bytes = b""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            self.digests.setdefault(kind, bytearray(KINDS[kind] * len(self.listing.entries)))

    def put(self, number: int, kind: str, digest: bytes) -> None:
        """Keep the digest of one file."""
        width = KINDS[kind]
        self.digests[kind][number * width : (number + 1) * width] = digest

    def fail(self, name: bytes, error: OSError) -> None:
        """Keep the first thing that went wrong."""
        if self.error is None:
            self.failed, self.error = name, error


@dataclass(frozen=True)
class _Job:
    """One large file, or a run of small ones: entries `first` to before `last` of a listing."""

    work: Work
    first: int
    last: int
    size: int
    is_large: bool = False


def digest_all(works: Sequence[Work], progress: Progress | None = None, done: int = 0, total: int = 0) -> None:
    """Fill in the digests of all works. `progress` is called, at most four times a second and at the end; `done` bytes are there already.

    What cannot be read becomes the work's `error`. An interrupt ends the threads and children at once.
    """
    hashing = _Hashing(works, done)
    threads = [threading.Thread(target=hashing.run, args=(number,), daemon=True) for number in range(_parallel(works))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_TOLD_EVERY)
                if progress is not None and thread.is_alive():
                    progress(min(hashing.done, total), total)
    except BaseException:
        hashing.stop()
        raise
    if hashing.error is not None:
        raise hashing.error
    if progress is not None:
        progress(total, total)


class _Hashing:
    """One hashing under way: the jobs that are left, the bytes done, the children at work."""

    def __init__(self, works: Sequence[Work], done: int) -> None:
        small = [(job.last - job.first, job.size) for job in _small(works)]
        self._with_children = sum(count for count, _ in small) >= _MANY_FILES or sum(size for _, size in small) >= _MANY_BYTES
        self._large, self._small = _large(works), _small(works)
        self._lock, self._children, self._stopped = threading.Lock(), list[_Child](), False
        self.done = done
        self.error: BaseException | None = None

    def run(self, number: int) -> None:
        """What each thread does. The first keeps small files to itself, the next ones have a child for them, the rest leave them alone."""
        child = _Child() if self._with_children and 0 < number <= _CHILDREN else None
        with self._lock:
            self._children += [child] if child else []
        try:
            while (job := self._next(takes_small=number == 0 or child is not None)) is not None:
                if job.work.error is None:
                    self._do(job, child)
        except BaseException as error:  # noqa: BLE001  handed to the caller's thread
            self.error = self.error or error
            self._stopped = True
        finally:
            if child is not None:
                child.close()

    def stop(self) -> None:
        """Let every thread end at its next piece, and end the children."""
        self._stopped = True
        with self._lock:
            for child in self._children:
                child.kill()

    def _next(self, *, takes_small: bool) -> _Job | None:
        with self._lock:
            if self._stopped:
                return None
            return next(self._large, None) or (next(self._small, None) if takes_small else None)

    def _do(self, job: _Job, child: _Child | None) -> None:
        if job.is_large:
            self._do_large(job.work, job.first)
            return
        work, entries = job.work, job.work.listing.entries
        request = ",".join(work.kinds).encode() + b"\0" + _folder(work.listing) + b"\0" + b"".join(entries[job.first : job.last])
        found, wrong = digest_batch(request) if child is None else child.ask(request)
        if wrong:
            number, name, reason = wrong.split(b"\0", 2)
            work.fail(name, OSError(int(number), os.fsdecode(reason)))
        else:
            _keep(job, found)
            self._advance(job.size)

    def _do_large(self, work: Work, number: int) -> None:
        name, expected = entry_name(work.listing.entries[number]), entry_identity(work.listing.entries[number])
        try:
            digests = digest_file(_folder(work.listing) + name, expected, work.kinds, self._advance)
        except OSError as error:
            work.fail(name, error)
        else:
            for kind, digest in zip(work.kinds, digests, strict=True):
                work.put(number, kind, digest)

    def _advance(self, count: int) -> None:
        if self._stopped:
            raise _Stopped
        with self._lock:
            self.done += count


def _parallel(works: Sequence[Work]) -> int:
    """How many threads there is work for."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sum(1 for _ in itertools.islice(itertools.chain(_large(works), _small(works)), min(processors, _THREADS)))


def _large(works: Sequence[Work]) -> Iterator[_Job]:
    """A job for each file that is read in pieces. Jobs are made as they are asked for: there may be millions."""
    for work in works:
        for number, entry in enumerate(work.listing.entries):
            size = size_in(entry_identity(entry))
            if size > SMALL and number not in work.known:
                yield _Job(work, number, number + 1, size, True)


def _small(works: Sequence[Work]) -> Iterator[_Job]:
    """The other files, a few hundred to a job."""
    for work in works:
        first, size = 0, 0
        for number, entry in enumerate(work.listing.entries):
            own = size_in(entry_identity(entry))
            apart = own > SMALL or number in work.known
            if apart or number - first == _BATCH_FILES or size + own > _BATCH_BYTES:
                if number > first:
                    yield _Job(work, first, number, size)
                first, size = number + apart, 0
            size += 0 if apart else own
        if len(work.listing.entries) > first:
            yield _Job(work, first, len(work.listing.entries), size)


class _Stopped(Exception):
    """Somebody interrupted the hashing."""


class _Child:
    """One child process that digests batches. Where it cannot be started, or ends before its time, the batch is digested here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError, ValueError):  # no interpreter to start (an embedded one), or no process left: done here, then
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", reader.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
            )

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """What `digest_batch` answers."""
        if self._process is not None and self._process.stdin is not None and self._process.stdout is not None:
            try:
                self._process.stdin.write(LENGTH.pack(len(request)) + request)
                self._process.stdin.flush()
                return _message(self._process.stdout), _message(self._process.stdout)
            except (OSError, EOFError):
                self.close()
        return digest_batch(request)

    def kill(self) -> None:
        """End the child at once."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Let the child end, and wait for it."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # it ended before it had read all
                if stream is not None:
                    stream.close()
        try:
            process.wait(_STUCK)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _message(stream: IO[bytes]) -> bytes:
    header = stream.read(LENGTH.size)
    length = LENGTH.unpack(header)[0] if len(header) == LENGTH.size else -1
    body = stream.read(length) if length >= 0 else b""
    if len(body) != length:
        raise EOFError("the child ended")
    return body


def _keep(job: _Job, found: bytes) -> None:
    """Sort the digests of a batch, which come file by file, by kind."""
    kinds = job.work.kinds
    step = sum(KINDS[kind] for kind in kinds)
    offset = 0
    for kind in kinds:
        width = KINDS[kind]
        column = b"".join(found[at : at + width] for at in range(offset, len(found), step)) if len(kinds) > 1 else found
        job.work.digests[kind][job.first * width : job.last * width] = column
        offset += width


def _folder(listing: Listing) -> bytes:
    """What goes before an entry's name: the folder with its slash, or the path of the one file."""
    return os.fsencode(listing.root) + (b"/" if listing.is_folder else b"")
