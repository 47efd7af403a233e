"""What declared data digested to when it was last read, so that bytes that nobody touched are not
read again.

A digest is trusted only while size, times, inode and device of the file (of every file, for a
folder) are what they were, and is never kept for one that changed within two seconds before it was
read: a later write could leave the same times (git's rule for a racy index). Whatever is wrong with
the cache is a note: the data is then read. It is no defence against programs of the same user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from repro_gate.files import NotRegular, cache_folder, read_start, replace_file

MAX_ENTRIES = 50_000  # the ones used longest ago go first
MAX_BYTES = 32 << 20  # of the file; a larger one is not ours
RACY_NS = 2_000_000_000  # file systems with times of whole or even seconds (ext3, FAT) included
_HEADER = b"repro-gate data digests 1 sha256:"


def default_cache_path(environment: Mapping[str, str]) -> Path | None:
    """`$XDG_CACHE_HOME/repro-gate/data.json`, or the same below `~/.cache`; None where there is no
    home."""
    folder = cache_folder(environment)
    return None if folder is None else folder / "data.json"


class DataCache:
    """An open cache. Use it as a context manager, in one thread. `notes` says why it is not used,
    where it is not.

    Closing replaces the file: of two gate runs at the same time, the later one's digests stay. No
    method raises for the cache's sake.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._entries: dict[
            str, list[str]
        ] = {}  # key -> identity in hex, digest; the ones used last at the end
        self._used = False
        try:
            self._entries = _read(path)
        except (OSError, ValueError, RecursionError) as error:
            self._give_up(error)

    def find(self, kind: str, path: Path, identity: bytes) -> str | None:
        """The digest of this kind that the file or folder at a real path had, if it is still the
        same one; None: read it."""
        key = f"{kind}:{path}"
        known, digest = self._entries.get(key, ("", ""))
        if known != identity.hex():
            return None
        self._entries[key], self._used = self._entries.pop(key), True
        return digest

    def keep(
        self, kind: str, path: Path, identity: bytes, digest: str, *, newest: int, read_at: int
    ) -> None:
        """Remember a digest. `newest` is the latest time of change of what was read, `read_at` the
        time before reading, in nanoseconds."""
        if newest <= read_at - RACY_NS:
            self._entries.pop(f"{kind}:{path}", None)
            self._entries[f"{kind}:{path}"], self._used = [identity.hex(), digest], True

    def __enter__(self) -> DataCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what was kept."""
        if not self._used or self.notes:
            return
        body = json.dumps(dict(list(self._entries.items())[-MAX_ENTRIES:])).encode()
        try:
            replace_file(
                self.path, _HEADER + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
            )
        except OSError as refused:
            self._give_up(refused)

    def _give_up(self, error: Exception) -> None:
        """Go on without the cache, and say so."""
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        self.notes.append(
            f"the cache of data digests was not used, all data was read ({self.path}: {reason}); "
            "delete it to start anew"
        )


def _read(path: Path) -> dict[str, list[str]]:
    """What the file holds; nothing where there is none. Raises OSError or ValueError where it, or
    its folder, is not to be trusted."""
    os.makedirs(path.parent.parent, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path.parent, 0o700)
    _require_private(path.parent, "folder")
    if not os.path.lexists(path):
        return {}
    _require_private(path, "regular file")
    try:
        content = read_start(path, MAX_BYTES + 1)
    except NotRegular:
        raise OSError(f"{path} is no regular file") from None
    header, _, body = content.partition(b"\n")
    if len(content) > MAX_BYTES or header != _HEADER + hashlib.sha256(body).hexdigest().encode():
        raise ValueError("it is damaged, or of another version")
    entries: dict[str, list[str]] = json.loads(body)
    return entries


def _require_private(path: Path, kind: str) -> None:
    status = os.lstat(path)
    if not (stat.S_ISDIR if kind == "folder" else stat.S_ISREG)(status.st_mode):
        raise OSError(f"{path} is no {kind}")
    if status.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OSError(f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o})")
    if kind != "folder" and status.st_nlink > 1:
        raise OSError(f"{path} has another name somewhere")
