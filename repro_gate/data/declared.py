"""Declared data: where it lies, whether it is what the spec says, and whether a run wrote to it.
Nothing here changes a byte of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.data.cache import DataCache
from repro_gate.data.hashing import (
    Identity,
    Progress,
    Reading,
    Wanted,
    digest_of_stats,
    list_files,
    read_digests,
)
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Location

# above this many files a fingerprint is only a digest, and a change names the item instead of its
# files
_NAMED_FILES = 10_000


@dataclass(frozen=True, kw_only=True)
class DataFinding:
    """One declared item compared with its digests. `actual` is None, and `problem` says
    why, where it could not be read.

    `expected` and `actual` are sha256; an md5 is read only where one is declared. `source` is where
    the declaration stands.
    """

    path: str
    expected: str | None
    actual: str | None
    size: int = 0  # bytes of all files
    problem: str = ""
    md5_expected: str | None = None
    md5_actual: str | None = None
    source: Location | None = None

    @property
    def declared(self) -> bool:
        """Return whether any digest is declared."""
        return self.expected is not None or self.md5_expected is not None

    @property
    def mismatches(self) -> tuple[str, ...]:
        """Return what is not as declared, or cannot be read, a sentence each."""
        wrong = [self.problem]
        for what, expected, actual in (
            ("sha256", self.expected, self.actual),
            ("md5", self.md5_expected, self.md5_actual),
        ):
            if None not in (expected, actual) and expected != actual:
                wrong.append(f"{self.path}: {what} expected {expected}, found {actual}")
        return tuple(filter(None, wrong))


@dataclass(frozen=True)
class Fingerprint:
    """What `stat` says about one declared item. `files` has each file while there are few
    enough."""

    digest: str
    files: frozenset[tuple[bytes, Identity]] = frozenset()


DataState = Mapping[str, Fingerprint]


def data_path(item: DataItem, spec_dir: Path) -> Path:
    """Return where the item lies: absolute, `..` taken out, links left as they are."""
    return Path(os.path.normpath(spec_dir / item.path))


def resolve_data(items: Sequence[DataItem], spec_dir: Path) -> tuple[Path, ...]:
    """Return the real paths of the declared items, links followed: what a run must not write to."""
    return tuple(Path(os.path.realpath(data_path(item, spec_dir))) for item in items)


def verify_data(
    items: Sequence[DataItem],
    spec_dir: Path,
    *,
    progress: Progress | None = None,
    cache: DataCache | None = None,
) -> tuple[DataFinding, ...]:
    """Return the size and digests of each declared item, beside the declared ones.

    A file's is the sha256 of its bytes. A folder's is the sha256 over one record for each file
    below it, ordered by the bytes of its path relative to the folder: the file's sha256 in hex, two
    spaces, the path, a NUL. Links are followed (a loop is a problem), empty folders do not count.
    The same figure from a shell, in the folder: `find -L . -type f -printf '%P\\0' | LC_ALL=C sort
    -z | xargs -0r sha256sum -z -- | sha256sum`.

    Files are read in pieces, on all processors, but for what the cache knows.
    `progress(bytes done, bytes in all)` is called at most four times a second.
    """
    keys: list[Wanted] = []
    for item in items:
        kinds = ("sha256",) if item.md5 is None else ("sha256", "md5")
        keys.append((data_path(item, spec_dir), kinds))
    readings = read_digests(keys, progress, cache)
    return tuple(map(_finding, items, map(readings.__getitem__, keys)))


def read_data_state(items: Sequence[DataItem], spec_dir: Path) -> DataState:
    """Return a fingerprint of each declared item by its path in the spec: size, time of change and
    inode of every file, no contents."""
    return {item.path: _fingerprint(data_path(item, spec_dir)) for item in items}


def changed_data(before: DataState, after: DataState) -> tuple[str, ...]:
    """Return the declared files that changed, appeared or disappeared from one state to the next:
    their paths as the spec has them, sorted."""
    missing = Fingerprint("")
    changed = list[str]()
    for path in {**before, **after}:
        old = before.get(path, missing)
        new = after.get(path, missing)
        names = {os.fsdecode(name) for name, _ in old.files ^ new.files} or {""}
        if old.digest != new.digest:
            changed += [os.path.join(path, name) if name else path for name in names]
    return tuple(sorted(changed, key=os.fsencode))


def _finding(item: DataItem, reading: Reading) -> DataFinding:
    file = os.path.join(item.path, reading.failed) if reading.failed else item.path
    return DataFinding(
        path=item.path,
        expected=item.sha256,
        actual=reading.digests.get("sha256"),
        size=reading.size,
        problem=reading.problem and f"{file} {reading.problem}",
        md5_expected=item.md5,
        md5_actual=reading.digests.get("md5"),
        source=item.source and Location(*item.source),
    )


def _fingerprint(path: Path) -> Fingerprint:
    try:
        # without the time of change of the inode: a workspace may link the file
        listed = list_files(path).files
        files = [(name, known._replace(ctime_ns=0)) for name, known in listed]
    except OSError as error:
        return Fingerprint(f"unreadable: {error.strerror or error}")
    return Fingerprint(
        digest_of_stats(files),
        frozenset(files) if len(files) <= _NAMED_FILES else frozenset(),
    )
