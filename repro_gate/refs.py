"""What stands in another commit of the checkout's repository: its spec and lock, and its whole tree as a snapshot that can be trained from.

Called by `base` and `against`. Nothing is checked out or written in the repository; names come from a tree that a stranger made, so each is
held to staying below the destination, and links are made last, so that no file is written through one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout import LFS_POINTER, LFS_POINTER_BYTES, is_checkout
from repro_gate.errors import UsageError
from repro_gate.files import copy_file, make_folder
from repro_gate.git import GitFailed, git
from repro_gate.workspace import Snapshot

_SUBMODULE, _LINK, _EXECUTABLE = "160000", "120000", "100755"
_BATCH_BYTES = 64 * 1024 * 1024  # of blobs that are held at a time


@dataclass(frozen=True)
class _Entry:
    """One line of a tree: `size` in bytes, None for a submodule."""

    mode: str
    blob: str
    size: int | None
    path: str


def commit_of(root: Path, ref: str, option: str) -> str:
    """The commit that `ref` names in the repository at `root`, in hex. Raises UsageError, naming the `option` it came from."""
    try:
        if ref.startswith("-") or not ref or "\0" in ref:
            raise GitFailed("no name of a commit", 1)
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip().decode("ascii")
    except GitFailed:
        raise UsageError(
            f"{option} {ref}: no such commit in {root}",
            remedy=f"fetch it first (`git fetch origin {ref}`; in a workflow: actions/checkout with `fetch-depth: 0`)",
            reason_id="usage/ref",
        ) from None


def merge_base(root: Path, commit: str) -> str:
    """Where HEAD left the line of `commit`; `commit` itself where that is not known (a shallow clone)."""
    try:
        return git(root, "merge-base", "HEAD", commit).strip().decode("ascii")
    except GitFailed:
        return commit


def file_at(root: Path, commit: str, path: str, limit: int) -> bytes | None:
    """The bytes of the regular file `path` (relative to `root`) in `commit`, at most `limit` + 1 of them; None where there is none."""
    entry = next((item for item in _entries(root, commit, path) if item.path == path), None)
    if entry is None or entry.size is None or entry.mode == _LINK:
        return None
    if entry.size > limit:
        return b"\0" * (limit + 1)  # too long is all that the caller needs to know
    return git(root, "cat-file", "blob", entry.blob)


def export(root: Path, commit: str, destination: Path, leave_out: Sequence[Path] = ()) -> Snapshot:
    """The tree of `commit` at `destination`, submodules that are initialised included, LFS contents where this clone has them.

    `leave_out` are absolute paths below `root` (declared data) that a workspace links instead. The snapshot's notes name what is not there.
    """
    make_folder(destination)
    out = _Export(destination, [])
    out.take(root, commit, "", {os.path.normpath(path) for path in leave_out})
    out.make_links()
    return Snapshot(destination, root, out.files, out.bytes, tuple(out.notes))


class _Export:
    """An export under way."""

    def __init__(self, destination: Path, notes: list[str]) -> None:
        self.destination, self.notes = destination, notes
        self.files = self.bytes = 0
        self._links: list[tuple[str, bytes]] = []

    def take(self, root: Path, commit: str, prefix: str, leave_out: set[str]) -> None:
        """Write the files of one repository's tree below `prefix`."""
        wanted = []
        for entry in _entries(root, commit):
            if not _stays_below(entry.path):
                self.notes.append(f"{prefix}{entry.path!r} in {commit[:12]} is no path that a checkout may hold: left out")
            elif entry.size is None:
                self._submodule(root / entry.path, entry, f"{prefix}{entry.path}/", leave_out)
            elif not _is_below(os.path.join(root, entry.path), leave_out):
                wanted.append(entry)
        for batch in _batches(wanted):
            contents = _contents(root, [item.blob for item in batch])
            for entry in batch:
                self._write(root, entry, prefix, contents[entry.blob])

    def make_links(self) -> None:
        """Links come last: nothing is written through one of them."""
        for path, target in self._links:
            place = self.destination / path
            try:
                _make_folder_above(place)
                os.symlink(target, os.fsencode(place))
            except FileExistsError:
                self._twice(path)
            else:
                self.files += 1

    def _submodule(self, folder: Path, entry: _Entry, prefix: str, leave_out: set[str]) -> None:
        try:
            if not is_checkout(folder):
                raise GitFailed("not initialised", 1)
            git(folder, "cat-file", "-e", f"{entry.blob}^{{commit}}")
        except (GitFailed, OSError):
            self.notes.append(f"submodule {prefix.rstrip('/')} at {entry.blob[:12]} is not in this clone: its files are missing")
            return
        self.take(folder, entry.blob, prefix, leave_out)

    def _write(self, root: Path, entry: _Entry, prefix: str, content: bytes) -> None:
        path = prefix + entry.path
        if entry.mode == _LINK:
            self._links.append((path, content))
            return
        place = self.destination / path
        _make_folder_above(place)
        if os.path.lexists(place):
            self._twice(path)
            return
        pointer = LFS_POINTER.fullmatch(content) if len(content) <= LFS_POINTER_BYTES else None
        if pointer is not None and self._from_lfs(root, pointer[1].decode("ascii"), place, path):
            self.bytes += int(pointer[2])
        else:
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(content)
            self.bytes += len(content)
        if entry.mode == _EXECUTABLE:
            place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o111)
        self.files += 1

    def _twice(self, path: str) -> None:
        self.notes.append(f"{path!r} stands twice in the tree: the second is left out")

    def _from_lfs(self, root: Path, oid: str, place: Path, path: str) -> bool:
        try:
            store = Path(os.fsdecode(git(root, "rev-parse", "--git-path", "lfs/objects").removesuffix(b"\n")))
            copy_file(root / store / oid[:2] / oid[2:4] / oid, place)
        except (GitFailed, OSError):
            self.notes.append(f"{path} is an LFS pointer whose content is not in this clone")
            return False
        return True


def _make_folder_above(place: Path) -> None:
    """The folders that `place` lies in; they are made by the export itself, so none of them is a link."""
    place.parent.mkdir(parents=True, exist_ok=True)


def _entries(root: Path, commit: str, *paths: str) -> Iterator[_Entry]:
    """`ls-tree -r -l -z`: `mode type blob size TAB path`, a submodule's size being `-`."""
    listing = git(root, "--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *paths)
    for line in listing.split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, kind, blob, size = about.decode("ascii").split()
            yield _Entry(mode, blob, int(size) if kind == "blob" else None, os.fsdecode(path))


def _batches(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    batch: list[_Entry] = []
    held = 0
    for entry in entries:
        batch.append(entry)
        held += entry.size or 0
        if held > _BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _contents(root: Path, blobs: Sequence[str]) -> dict[str, bytes]:
    """Blob -> bytes, from `cat-file --batch`: `blob type size LF content LF`, again and again."""
    names = list(dict.fromkeys(blobs))
    output = git(root, "cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode())
    found: dict[str, bytes] = {}
    at = 0
    for name in names:
        head_end = output.index(b"\n", at)
        size = int(output[at:head_end].split(b" ")[2])
        found[name] = output[head_end + 1 : head_end + 1 + size]
        at = head_end + 1 + size + 1
    return found


def _stays_below(path: str) -> bool:
    return not os.path.isabs(path) and not any(part.lower() in ("", ".", "..", ".git") for part in path.split("/"))


def _is_below(path: str, folders: set[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)
