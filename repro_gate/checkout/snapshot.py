"""The snapshot: a copy of the checkout, taken once when the gate starts, so that an edit made while
it runs changes nothing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.inspection import Checkout, listed_files
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import copy_file, is_below, make_folder, walk

MANY = 5_000  # files that take seconds to copy and to remove
_NOT_COPIED = frozenset({".git", "__pycache__", "node_modules", ".venv"})
# google-github-actions/auth leaves its in the workspace, for later steps
_CREDENTIALS = re.compile(r"gha-creds-[0-9a-f]+\.json")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A copy of the checkout. `root` is the copy, `source` the checkout's root; `notes` say what
    was left out, and why."""

    root: Path
    source: Path
    files: int
    notes: tuple[str, ...] = ()


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
    workspace links them. `tell` is given a line before many files are copied. Raise UsageError for
    a file that cannot be read, Inconclusive where the copy cannot be written.
    """
    notes: list[str] = list(checkout.notes)
    root = checkout.root
    others = [os.path.realpath(destination), *map(os.path.normpath, leave_out)]
    try:
        names = listed_files(root) if checkout.is_git else list(walk(root, _is_no_code))
    except PermissionError as error:
        raise _not_copied(os.path.relpath(error.filename, root), error) from error
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
            notes.append(
                f"{name} was left out: a step of the job keeps its credential there"
            )
        elif not is_below(path, others):
            copy.take(name)
    copy.finish()
    return Snapshot(root=destination, source=root, files=copy.files, notes=tuple(notes))


@dataclass
class Copy:
    """A copy of files under way: files counted, folders made and checked so far."""

    source: Path
    target: Path
    notes: list[str]
    files: int = 0
    folders: dict[str, bool] = field(default_factory=lambda: {"": True})

    def take(self, name: str) -> None:
        """Copy one file, link or (with a slash behind its name) empty folder, and the folders above
        it."""
        source = self.source / name
        target = self.target / name
        try:
            # Nothing is reached through a link.
            mode = (
                os.lstat(source).st_mode if self._folder(os.path.dirname(name)) else 0
            )
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(source), target)
            elif stat.S_ISREG(mode):
                copy_file(source, target)
            else:
                if mode and not stat.S_ISDIR(mode):
                    self.notes.append(f"{name} was left out: it is no regular file")
                return
        except (FileNotFoundError, NotADirectoryError):
            return  # deleted, and git still tracks it
        except OSError as error:
            raise _not_copied(name, error) from error
        self.files += 1

    def _folder(self, name: str) -> bool:
        """Make a folder and those above it; False where one is a link in the source. Raise
        OSError."""
        absent = []
        while name not in self.folders:
            absent.append(name)
            name = os.path.dirname(name)
        is_folder = self.folders[name]
        for name in reversed(absent):
            is_folder = is_folder and stat.S_ISDIR(os.lstat(self.source / name).st_mode)
            if is_folder:
                (self.target / name).mkdir(mode=0o700)
            self.folders[name] = is_folder
        return is_folder

    def finish(self) -> None:
        """Give folders the modes and times of their originals, the deepest first: writing into one
        would change them."""
        made = (name for name, is_made in self.folders.items() if is_made)
        for name in sorted(made, reverse=True):
            status = os.lstat(self.source / name)
            os.chmod(self.target / name, status.st_mode & 0o777 | stat.S_IRWXU)
            os.utime(self.target / name, ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_no_code(entry: os.DirEntry[str]) -> bool:
    """Return whether a plain folder's copy does without this: what git or a tool made."""
    if not entry.is_dir(follow_symlinks=False):
        return entry.name == ".git"
    is_environment = os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))
    return is_environment or entry.name in _NOT_COPIED


def _not_copied(name: str, error: OSError) -> UsageError | Inconclusive:
    if isinstance(error, PermissionError):
        return UsageError(
            f"{name} cannot be read: {error.strerror}",
            reason_id="workspace/unreadable",
            remedy="make it readable, or let git ignore it if the training does not need it",
        )
    return Inconclusive(
        f"{name} cannot be copied: {error.strerror or error}",
        reason_id="workspace/copy",
        remedy="make room in the temporary folder (TMPDIR) and run again",
    )
