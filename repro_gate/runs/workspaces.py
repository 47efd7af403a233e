"""The folder of a gate run, and workspaces in it: a pristine copy of the snapshot for each run, at
the same path but for the varied run, with declared data linked in."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.snapshot import Copy, Snapshot
from repro_gate.data.declared import data_path
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import make_folder, remove_tree, walk
from repro_gate.runs import variation
from repro_gate.sandbox.identity import Sandbox, let_group_pass
from repro_gate.spec.model import DataItem, Spec


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


def fresh_workspace(
    spec: Spec, folder: GateFolder, varied: Collection[str] = ()
) -> Workspace:
    """Make a pristine `workspace`, an empty HOME (`home`) and TMPDIR (`tmp`) in `run`, with nothing
    of the run before. A run that is varied in them has them elsewhere, or files of another time.

    Declared data becomes a link to the original, instead of a copy that came with the snapshot;
    data outside the checkout is given by an absolute path and needs none. Raises UsageError for a
    relative path that leaves the checkout, Inconclusive for data that is not there.
    """
    space = _workspace(spec, folder, variation.places(varied))
    before = folder.path / "before"
    remove_tree(before)
    if space.run_folder.exists():
        # It is removed last: until then none of its inodes, which a training could depend on, is
        # free to be used again.
        space.run_folder.rename(before)
    for place in (space.root, space.home, space.tmp):
        make_folder(place)
    let_group_pass(folder.sandbox, space.run_folder)
    copy = Copy(folder.snapshot.root, space.root, [])
    for name in walk(copy.source):
        copy.take(name)
    copy.finish()
    remove_tree(before)
    if "file-times" in varied:
        variation.shift_times(space.root)
    spec_dir = Path(os.path.realpath(spec.path.parent))
    source = folder.snapshot.source
    (space.root / spec_dir.relative_to(source)).mkdir(parents=True, exist_ok=True)
    for item in spec.data:
        _link(item, source, spec_dir, space.root)
    return space


def workspace_as_left(spec: Spec, folder: GateFolder) -> Workspace:
    """Return the workspace and HOME of the run before, as a job that is queued again finds them;
    its TMPDIR is empty."""
    space = _workspace(spec, folder, variation.FIRST)
    make_folder(space.tmp)
    let_group_pass(folder.sandbox, space.run_folder)
    return space


def _workspace(spec: Spec, folder: GateFolder, names: variation.Places) -> Workspace:
    """Return where a workspace lies. Raise UsageError if the spec, or the folder that the training
    starts in, is not in the checkout."""
    root, home, tmp = (folder.path / "run" / name for name in names)
    inside = os.path.relpath(os.path.realpath(spec.path.parent), folder.snapshot.source)
    cwd = Path(os.path.normpath(root / inside / spec.train.working_directory))
    if not cwd.is_relative_to(root):
        raise UsageError(
            f"{spec.path.parent / spec.train.working_directory} is not inside the checkout "
            f"{folder.snapshot.source}",
            reason_id="workspace/spec-outside",
            remedy="name a folder inside it as train.working-directory",
        )
    return Workspace(root, cwd, home, tmp)


def _link(item: DataItem, source: Path, spec_dir: Path, root: Path) -> None:
    """Put the link for one item into the workspace, where it needs one."""
    original = data_path(item, spec_dir)
    if os.path.isabs(item.path):
        original = Path(os.path.realpath(original.parent), original.name)
    elif not original.is_relative_to(source):
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
    if not original.is_relative_to(source):
        return
    if spec_dir.is_relative_to(original):
        raise UsageError(
            f"data: {item.path!r} holds the spec itself",
            reason_id="data/path",
            remedy="name the data's own folder",
        )
    name = original.relative_to(source)
    for folder in reversed(name.parents[:-1]):
        # A linked folder, by the checkout or by another item, is linked as a whole: nothing is
        # written through it.
        if (root / folder).is_symlink():
            name = folder
            break
        if not (root / folder).is_dir():
            remove_tree(root / folder)
            (root / folder).mkdir()
    remove_tree(root / name)
    (root / name).symlink_to(os.path.realpath(source / name))
