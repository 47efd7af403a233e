"""What declared data digested to when it was last read, so that bytes that nobody touched are not
read again.

A key is a real path and the names, sizes, times, inodes and devices of all its files. Nothing is
kept of data that changed within two seconds before it was read: a later write could leave the same
times (git's rule for a racy index). Whatever is wrong with the cache is a note: the data is then
read. It is no defence against programs of the same user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from repro_gate.files import read_start, replace_file

MAX_ENTRIES = 50_000  # the ones used longest ago go first
MAX_BYTES = 32 << 20  # of the file; a larger one is not ours
RACY_NS = 2_000_000_000  # file systems with times of whole or even seconds (ext3, FAT) included
_Entries = dict[str, dict[str, str]]


class DataCache:
    """An open cache, for one thread. `note` says why it is not used, where it is not. No method
    raises for the cache's sake."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self._entries: _Entries = {}  # the ones used last at the end
        try:
            self._entries = _read(path)
        except (OSError, msgspec.DecodeError) as error:
            self._give_up(error)

    def find(self, key: str) -> dict[str, str]:
        """Return the digests that were kept, by kind; none: read the data."""
        if key in self._entries:
            self._entries[key] = self._entries.pop(key)
        return self._entries.get(key, {})

    def keep(
        self, key: str, digests: dict[str, str], *, newest: int, read_at: int
    ) -> None:
        """Remember digests. `newest` is the latest time of change of what was read, `read_at` the
        time before reading, in nanoseconds."""
        if newest <= read_at - RACY_NS:
            self._entries[key] = digests

    def write(self) -> None:
        """Replace the file: of two gate runs at the same time, the later one's digests stay."""
        if self.note or not self._entries:
            return
        newest = dict(list(self._entries.items())[-MAX_ENTRIES:])
        try:
            replace_file(self.path, msgspec.json.encode(newest))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or error
        self.note = (
            f"the cache of data digests was not used, all data was read ({self.path}: {reason}); "
            "delete it to start anew"
        )


def _read(path: Path) -> _Entries:
    """Return what the file holds; nothing where there is none. Raise OSError or DecodeError where
    it, or its folder, is not to be trusted."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder = os.lstat(path.parent)
    if not stat.S_ISDIR(folder.st_mode) or not _is_private(folder):
        raise OSError(f"{path.parent} is no folder of this user alone")
    if not os.path.lexists(path):
        return {}
    file = os.lstat(path)
    if not stat.S_ISREG(file.st_mode) or not _is_private(file) or file.st_nlink > 1:
        raise OSError("it is no file of this user alone")
    return msgspec.json.decode(read_start(path, MAX_BYTES), type=_Entries)


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (
        stat.S_IRWXG | stat.S_IRWXO
    )
