"""What stands in another commit of the checkout's repository: its spec and lock, and its whole tree as a snapshot that can be trained from.
The export is what a clean checkout of the commit has in its work tree, line ends and encodings included,
because git writes it: with an index of its own, into a folder that is apart from the checkout. Nothing in the repository or in the checkout
is written. The names come from an untrusted tree: what no checkout may hold, or what lies below a file or a link, is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout.git import GitFailed, WorkTree, git
from repro_gate.checkout.inspection import LFS_POINTER, LFS_POINTER_BYTES, is_checkout
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import UsageError, obeyed
from repro_gate.escape import and_more
from repro_gate.files import copy_file, make_folder, scratch_folder

_SUBMODULE, _FOLDER, _LINK, _EXECUTABLE, _PLAIN = "160000", "040000", "120000", "100755", "100644"
_EXPORT_SECONDS = 3600  # to write all files of a tree
_MAX_NOTES = 100
_MAX_PATH = 4096  # bytes of a path in a tree
_FETCH = "fetch what is missing (`git fetch --refetch --no-filter`), or clone without `--filter`"


@dataclass(frozen=True)
class _Entry:
    """One line of a tree. `mode` is one of the five that git writes, or "" for any other."""

    mode: str
    blob: str
    path: str


def commit_of(root: Path, ref: str, option: str) -> str:
    """The commit that `ref` names in the repository at `root`, in hex. Raises UsageError, naming the `option` it came from."""
    try:
        if ref.startswith("-") or not _can_be_asked(ref):
            raise GitFailed("no name of a commit", 1)
        return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip().decode("ascii")
    except GitFailed:
        name = ref.removeprefix("refs/remotes/").removeprefix("origin/")
        raise UsageError(
            f"{option} {ref}: no such commit in {root}",
            remedy=f"fetch it first (`git fetch origin {name}`; in a workflow: actions/checkout with `fetch-depth: 0`)",
            reason_id="usage/ref",
        ) from None


def merge_base(root: Path, commit: str) -> str:
    """Where HEAD left the line of `commit`; `commit` itself where that is not known (a shallow clone)."""
    try:
        return git(root, "merge-base", "HEAD", commit).strip().decode("ascii")
    except GitFailed:
        return commit


def file_at(root: Path, commit: str, path: str, limit: int) -> bytes | None:
    """The bytes of the regular file `path` (relative to `root`) in `commit`, as committed, at most `limit` + 1 of them.

    None where there is none, also for a path that leaves the repository. Raises UsageError where this clone lacks what it takes to know.
    """
    if not _can_be_asked(path) or not _stays_below(path):
        return None
    try:
        entry = next((item for item in _entries(root, commit, path) if item.path == path), None)
        if entry is None or entry.mode not in (_PLAIN, _EXECUTABLE):
            return None
        size = _sizes(root, commit, [entry]).get(entry.blob)
        if size is None or size > limit:
            return None if size is None else b"\0" * (limit + 1)  # too long is all that the caller needs to know
        return git(root, "cat-file", "blob", entry.blob)
    except GitFailed as error:
        raise _unreadable(commit, f"{path} cannot be read", error) from error


def export(root: Path, commit: str, destination: Path, leave_out: Sequence[Path] = ()) -> Snapshot:
    """The tree of `commit` at `destination`, submodules that are initialised included, LFS contents where this clone has them.

    `leave_out` are absolute paths below `root` (declared data) that a workspace links instead. The snapshot's notes name what is not there.
    Raises UsageError for a commit whose files this clone lacks, or that git cannot write.
    """
    out = _Export(make_folder(destination).resolve())
    try:
        out.take(root, commit, "", {os.path.normpath(path) for path in leave_out})
        out.write()
    except GitFailed as error:
        raise _unreadable(commit, "the tree cannot be written as files", error) from error
    more = [and_more(len(out.notes) - _MAX_NOTES, "of the kind")] if len(out.notes) > _MAX_NOTES else []
    return Snapshot(destination, root, out.files, out.bytes, (*out.notes[:_MAX_NOTES], *more))


@dataclass(frozen=True)
class _Part:
    """One repository's share of an export: the files of `commit`, which go below `prefix` ("" or ending in a slash)."""

    root: Path
    commit: str
    prefix: str
    entries: list[_Entry]


class _Export:
    """An export under way: all parts are listed first, so that what would be written through a link of another part is known."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.notes: list[str] = []
        self.files = self.bytes = 0
        self._parts: list[_Part] = []
        self._longest = os.pathconf(destination, "PC_NAME_MAX"), os.pathconf(destination, "PC_PATH_MAX")

    def take(self, root: Path, commit: str, prefix: str, leave_out: set[str]) -> None:
        """List the files of one repository's tree, and of its submodules'."""
        entries: list[_Entry] = []
        self._parts.append(_Part(root, commit, prefix, entries))
        for entry in _entries(root, commit):
            if not entry.mode or not _stays_below(entry.path):
                self._refuse(f"{prefix}{entry.path}", commit)
            elif _is_below(os.path.join(root, entry.path), leave_out):
                continue
            elif entry.mode == _SUBMODULE:
                self._submodule(root / entry.path, entry, f"{prefix}{entry.path}/", leave_out)
            else:
                entries.append(entry)

    def write(self) -> None:
        """Write all that was listed."""
        for part, entries in zip(self._parts, self._clear(), strict=True):
            sizes = _sizes(part.root, part.commit, entries)
            writable = [entry for entry in entries if self._is_writable(part, entry, sizes.get(entry.blob))]
            if writable and self._make_folders(part.prefix):
                self._write(part, writable)

    def _submodule(self, folder: Path, entry: _Entry, prefix: str, leave_out: set[str]) -> None:
        try:
            if os.path.realpath(folder.parent) != os.path.normpath(folder.parent) or not is_checkout(folder):
                raise GitFailed("not initialised", 1)
            git(folder, "cat-file", "-e", f"{entry.blob}^{{commit}}")
        except (GitFailed, OSError):
            self.notes.append(f"submodule {prefix.rstrip('/')} at {entry.blob[:12]} is not in this clone: its files are missing")
            return
        self.take(folder, entry.blob, prefix, leave_out)

    def _clear(self) -> list[list[_Entry]]:
        """Of each part what can be written side by side: each path once, none below another. Files go before links."""
        clear: list[list[_Entry]] = [[] for _ in self._parts]
        files: set[str] = set()
        folders: set[str] = set()
        both = ((part, kept, entry) for part, kept in zip(self._parts, clear, strict=True) for entry in part.entries)
        for part, kept, entry in sorted(both, key=lambda item: item[2].mode == _LINK):
            path = part.prefix + entry.path
            above = list(_above(path))
            if path in files or path in folders:
                self.notes.append(f"{path!r} stands twice in the tree: the second is left out")
            elif any(folder in files for folder in above):
                self.notes.append(f"{path!r} lies below what is not a folder in the tree: it is left out")
            elif self._is_too_long(path):
                self.notes.append(f"{path[:60]!r}… is longer than a path may be here: it is left out")
            else:
                files.add(path)
                folders.update(above)
                kept.append(entry)
        return clear

    def _is_too_long(self, path: str) -> bool:
        name, whole = self._longest
        raw = os.fsencode(path)
        return len(os.fsencode(self.destination)) + 1 + len(raw) >= whole or any(len(part) > name for part in raw.split(b"/"))

    def _is_writable(self, part: _Part, entry: _Entry, size: int | None) -> bool:
        """Whether its object is a file's content, and for a link one that a link can point to."""
        if size is None or (entry.mode == _LINK and not 0 < size < self._longest[1]):
            self._refuse(part.prefix + entry.path, part.commit)
            return False
        return True

    def _make_folders(self, prefix: str) -> bool:
        """Make the folders of a submodule, through no link (a file system may take names for the same that are not)."""
        place = self.destination
        for name in prefix.split("/")[:-1]:
            place = place / name
            if not os.path.lexists(place):
                place.mkdir()
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                self.notes.append(f"{prefix!r} lies below what is not a folder in the tree: it is left out")
                return False
        return True

    def _write(self, part: _Part, entries: list[_Entry]) -> None:
        """Have git write these files, as a checkout would, from an index that holds only them."""
        repository = Path(os.fsdecode(git(part.root, "rev-parse", "--absolute-git-dir").removesuffix(b"\n")))
        with scratch_folder() as scratch, obeyed():
            apart = WorkTree(repository, self.destination / part.prefix, scratch / "index")
            staged = self._stage(part, entries, apart)
            git(part.root, "checkout-index", "--all", "--force", "--quiet", apart=apart, seconds=_EXPORT_SECONDS)
        for entry in staged:
            self._finish(part, entry, apart.folder / entry.path)

    def _stage(self, part: _Part, entries: list[_Entry], apart: WorkTree) -> list[_Entry]:
        """Put them into the index, but for what git ignores because it may not stand there (`git~1`, a link `.gitmodules`)."""
        given = b"".join(f"{entry.mode} blob {entry.blob}\t".encode() + os.fsencode(entry.path) + b"\0" for entry in entries)
        git(part.root, "update-index", "-z", "--index-info", given=given, apart=apart)
        there = {os.fsdecode(path) for path in git(part.root, "ls-files", "-z", apart=apart).split(b"\0")}
        for entry in entries:
            if entry.path not in there:
                self._refuse(part.prefix + entry.path, part.commit)
        return [entry for entry in entries if entry.path in there]

    def _finish(self, part: _Part, entry: _Entry, place: Path) -> None:
        """Count a file that was written; in the place of an LFS pointer put what it points to."""
        try:
            status = os.lstat(place)
        except OSError as error:
            self.notes.append(f"{part.prefix + entry.path!r} was not written: {error.strerror}")
            return
        self.files += 1
        if stat.S_ISREG(status.st_mode):
            self.bytes += self._from_lfs(part, entry, place, status) or status.st_size

    def _from_lfs(self, part: _Part, entry: _Entry, place: Path, status: os.stat_result) -> int | None:
        """Size of the LFS content that now stands at `place`; None where what stands there is no pointer, or its content is not known."""
        if status.st_size > LFS_POINTER_BYTES:
            return None
        content = place.read_bytes()
        pointer = LFS_POINTER.fullmatch(content)
        if pointer is None:
            return None
        oid = pointer[1].decode("ascii")
        try:
            store = Path(os.fsdecode(git(part.root, "rev-parse", "--git-path", "lfs/objects").removesuffix(b"\n")))
            source = part.root / store / oid[:2] / oid[2:4] / oid
            os.stat(source)
            place.unlink()
            size = copy_file(source, place)
            place.chmod(stat.S_IMODE(status.st_mode))
            return size
        except (GitFailed, OSError):
            place.unlink(missing_ok=True)
            place.write_bytes(content)
            place.chmod(stat.S_IMODE(status.st_mode))
            self.notes.append(f"{part.prefix}{entry.path} is an LFS pointer whose content is not in this clone")
            return None

    def _refuse(self, path: str, commit: str) -> None:
        self.notes.append(f"{path!r} in {commit[:12]} is not a path that a checkout may hold: left out")


def _entries(root: Path, commit: str, path: str | None = None) -> Iterator[_Entry]:
    """All files, links and submodules of a commit, or what is at `path`: lines of `mode type object TAB path`. Raises GitFailed."""
    which = ("-r", commit) if path is None else (commit, "--", path)
    for line in git(root, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", *which).split(b"\0"):
        if line:
            about, _, name = line.partition(b"\t")
            fields = about.decode("ascii", "replace").split()
            if len(fields) != 3:
                raise GitFailed(f"git ls-tree said {about[:100]!r}", 0)
            yield _Entry(_mode(fields[0]), fields[2], os.fsdecode(name))


def _mode(mode: str) -> str:
    """Files have had other permissions in old trees; git takes them for one of two."""
    if mode.startswith("100"):
        return _EXECUTABLE if int(mode, 8) & 0o100 else _PLAIN
    return mode if mode in (_SUBMODULE, _FOLDER, _LINK) else ""


def _sizes(root: Path, commit: str, entries: Sequence[_Entry]) -> dict[str, int]:
    """Size in bytes of each object that is a file's content: lines of `object type size`. Raises UsageError where one is not here."""
    paths = {entry.blob: entry.path for entry in entries}
    if not paths:
        return {}
    try:
        said = git(root, "cat-file", "--batch-check", given="".join(f"{blob}\n" for blob in paths).encode())
    except GitFailed as error:  # a partial clone ends at the first that it lacks, since it may not fetch it
        lacking = next((blob for blob in paths if blob in str(error)), None)
        if lacking is None:
            raise
        raise _not_here(commit, paths[lacking]) from error
    lines = [line.split() for line in said.decode("ascii", "replace").splitlines()]
    missing = next((line[0] for line in lines if len(line) == 2 and line[1] == "missing" and line[0] in paths), None)
    if missing is not None:
        raise _not_here(commit, paths[missing])
    if any(len(line) != 3 or line[0] not in paths or not line[2].isdecimal() for line in lines) or len(lines) != len(paths):
        raise GitFailed("git cat-file did not say what the objects are", 0)
    return {blob: int(size) for blob, kind, size in lines if kind == "blob"}


def _not_here(commit: str, path: str) -> UsageError:
    message = f"commit {commit[:12]}: the content of {path!r} is not in this clone"
    return UsageError(message, remedy=_FETCH, reason_id="usage/partial-clone")


def _unreadable(commit: str, what: str, error: GitFailed) -> UsageError:
    said = " ".join(str(error).split())[:300]
    return UsageError(f"commit {commit[:12]}: {what}: {said}", remedy=_FETCH, reason_id="usage/commit")


def _can_be_asked(text: str) -> bool:
    """Whether it can be an argument of a command."""
    try:
        return bool(text) and "\0" not in text and len(os.fsencode(text)) < _MAX_PATH
    except ValueError:
        return False


def _stays_below(path: str) -> bool:
    return not os.path.isabs(path) and not any(part.lower() in ("", ".", "..", ".git") for part in path.split("/"))


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _is_below(path: str, folders: set[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)
