"""The snapshot: a copy of the checkout, taken once when the gate starts, so that an edit made while
it runs changes nothing."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.inspection import Checkout, listed_files
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import copy_file, make_folder

MANY = 5_000  # files that take seconds to copy and to remove
_NOT_COPIED = {
    ".git": "git folder",
    "__pycache__": "__pycache__",
    "node_modules": "node_modules",
    ".venv": "virtual environment",
}
# google-github-actions/auth leaves its in the workspace, for later steps
_CREDENTIALS = re.compile(r"gha-creds-[0-9a-f]+\.json")
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


Records = dict[bytes, bytes]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A copy of the checkout. `root` is the copy, `source` the checkout's root; `notes` say what
    was left out, and why. `records` has what the code's digest takes in of a file, by the bytes of
    its path, where that has been read (`baseline.inputs.read_records`)."""

    root: Path
    source: Path
    files: int
    bytes: int
    notes: tuple[str, ...] = ()
    records: Records = field(default_factory=dict, repr=False, compare=False)


def take_snapshot(
    checkout: Checkout,
    destination: Path,
    leave_out: Iterable[Path] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Snapshot:
    """Copy the checkout's files to `destination`, which is replaced.

    With git: tracked and untracked-not-ignored files, submodules included, no `.git` at all;
    tracked files that are gone are skipped. Without: everything but git folders, `__pycache__`,
    `node_modules` and virtual environments. Links stay links and are never followed, modes and
    times are kept. `leave_out` are absolute paths (declared data) that need no copy because a
    workspace links them. `tell` is given a line before many files are copied. Raises UsageError for
    a file that cannot be read, Inconclusive where the copy cannot be written.
    """
    notes: list[str] = list(checkout.notes)
    root, kept = (
        checkout.root,
        [os.path.realpath(destination), *(os.path.normpath(path) for path in leave_out)],
    )
    names = list(listed_files(root)) if checkout.is_git else _plain_files(root, notes)
    if len(names) >= MANY:
        tell(
            f"each run gets a copy of the checkout's {len(names):,} files; folders declared under "
            "`data:` are linked instead"
        )
    make_folder(destination)
    copy = Copy(root, destination, notes)
    for name in names:
        path = os.path.join(root, name)
        if _CREDENTIALS.fullmatch(name):
            notes.append(f"{name} was left out: a step of the job keeps its credential there")
        elif not any(path == other or path.startswith(other + os.sep) for other in kept):
            copy.take(name)
    copy.finish()
    return Snapshot(
        root=destination, source=root, files=copy.files, bytes=copy.bytes, notes=tuple(notes)
    )


class Copy:
    """A copy of files under way: folders made and checked so far, files counted."""

    def __init__(self, source: Path, target: Path, notes: list[str]) -> None:
        self.source, self.target, self.notes = source, target, notes
        self.files = self.bytes = 0
        self._folders: dict[str, bool] = {"": True}

    def take(self, name: str) -> None:
        """Copy one file, link or (with a slash behind its name) empty folder, and the folders above
        it."""
        if not self._folder(os.path.dirname(name)) or name.endswith("/"):
            return
        source, target = self.source / name, self.target / name
        try:
            mode = os.lstat(source).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return  # deleted, and git still tracks it
        try:
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(source), target)
            elif stat.S_ISREG(mode):
                self.bytes += self.copy_file(name)
            elif not stat.S_ISDIR(mode):
                self.notes.append(
                    f"{name} was left out: it is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}"
                )
                return
        except OSError as error:
            raise _not_copied(name, source, error) from error
        self.files += not stat.S_ISDIR(mode)

    def copy_file(self, name: str) -> int:
        """Copy one regular file; return its size in bytes."""
        return copy_file(self.source / name, self.target / name)

    def _folder(self, name: str) -> bool:
        """Make a folder; False where one above it is a link or gone in the source, so that nothing
        is reached through it."""
        known = self._folders.get(name)
        if known is None:
            known = self._folder(os.path.dirname(name))
            if known:
                try:
                    known = stat.S_ISDIR(os.lstat(self.source / name).st_mode)
                except FileNotFoundError:
                    known = False
            if known:
                (self.target / name).mkdir(mode=0o700)
            self._folders[name] = known
        return known

    def finish(self) -> None:
        """Give folders the modes and times of their originals, the deepest first: writing into one
        would change them."""
        for name in sorted(
            (name for name, made in self._folders.items() if made),
            key=lambda name: -name.count("/") - bool(name),
        ):
            status = os.lstat(self.source / name)
            os.chmod(self.target / name, stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRWXU)
            os.utime(self.target / name, ns=(status.st_atime_ns, status.st_mtime_ns))


def _not_copied(name: str, source: Path, error: OSError) -> UsageError | Inconclusive:
    if isinstance(error, PermissionError) and error.filename in (None, os.fspath(source)):
        remedy = "make it readable, or let git ignore it if the training does not need it"
        return UsageError(
            f"{name} cannot be read: {error.strerror}",
            reason_id="workspace/unreadable",
            remedy=remedy,
        )
    remedy = "make room in the temporary folder (TMPDIR) and run again"
    return Inconclusive(
        f"{name} cannot be copied: {error.strerror or error}",
        reason_id="workspace/copy",
        remedy=remedy,
    )


def _plain_files(root: Path, notes: list[str]) -> list[str]:
    """All there is in a folder that git does not manage; what is left out is counted in a note."""
    left_out: Counter[str] = Counter()
    names = list(walk(os.fspath(root), "", left_out))
    if left_out:
        notes.append(
            "left out: "
            + ", ".join(f"{count} × {what}" for what, count in sorted(left_out.items()))
        )
    return names


def walk(root: str, prefix: str, left_out: Counter[str] | None = None) -> Iterator[str]:
    """Paths below `root` relative to it, sorted, folders with a slash behind. `left_out` counts
    what a plain folder's copy does without."""
    try:
        with os.scandir(os.path.join(root, prefix)) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except PermissionError as error:
        raise _not_copied(prefix, Path(root, prefix), error) from error
    for entry in entries:
        folder = entry.is_dir(follow_symlinks=False)
        if left_out is not None and (
            what := _NOT_COPIED.get(entry.name) if folder or entry.name == ".git" else None
        ):
            left_out[what] += 1
        elif (
            left_out is not None
            and folder
            and os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))
        ):
            left_out["virtual environment"] += 1
        elif folder:
            yield f"{prefix}{entry.name}/"
            yield from walk(root, f"{prefix}{entry.name}/", left_out)
        else:
            yield prefix + entry.name
