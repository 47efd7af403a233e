"""Pristine copies of the checkout: one snapshot taken when the gate starts, and from it one workspace for each run.

Called by `gate`. The snapshot is what git would see at this moment (`checkout` asks it), so an edit made while the gate runs changes
nothing; a workspace is that snapshot at the same path for every run, with declared data linked in and an empty HOME and TMPDIR.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout import Checkout, inspect_checkout, listed_files
from repro_gate.data.declared import DataFinding, DataState, changed_data, data_path, read_data_state, resolve_data, verify_data
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import copy_file, copy_link, make_folder, remove_tree
from repro_gate.spec.model import DataItem

__all__ = [
    "Checkout",
    "DataFinding",
    "DataState",
    "Snapshot",
    "Workspace",
    "changed_data",
    "data_path",
    "fresh_workspace",
    "inspect_checkout",
    "read_data_state",
    "remove_tree",
    "resolve_data",
    "take_snapshot",
    "verify_data",
]

_NOT_COPIED = {".git": "git folder", "__pycache__": "__pycache__", "node_modules": "node_modules", ".venv": "virtual environment"}
_CREDENTIALS = re.compile(r"gha-creds-[0-9a-f]+\.json")  # google-github-actions/auth leaves its in the workspace, for later steps
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


@dataclass(frozen=True)
class Snapshot:
    """A copy of the checkout. `root` is the copy, `source` the checkout's root; `notes` say what was left out, and why."""

    root: Path
    source: Path
    files: int
    bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workspace:
    """One run's place. `directory` is the folder of the spec, inside `root`; `links` are the places of declared data below `root`."""

    root: Path
    directory: Path
    home: Path
    tmp: Path
    links: tuple[Path, ...] = ()


def take_snapshot(checkout: Checkout, destination: Path, leave_out: Iterable[Path] = ()) -> Snapshot:
    """Copy the checkout's files to `destination`, which is replaced.

    With git: tracked and untracked-not-ignored files, submodules included, no `.git` at all; tracked files that are gone are skipped.
    Without: everything but git folders, `__pycache__`, `node_modules` and virtual environments. Links stay links and are never followed,
    modes and times are kept. `leave_out` are absolute paths (declared data) that need no copy because a workspace links them. Raises
    UsageError for a file that cannot be read, Inconclusive where the copy cannot be written.
    """
    notes: list[str] = list(checkout.notes)
    root, kept = checkout.root, [os.path.realpath(destination), *(os.path.normpath(path) for path in leave_out)]
    names = listed_files(root) if checkout.is_git else _plain_files(root, notes)
    make_folder(destination)
    copy = _Copy(root, destination, notes)
    for name in names:
        path = os.path.join(root, name)
        if _CREDENTIALS.fullmatch(name):
            notes.append(f"{name} was left out: a step of the job keeps its credential there")
        elif not any(path == other or path.startswith(other + os.sep) for other in kept):
            copy.take(name)
    copy.finish()
    return Snapshot(destination, root, copy.files, copy.bytes, tuple(notes))


def fresh_workspace(snapshot: Snapshot, place: Path, data: Sequence[DataItem], spec_dir: Path) -> Workspace:
    """A pristine workspace at `place/"workspace"`, an empty HOME at `place/"home"` and TMPDIR at `place/"tmp"`; what stood there is
    removed.

    Declared data becomes a link to the original, instead of a copy that came with the snapshot; data outside the checkout is given by an
    absolute path and needs none. Raises UsageError for a relative path that leaves the checkout, Inconclusive for data that is not there.
    """
    inside = os.path.relpath(os.path.realpath(spec_dir), snapshot.source)
    if _leaves(inside):
        raise UsageError(f"{spec_dir} is not inside the checkout {snapshot.source}", reason_id="workspace/spec-outside")
    root = make_folder(place / "workspace")
    copy = _Copy(snapshot.root, root, [])
    for name in _walk(os.fspath(snapshot.root), ""):
        copy.take(name)
    copy.finish()
    directory = root / inside
    directory.mkdir(parents=True, exist_ok=True)
    links = [_link(item, snapshot.source, spec_dir, inside, root) for item in data]
    home, tmp = make_folder(place / "home"), make_folder(place / "tmp")
    return Workspace(root, directory, home, tmp, tuple(link for link in links if link is not None))


class _Copy:
    """A copy under way: folders made and checked so far, files counted."""

    def __init__(self, source: Path, target: Path, notes: list[str]) -> None:
        self.source, self.target, self.notes = source, target, notes
        self.files = self.bytes = 0
        self._folders: dict[str, bool] = {"": True}

    def take(self, name: str) -> None:
        """Copy one file, link or (with a slash behind its name) empty folder, and the folders above it."""
        if not self._folder(os.path.dirname(name)) or name.endswith("/"):
            return
        source, target = self.source / name, self.target / name
        try:
            mode = os.lstat(source).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return  # deleted, and git still tracks it
        try:
            if stat.S_ISLNK(mode):
                copy_link(source, target)
            elif stat.S_ISREG(mode):
                self.bytes += copy_file(source, target)
            elif not stat.S_ISDIR(mode):
                self.notes.append(f"{name} was left out: it is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}")
                return
        except OSError as error:
            raise _not_copied(name, source, error) from error
        self.files += not stat.S_ISDIR(mode)

    def _folder(self, name: str) -> bool:
        """Make a folder; False where one above it is a link or gone in the source, so that nothing is reached through it."""
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
        """Give folders the modes and times of their originals, the deepest first: writing into one would change them."""
        for name in sorted((name for name, made in self._folders.items() if made), key=lambda name: -name.count("/") - bool(name)):
            status = os.lstat(self.source / name)
            os.chmod(self.target / name, stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRWXU)
            os.utime(self.target / name, ns=(status.st_atime_ns, status.st_mtime_ns))


def _not_copied(name: str, source: Path, error: OSError) -> UsageError | Inconclusive:
    if isinstance(error, PermissionError) and error.filename in (None, os.fspath(source)):
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


def _plain_files(root: Path, notes: list[str]) -> list[str]:
    """All there is in a folder that git does not manage; what is left out is counted in a note."""
    left_out: Counter[str] = Counter()
    names = list(_walk(os.fspath(root), "", left_out))
    if left_out:
        notes.append("left out: " + ", ".join(f"{count} × {what}" for what, count in sorted(left_out.items())))
    return names


def _walk(root: str, prefix: str, left_out: Counter[str] | None = None) -> Iterator[str]:
    """Paths below `root` relative to it, sorted, folders with a slash behind. `left_out` counts what a plain folder's copy does without."""
    try:
        with os.scandir(os.path.join(root, prefix)) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except PermissionError as error:
        raise _not_copied(prefix, Path(root, prefix), error) from error
    for entry in entries:
        folder = entry.is_dir(follow_symlinks=False)
        if left_out is not None and (what := _NOT_COPIED.get(entry.name) if folder or entry.name == ".git" else None):
            left_out[what] += 1
        elif left_out is not None and folder and os.path.lexists(os.path.join(entry.path, "pyvenv.cfg")):
            left_out["virtual environment"] += 1
        elif folder:
            yield f"{prefix}{entry.name}/"
            yield from _walk(root, f"{prefix}{entry.name}/", left_out)
        else:
            yield prefix + entry.name


def _link(item: DataItem, source: Path, spec_dir: Path, inside: str, root: Path) -> Path | None:
    """Put the link for one item into the workspace; None where it needs none."""
    original = data_path(item, Path(os.path.realpath(spec_dir)))
    name = os.path.relpath(original, source)
    if os.path.isabs(item.path):
        name = os.path.relpath(os.path.join(os.path.realpath(original.parent), original.name), source)
    elif _leaves(name):
        raise UsageError(
            f"data: {item.path!r} leads out of the checkout {source}",
            reason_id="data/outside",
            remedy="give data outside the checkout by its absolute path",
        )
    if not os.path.exists(original):
        raise Inconclusive(
            f"data: {item.path!r} does not exist ({original})",
            reason_id="data/missing",
            remedy="fetch the data before the gate runs, or mend the path",
        )
    if _leaves(name):
        return None
    if name == "." or (inside + os.sep).startswith(name + os.sep):
        raise UsageError(f"data: {item.path!r} holds the spec itself", reason_id="data/path", remedy="name the data's own folder")
    place = root
    for part in Path(name).parts[:-1]:
        place = place / part
        if place.is_symlink():  # a linked folder, by the checkout or by another item: link the whole of it, never write through it
            return _relink(place, source / place.relative_to(root))
        if not place.is_dir():
            remove_tree(place)
            place.mkdir()
    return _relink(root / name, original)


def _relink(place: Path, original: Path) -> Path:
    remove_tree(place)
    place.symlink_to(os.path.realpath(original))
    return place


def _leaves(relative: str) -> bool:
    return relative == ".." or relative.startswith(".." + os.sep)
