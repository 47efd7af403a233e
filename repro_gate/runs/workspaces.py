"""Workspaces: a pristine copy of the snapshot for each run, at the same path but for the varied
run, with declared data linked in."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.snapshot import Copy, Snapshot
from repro_gate.data.declared import data_path
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import make_folder, remove_tree, walk
from repro_gate.runs import variation
from repro_gate.spec.model import DataItem

# bytes of a file that is compared with its original, and moved; larger ones are copied
LARGEST_SPARE = 1024**2


@dataclass(frozen=True)
class Workspace:
    """Where one run takes place. `directory` is the spec's folder inside `root`."""

    root: Path
    directory: Path
    home: Path
    tmp: Path


@dataclass(frozen=True)
class Spare:
    """The workspace at `root` of a run that has ended, and when it began (ns): the next workspace
    takes over the files that it left alone.

    Moved files need not be removed and made anew, which is slow on ext4: it passes over every inode
    that was freed in the last minutes.
    """

    root: Path
    began: int
    _folders: dict[str, bool] = field(default_factory=lambda: {"": True})

    def holds(self, name: str, source: Path) -> bool:
        """Return whether the file `name`, of at most LARGEST_SPARE bytes, is what `source` is:
        nothing of it changed since the run began, and it has the same bytes, whatever a file system
        or a folder that was moved makes of the time."""
        path = os.path.join(self.root, name)
        try:
            old, new = os.lstat(path), os.lstat(source)
            return (
                (stat.S_ISREG(old.st_mode), stat.S_IMODE(old.st_mode), old.st_nlink)
                == (True, new.st_mode & 0o777, 1)
                and old.st_ctime_ns < self.began
                and old.st_size == new.st_size <= LARGEST_SPARE
                and self._is_folder(os.path.dirname(name))
                and _content(path, old.st_size) == _content(source, old.st_size)
            )
        except OSError:
            return False

    def _is_folder(self, name: str) -> bool:
        """Return whether a folder, and each above it, is no link: what lies elsewhere is not
        moved."""
        if name not in self._folders:
            self._folders[name] = self._is_folder(
                os.path.dirname(name)
            ) and stat.S_ISDIR(os.lstat(self.root / name).st_mode)
        return self._folders[name]


def _content(path: str | Path, size: int) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, size + 1)
    finally:
        os.close(handle)


def spare_of(run_folder: Path) -> Spare | None:
    """Return the workspace of the run that has ended in `run_folder`; None if there is none. What
    the gate wrote last tells when it began."""
    for place in (variation.FIRST, variation.SECOND):
        path = run_folder / place.workspace
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                return Spare(path, os.lstat(run_folder / "probe.json").st_ctime_ns)
    return None


class _Refill(Copy):
    """A copy under way that takes what it can from a spare workspace."""

    def __init__(self, source: Path, target: Path, spare: Spare | None) -> None:
        super().__init__(source, target, [])
        self.spare = spare

    def copy_file(self, name: str) -> None:
        """Move the file from the spare workspace, with the times of its original; copy what that
        does not hold."""
        source, target = self.source / name, self.target / name
        if self.spare is None or not self.spare.holds(name, source):
            super().copy_file(name)
            return
        try:
            os.rename(self.spare.root / name, target)
        except OSError:  # a mount
            super().copy_file(name)
            return
        status = os.lstat(source)
        os.utime(
            target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False
        )


def fresh_workspace(
    snapshot: Snapshot,
    run_folder: Path,
    data: Sequence[DataItem],
    spec_dir: Path,
    varied: Collection[str] = (),
    spare: Spare | None = None,
) -> Workspace:
    """Make a pristine `workspace`, an empty HOME (`home`) and TMPDIR (`tmp`) in `run_folder`; what
    stood there is removed. A run that is varied in them has them elsewhere, or files of another
    time. Files that `spare` still holds are moved from there.

    Declared data becomes a link to the original, instead of a copy that came with the snapshot;
    data outside the checkout is given by an absolute path and needs none. Raises UsageError for a
    relative path that leaves the checkout, Inconclusive for data that is not there.
    """
    inside = os.path.relpath(os.path.realpath(spec_dir), snapshot.source)
    if _leaves(inside):
        raise UsageError(
            f"{spec_dir} is not inside the checkout {snapshot.source}",
            reason_id="workspace/spec-outside",
        )
    places = variation.places(varied)
    root = make_folder(run_folder / places.workspace)
    copy = _Refill(snapshot.root, root, spare)
    for name in walk(snapshot.root):
        copy.take(name)
    copy.finish()
    if "file-times" in varied:
        variation.shift_times(root)
    directory = root / inside
    directory.mkdir(parents=True, exist_ok=True)
    for item in data:
        _link(item, snapshot.source, spec_dir, inside, root)
    home, tmp = (
        make_folder(run_folder / places.home),
        make_folder(run_folder / places.tmp),
    )
    return Workspace(root, directory, home, tmp)


def _link(
    item: DataItem, source: Path, spec_dir: Path, inside: str, root: Path
) -> None:
    """Put the link for one item into the workspace, where it needs one."""
    original = data_path(item, Path(os.path.realpath(spec_dir)))
    name = os.path.relpath(original, source)
    if os.path.isabs(item.path):
        name = os.path.relpath(
            os.path.join(os.path.realpath(original.parent), original.name), source
        )
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
        return
    if name == "." or (inside + os.sep).startswith(name + os.sep):
        raise UsageError(
            f"data: {item.path!r} holds the spec itself",
            reason_id="data/path",
            remedy="name the data's own folder",
        )
    link = root
    for part in Path(name).parts[:-1]:
        link = link / part
        # a linked folder, by the checkout or by another item: link the whole of it, never write
        # through it
        if link.is_symlink():
            _relink(link, source / link.relative_to(root))
            return
        if not link.is_dir():
            remove_tree(link)
            link.mkdir()
    _relink(root / name, original)


def _relink(link: Path, original: Path) -> None:
    remove_tree(link)
    link.symlink_to(os.path.realpath(original))


def _leaves(relative: str) -> bool:
    return relative == ".." or relative.startswith(".." + os.sep)
