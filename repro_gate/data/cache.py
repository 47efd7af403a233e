"""What declared data digested to when it was last read, so that bytes that nobody touched are not read again.

A digest is trusted only while size, times, inode and device of the file
(of every file, for a folder) are what they were, and is never kept for one that changed within two seconds before it was read: a later
write could leave the same times (git's rule for a racy index). Whatever is wrong with the cache is a note: the data is then read.
It is no defence against programs of the same user, who can write to the data and to the cache alike.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

MAX_ENTRIES = 50_000  # the ones used longest ago go first
MAX_BYTES = 64 << 20  # of the file; a larger one is not ours
RACY_NS = 2_000_000_000  # file systems with times of whole or even seconds (ext3, FAT) included

_TABLE = "CREATE TABLE IF NOT EXISTS digests (key BLOB PRIMARY KEY, identity BLOB, digest BLOB, proof BLOB, used INTEGER) WITHOUT ROWID"
_LAYOUT = 1  # PRAGMA user_version
_WAIT = 0.2  # seconds for another gate's lock
_PRIVATE = stat.S_IRWXG | stat.S_IRWXO


def default_cache_path(environment: Mapping[str, str]) -> Path | None:
    """`$XDG_CACHE_HOME/repro-gate/data.sqlite3`, or the same below `~/.cache`; None where there is no home."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base, "repro-gate", "data.sqlite3")


class DataCache:
    """An open cache. Use it as a context manager, in one thread. `notes` says why it is not used, where it is not.

    Closing writes what was kept. No method raises for the cache's sake.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._used: set[bytes] = set()
        self._kept: dict[bytes, tuple[bytes, bytes, bytes, bytes]] = {}  # written at the end, so that no other gate waits meanwhile
        try:
            _make_private(path)
            self._connection = _opened(path)
        except (OSError, sqlite3.Error, ValueError) as error:
            self._give_up(error)

    def find(self, kind: str, path: Path, identity: bytes) -> str | None:
        """The digest of this kind that the file or folder at a real path had, if it is still the same one; None: read it."""
        if self._connection is None:
            return None
        key = _key(kind, path)
        try:
            row = self._connection.execute("SELECT identity, digest, proof FROM digests WHERE key = ?", (key,)).fetchone()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            self._give_up(error)
            return None
        if row is None or not all(isinstance(part, bytes) for part in row) or row[0] != identity or row[2] != _proof(key, *row[:2]):
            return None
        self._used.add(key)
        return bytes(row[1]).decode()

    def keep(self, kind: str, path: Path, identity: bytes, digest: str, *, newest: int, read_at: int) -> None:
        """Remember a digest. `newest` is the latest time of change of what was read, `read_at` the time before reading, in nanoseconds."""
        if self._connection is not None and newest <= read_at - RACY_NS:
            key = _key(kind, path)
            self._kept[key] = (key, identity, digest.encode(), _proof(key, identity, digest.encode()))

    def close(self) -> None:
        """Write what was kept and let go of the file. May be called twice."""
        connection = self._connection
        if connection is None:
            return
        now = int(time.time())
        try:
            connection.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?)", ((*row, now) for row in self._kept.values()))
            connection.executemany("UPDATE digests SET used = ? WHERE key = ?", ((now, key) for key in self._used))
            surplus = "DELETE FROM digests WHERE key IN (SELECT key FROM digests ORDER BY used DESC LIMIT -1 OFFSET ?)"
            connection.execute(surplus, (MAX_ENTRIES,))
            connection.commit()
        except sqlite3.Error as error:
            self._give_up(error)
        else:
            self._connection = None
            connection.close()

    def __enter__(self) -> DataCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _give_up(self, error: Exception) -> None:
        """Go on without the cache, and say so once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        self.notes.append(f"the cache of data digests was not used, all data was read ({self.path}: {reason}); delete it to start anew")


def _make_private(path: Path) -> None:
    """Make the folder and the file where they are missing, for this user alone. Raises OSError where they are not, or not to be trusted."""
    folder = path.parent
    os.makedirs(folder.parent, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    _require_private(folder, os.lstat(folder), stat.S_ISDIR, "folder")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for name in (path, Path(f"{path}-journal")):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(name)
            _require_private(name, status, stat.S_ISREG, "regular file")
            if status.st_size > MAX_BYTES:
                raise OSError(f"{name} is larger than {MAX_BYTES >> 20} MiB")


def _require_private(path: Path, status: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    if not is_kind(status.st_mode):
        raise OSError(f"{path} is no {kind}")
    if status.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & _PRIVATE:
        raise OSError(f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o})")
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise OSError(f"{path} has another name somewhere")


def _opened(path: Path) -> sqlite3.Connection:
    """A connection with room for so much and no more. Raises sqlite3.Error for what is not a database, locked or of another layout."""
    connection = sqlite3.connect(path, timeout=_WAIT)
    try:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {MAX_BYTES // size}")
        connection.execute("PRAGMA trusted_schema = OFF")
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if tables - {"digests"} or layout not in ((0, _LAYOUT) if not tables else (_LAYOUT,)):
            raise sqlite3.DatabaseError(f"it has another layout (version {layout})")
        if not tables:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        return connection
    except BaseException:
        connection.close()
        raise


def _key(kind: str, path: Path) -> bytes:
    return kind.encode() + b":" + os.fsencode(path)


def _proof(key: bytes, identity: bytes, digest: bytes) -> bytes:
    """Shows that a row is as it was written: a damaged page must not turn into a digest."""
    return hashlib.sha256(b"".join(len(part).to_bytes(4, "little") + part for part in (key, identity, digest))).digest()[:16]
