"""The digests of declared paths: listed, looked up in the cache, and read where that does not know them.
 A folder is remembered as a whole, and each of its large files on its own, so that one new file among
many does not cost reading all of them; small ones are read again faster than looked up.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.data.cache import DataCache
from repro_gate.data.hashing import Progress, Work, digest_all
from repro_gate.data.reader import KINDS, SMALL, parts_of, size_in
from repro_gate.data.tree import Listing, dvc_md5, entry_identity, entry_name, list_files, listing_identity, tree_sha256

Wanted = tuple[Path, tuple[str, ...]]  # an absolute path, and the kinds of digest to take


@dataclass
class Reading:
    """What was found at one path: `digests` by kind, as they are written in a declaration, or in `problem` why not."""

    path: Path
    kinds: tuple[str, ...]
    digests: dict[str, str] = field(default_factory=dict)
    size: int = 0
    files: int = 0
    is_folder: bool = False
    cached: bool = False
    problem: str = ""  # what follows the path in a sentence
    failed: str = ""  # the file that has the problem, relative to the path; empty: the path itself

    def fail(self, name: bytes, error: OSError) -> None:
        """Say why there are no digests."""
        self.failed = os.fsdecode(name)
        if isinstance(error, FileNotFoundError):
            self.problem = "does not exist"
        elif error.errno == errno.ESTALE:
            self.problem = "changed while it was read"
        else:
            self.problem = f"cannot be read: {error.strerror or error}"


def read_digests(wanted: Collection[Wanted], progress: Progress | None, cache: DataCache | None) -> dict[Wanted, Reading]:
    """A reading for each wanted path and kinds of digest."""
    readings = {key: Reading(*key) for key in wanted}
    planned = [(reading, work) for reading in readings.values() if (work := _plan(reading, cache)) is not None]
    total = sum(reading.size for reading in readings.values())
    unread = sum(reading.size - _known_bytes(work) for reading, work in planned)
    read_at = time.time_ns()
    digest_all([work for _, work in planned], progress, total - unread, total)
    while planned:
        _finish(*planned.pop(), cache, read_at)
    return readings


def _plan(reading: Reading, cache: DataCache | None) -> Work | None:
    """List what there is; None where nothing has to be read."""
    try:
        listing = list_files(reading.path)
    except OSError as error:
        reading.fail(_below(reading.path, error), error)
        return None
    reading.size, reading.files, reading.is_folder = listing.size, len(listing.entries), listing.is_folder
    if cache is not None and _is_kept(listing):
        real, moved = _real(listing, b""), listing_identity(listing)
        found = {kind: cache.find(_name(listing, kind), real, moved) for kind in reading.kinds}
        if all(digest is not None for digest in found.values()):
            reading.digests = {kind: digest.decode("ascii", "replace") for kind, digest in found.items() if digest is not None}
            reading.cached = True
            return None
    work = Work(listing, reading.kinds)
    if cache is not None and listing.is_folder:
        _recall(work, cache)
    return work


def _recall(work: Work, cache: DataCache) -> None:
    """Take the digests of large files that have not changed from the cache."""
    for number, entry in enumerate(work.listing.entries):
        if size_in(entry_identity(entry)) > SMALL:
            real = _real(work.listing, entry_name(entry))
            found = {kind: _unhexed(cache.find(kind, real, entry_identity(entry))) for kind in work.kinds}
            if all(len(digest) == KINDS[kind] for kind, digest in found.items()):
                work.known.add(number)
                for kind, digest in found.items():
                    work.put(number, kind, digest)


def _finish(reading: Reading, work: Work, cache: DataCache | None, read_at: int) -> None:
    """Make the one digest of each kind, and remember what was read."""
    if work.error is not None:
        reading.fail(work.failed, work.error)
        return
    listing = work.listing
    for kind in reading.kinds:
        digests = work.digests[kind]
        reading.digests[kind] = tree_sha256(listing, digests).hex() if kind == "sha256" else dvc_md5(listing, digests)
    if cache is None or not _is_kept(listing):
        return
    real, moved = _real(listing, b""), listing_identity(listing)
    for kind in reading.kinds:
        text = reading.digests[kind].encode()
        cache.keep(_name(listing, kind), real, moved, text, newest=listing.newest, read_at=read_at)
    if listing.is_folder:
        _remember(work, cache, read_at)


def _remember(work: Work, cache: DataCache, read_at: int) -> None:
    for number, entry in enumerate(work.listing.entries):
        moved = entry_identity(entry)
        if size_in(moved) > SMALL and number not in work.known:
            real = _real(work.listing, entry_name(entry))
            for kind in work.kinds:
                width = KINDS[kind]
                text = work.digests[kind][number * width : (number + 1) * width].hex().encode()
                cache.keep(kind, real, moved, text, newest=max(parts_of(moved)[1:3]), read_at=read_at)


def _is_kept(listing: Listing) -> bool:
    return listing.is_folder or listing.size > SMALL


def _name(listing: Listing, kind: str) -> str:
    """What the cache calls a digest: a folder's is another thing than a file's."""
    return f"folder:{kind}" if listing.is_folder else kind


def _real(listing: Listing, name: bytes) -> Path:
    return Path(os.path.realpath(os.path.join(listing.root, os.fsdecode(name)) if name else listing.root))


def _unhexed(text: bytes | None) -> bytes:
    try:
        return bytes.fromhex((text or b"").decode("ascii"))
    except ValueError:
        return b""


def _known_bytes(work: Work) -> int:
    return sum(size_in(entry_identity(work.listing.entries[number])) for number in work.known)


def _below(path: Path, error: OSError) -> bytes:
    """The file that an error is about, relative to the path."""
    name = os.fsencode(error.filename) if isinstance(error.filename, (str, bytes)) else b""
    return name.removeprefix(os.fsencode(path)).lstrip(b"/")
