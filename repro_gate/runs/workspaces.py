"""The folder of a gate run, and workspaces in it: a pristine copy of the snapshot for each run, at
the same path but for the varied run, with declared data linked in."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.snapshot import Copy, Snapshot
from repro_gate.data.declared import data_path
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import make_folder, remove_tree, walk
from repro_gate.runs import variation
from repro_gate.sandbox.identity import Sandbox, let_group_pass
from repro_gate.spec.model import DataItem, Spec

# bytes of a file that is compared with its original, and moved; larger ones are copied
LARGEST_SPARE = 1024**2


@dataclass(frozen=True)
class Original:
    """The checkout that the workspaces are copies of. `ignored` are its modules, and whole folders,
    that git ignores; `projects` the canonical names of the distributions that it makes."""

    root: Path
    ignored: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GateFolder:
    """Where a series takes place: one temporary folder, with the snapshot of the checkout in it,
    the workspace of the run in progress (`run`) and a folder of `traces` for each run."""

    path: Path
    snapshot: Snapshot
    outer: Mapping[str, str]  # the environment that the gate was started in
    sandbox: Sandbox = field(default_factory=Sandbox)  # who the training runs as
    original: Original | None = None  # what the snapshot was taken of
    # when all was ready for the first run, in seconds since 1970
    began: float | None = None


@dataclass(frozen=True)
class Workspace:
    """Where one run takes place: the same paths for each that is not varied. `cwd` lies inside
    `root`."""

    root: Path
    cwd: Path
    home: Path
    tmp: Path

    @property
    def run_folder(self) -> Path:
        """Return the folder that holds all that the run is given."""
        return self.root.parent


class _Refill(Copy):
    """A copy under way that moves what a run that has ended left alone: files of at most
    LARGEST_SPARE bytes in the workspace of its folder `before`.

    Moved files need not be removed and made anew, which is slow on ext4: it passes over every inode
    that was freed in the last minutes.
    """

    def __init__(self, source: Path, target: Path, before: Path) -> None:
        super().__init__(source, target, [])
        self.began = 0  # ns: what the gate wrote last tells when that run began
        for place in (variation.FIRST, variation.SECOND):
            path = before / place.workspace
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    self.spare = path
                    self.began = os.lstat(before / "probe.json").st_ctime_ns
        self._real = {"": bool(self.began)}

    def copy_file(self, name: str) -> None:
        """Move the file from the spare workspace, with the times of its original; copy what that
        does not hold, or what cannot be moved (a mount)."""
        source = self.source / name
        target = self.target / name
        try:
            if not self._holds(name, source):
                raise FileNotFoundError
            os.rename(self.spare / name, target)
        except OSError:
            super().copy_file(name)
            return
        status = os.lstat(source)
        os.utime(
            target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False
        )

    def _holds(self, name: str, source: Path) -> bool:
        """Return whether the file `name` is what `source` is: nothing of it changed since the run
        began, and it has the same bytes, whatever a file system or a folder that was moved makes of
        the time."""
        if not self._is_folder(os.path.dirname(name)):
            return False
        path = self.spare / name
        old = os.lstat(path)
        new = os.lstat(source)
        return (
            (stat.S_ISREG(old.st_mode), stat.S_IMODE(old.st_mode), old.st_nlink)
            == (True, new.st_mode & 0o777, 1)
            and old.st_ctime_ns < self.began
            and old.st_size == new.st_size <= LARGEST_SPARE
            and _content(path, old.st_size) == _content(source, old.st_size)
        )

    def _is_folder(self, name: str) -> bool:
        """Return whether a folder, and each above it, is no link: what lies elsewhere is not
        moved."""
        if name not in self._real:
            self._real[name] = self._is_folder(os.path.dirname(name)) and stat.S_ISDIR(
                os.lstat(self.spare / name).st_mode
            )
        return self._real[name]


def _content(path: Path, size: int) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, size + 1)
    finally:
        os.close(handle)


def fresh_workspace(
    spec: Spec,
    folder: GateFolder,
    varied: Collection[str] = (),
    *,
    own_files: bool = False,
) -> Workspace:
    """Make a pristine `workspace`, an empty HOME (`home`) and TMPDIR (`tmp`) in `run`, with nothing
    of the run before but, unless this one needs `own_files`, files of the checkout that were
    left alone. A run that is varied in them has them elsewhere, or files of another time.

    Declared data becomes a link to the original, instead of a copy that came with the snapshot;
    data outside the checkout is given by an absolute path and needs none. Raises UsageError for a
    relative path that leaves the checkout, Inconclusive for data that is not there.
    """
    snapshot = folder.snapshot
    spec_dir = spec.path.parent
    inside = os.path.relpath(os.path.realpath(spec_dir), snapshot.source)
    if _leaves(inside):
        raise UsageError(
            f"{spec_dir} is not inside the checkout {snapshot.source}",
            reason_id="workspace/spec-outside",
        )
    run_folder = folder.path / "run"
    before = folder.path / "before"
    remove_tree(before)
    if run_folder.exists():
        run_folder.rename(before)
    places = variation.places(varied)
    root, home, tmp = (make_folder(run_folder / name) for name in vars(places).values())
    let_group_pass(folder.sandbox, run_folder)
    copy = _Refill(snapshot.root, root, Path() if own_files else before)
    for name in walk(snapshot.root):
        copy.take(name)
    copy.finish()
    # whole, so that nothing one run leaves beside its workspace reaches the next
    remove_tree(before)
    if "file-times" in varied:
        variation.shift_times(root)
    directory = root / inside
    directory.mkdir(parents=True, exist_ok=True)
    for item in spec.data:
        _link(item, snapshot.source, spec_dir, inside, root)
    cwd = Path(os.path.normpath(directory / spec.train.working_directory))
    if not cwd.is_relative_to(root):
        message = f"train.working-directory {spec.train.working_directory!r} leaves the checkout"
        raise UsageError(message, remedy="name a folder inside it")
    return Workspace(root, cwd, home, tmp)


def workspace_as_left(spec: Spec, folder: GateFolder) -> Workspace:
    """Return the workspace and HOME of the run before, as a job that is queued again finds them;
    its TMPDIR is empty."""
    run_folder = folder.path / "run"
    root, home, tmp = (run_folder / name for name in vars(variation.FIRST).values())
    remove_tree(tmp)
    make_folder(tmp)
    let_group_pass(folder.sandbox, run_folder)
    inside = os.path.relpath(os.path.realpath(spec.path.parent), folder.snapshot.source)
    cwd = os.path.normpath(root / inside / spec.train.working_directory)
    return Workspace(root, Path(cwd), home, tmp)


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
