"""The folder of a gate run and its workspaces: for each run a pristine copy of the snapshot with
links to declared data, at the same path except for the varied run."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
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
    """The checkout of which the workspaces are copies. `ignored` are its modules and whole folders
    that git ignores; `projects` the canonical names of its distributions."""

    root: Path
    ignored: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GateFolder:
    """The temporary folder of a series: with the snapshot of the checkout, the current run's
    workspace (`run`) and a folder in `traces` for each run."""

    path: Path
    snapshot: Snapshot
    outer: Mapping[str, str]  # the environment that the gate was started in
    sandbox: Sandbox = field(default_factory=Sandbox)  # who the training runs as
    original: Original | None = None  # what the snapshot was taken of
    # when all was ready for the first run, in seconds since 1970
    began: float | None = None
    # gets a line that a person is to read while a run goes on
    tell: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Workspace:
    """The folders of one run, at the same paths for all runs that are not varied. `cwd` is inside
    `root`."""

    root: Path
    cwd: Path
    home: Path
    tmp: Path
    is_used: bool = False  # the training has run in it before

    @property
    def run_folder(self) -> Path:
        """Return the folder that contains all folders of the run."""
        return self.root.parent


def fresh_workspace(
    spec: Spec, folder: GateFolder, varied: Collection[str] = ()
) -> Workspace:
    """Make a pristine `workspace`, an empty HOME (`home`) and TMPDIR (`tmp`) in `run`, without
    anything of the previous run. A varied run may have other paths or file times.

    Declared data becomes a link to the original, which replaces a copy from the snapshot. Data
    outside the checkout has an absolute path and needs no link. Raises UsageError for a relative
    path that leaves the checkout, Inconclusive for absent data.
    """
    space = _workspace(spec, folder, variation.places(varied))
    before = folder.path / "before"
    remove_tree(before)
    if space.run_folder.exists():
        # It is removed last, so that none of its inodes, on which a training could depend, is
        # reused before.
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


def used_workspace(spec: Spec, folder: GateFolder) -> Workspace:
    """Return the workspace and HOME of the previous run, as a requeued job finds them, with an
    empty TMPDIR."""
    space = _workspace(spec, folder, variation.FIRST)
    make_folder(space.tmp)
    let_group_pass(folder.sandbox, space.run_folder)
    return replace(space, is_used=True)


def _workspace(spec: Spec, folder: GateFolder, names: variation.Places) -> Workspace:
    """Return the paths of a workspace. Raise UsageError if the spec or the training's start folder
    is outside the checkout."""
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
    """Link one item into the workspace, if it needs a link."""
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
            remedy="fetch the data before the gate runs, or correct the path",
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
        # A parent folder that is a link, from the checkout or another item, must not be written
        # through.
        if (root / folder).is_symlink():
            name = folder
            break
        if not (root / folder).is_dir():
            remove_tree(root / folder)
            (root / folder).mkdir()
    remove_tree(root / name)
    (root / name).symlink_to(os.path.realpath(source / name))
