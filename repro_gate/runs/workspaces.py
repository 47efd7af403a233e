"""Workspaces: a pristine copy of the snapshot for each run, at the same path but for the varied run, with declared data linked in; and the
compile cache of the first run (`train.compile-cache`), copied for the runs that may start from one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from repro_gate.checkout.snapshot import Copy, Snapshot, walk
from repro_gate.data.declared import data_path
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import copy_file, make_folder, remove_tree
from repro_gate.runs import variation
from repro_gate.spec.model import DataItem

CACHE = "compile-cache"  # below the run's own TMPDIR
MAX_ENTRIES, MAX_BYTES, MAX_DEPTH = 50_000, 4 * 1024**3, 16  # of a compile cache


@dataclass(frozen=True)
class Workspace:
    """Where one run takes place. `directory` is the spec's folder inside `root`, `links` are the paths of declared data below `root`."""

    root: Path
    directory: Path
    home: Path
    tmp: Path
    links: tuple[Path, ...] = ()


def fresh_workspace(
    snapshot: Snapshot, run_folder: Path, data: Sequence[DataItem], spec_dir: Path, varied: Collection[str] = ()
) -> Workspace:
    """A pristine `workspace`, an empty HOME (`home`) and TMPDIR (`tmp`) in `run_folder`; what stood there is removed. A run that is varied
    in them has them elsewhere, or files of another time.

    Declared data becomes a link to the original, instead of a copy that came with the snapshot; data outside the checkout is given by an
    absolute path and needs none. Raises UsageError for a relative path that leaves the checkout, Inconclusive for data that is not there.
    """
    inside = os.path.relpath(os.path.realpath(spec_dir), snapshot.source)
    if _leaves(inside):
        raise UsageError(f"{spec_dir} is not inside the checkout {snapshot.source}", reason_id="workspace/spec-outside")
    places = variation.places(varied)
    root = make_folder(run_folder / places.workspace)
    copy = Copy(snapshot.root, root, [])
    for name in walk(os.fspath(snapshot.root), ""):
        copy.take(name)
    copy.finish()
    if "file-times" in varied:
        variation.shift_times(root)
    directory = root / inside
    directory.mkdir(parents=True, exist_ok=True)
    links = [_link(item, snapshot.source, spec_dir, inside, root) for item in data]
    home, tmp = make_folder(run_folder / places.home), make_folder(run_folder / places.tmp)
    return Workspace(root, directory, home, tmp, tuple(link for link in links if link is not None))


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
    link = root
    for part in Path(name).parts[:-1]:
        link = link / part
        if link.is_symlink():  # a linked folder, by the checkout or by another item: link the whole of it, never write through it
            return _relink(link, source / link.relative_to(root))
        if not link.is_dir():
            remove_tree(link)
            link.mkdir()
    return _relink(root / name, original)


def _relink(link: Path, original: Path) -> Path:
    remove_tree(link)
    link.symlink_to(os.path.realpath(original))
    return link


def _leaves(relative: str) -> bool:
    return relative == ".." or relative.startswith(".." + os.sep)


def cache_variables(temporary: Path) -> Mapping[str, str]:
    """Where Inductor and Triton keep what they compiled, below a run's folder for temporary files."""
    folder = temporary / CACHE
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}


def copy_cache(source: Path, target: Path, as_owner: Callable[[], AbstractContextManager[None]] = nullcontext) -> bool:
    """Copy a compile cache's folders and regular files to `target`, which must not exist. `source` is untrusted: it is looked at inside
    `as_owner()`, with the rights of whoever wrote it, once nothing writes to it any more, and no link is followed. False, and nothing at
    `target`, where it is not a folder or too large."""
    entries, size, waiting = 0, 0, [(source, target, 0)]
    try:
        while waiting:
            folder, copy, depth = waiting.pop()
            copy.mkdir()
            with as_owner():
                if folder.is_symlink() or depth > MAX_DEPTH:
                    raise OSError("no folder of a cache")
                with os.scandir(folder) as listed:
                    found = list(islice(listed, MAX_ENTRIES))
                here = [(item.name, item.is_dir(follow_symlinks=False), item.is_file(follow_symlinks=False)) for item in found]
            entries += len(here)
            for name, is_folder, is_file in here:
                if is_folder:
                    waiting.append((folder / name, copy / name, depth + 1))
                elif is_file:
                    with as_owner():
                        size += os.lstat(folder / name).st_size
                    if size > MAX_BYTES:
                        raise OSError("too many bytes")
                    copy_file(folder / name, copy / name, as_owner)
            if entries >= MAX_ENTRIES:
                raise OSError("too many files")
    except OSError:
        remove_tree(target)
        return False
    return True
