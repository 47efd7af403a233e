"""Finds a run's declared artifacts by globs in the workspace, which is untrusted, and copies them
out of it with a digest of their bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from repro_gate.compare.artifacts import WHOLE_FILE
from repro_gate.errors import Inconclusive
from repro_gate.escape import clip
from repro_gate.files import (
    closing,
    copy_file,
    digest_of_blocks,
    is_inside,
    make_folder,
    open_regular,
    remove_tree,
    written_blocks,
)
from repro_gate.probe.artifacts import METADATA
from repro_gate.runs import variation
from repro_gate.trace.newest import parts_after

FILE = "file"
_CLOSED = "file without permission to read"
_NOWHERE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)
_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
MAX_FILES = 1_000
# of one run's artifacts, the holes of sparse files counted
MAX_BYTES = 256 * 2**30
MAX_VISITED = 200_000  # folder entries looked at for one run
# of a sharded model of transformers
_INDEX = re.compile(r"(.*)\.(safetensors|bin)\.index\.json")
AsOwner = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a glob matched: one file, or one folder of torch.distributed.checkpoint, by its name
    below the root. Only a FILE has content. Any other `kind` (a FIFO, a link to a forbidden target)
    has no copy at `path`. If copying failed there is no copy either, and `problem` says why.
    """

    name: str
    path: Path
    glob: str = ""  # the first that matched it
    kind: str = FILE
    problem: str = ""
    digest: str = ""  # of its bytes
    # name, digest and size of each file of a folder, or of the one file
    files: tuple[tuple[str, str, int], ...] = ()

    @property
    def readable(self) -> bool:
        """Return whether there is a copy whose content can be compared."""
        return self.kind == FILE and not self.problem


class _Search:
    """One search: the root with links resolved, with whose rights it is looked at, and how many
    folder entries may still be visited and bytes copied."""

    def __init__(self, root: Path, as_owner: AsOwner = nullcontext) -> None:
        self.root = Path(os.path.realpath(root))
        self.as_owner = as_owner
        self.left = MAX_VISITED
        self.bytes = MAX_BYTES

    def copy(self, source: Path, target: Path) -> None:
        """Copy a file. Raises Inconclusive before copying if the run's artifacts would become too
        large."""
        with self.as_owner():
            size = os.lstat(source).st_size
        if size <= self.bytes:
            self.bytes -= copy_file(source, target, self.as_owner)
            if self.bytes >= 0:  # it may have grown
                return
        name = _printable(os.path.relpath(source, self.root))
        raise _too_many(
            f"match more than {MAX_BYTES:,} bytes, the {size:,} of {name} included"
        )

    def inside(self, name: str) -> bool:
        """Return whether `name` lies below the root when all links are followed."""
        # Python before 3.13: a link to a link of /proc that this user may not follow
        with contextlib.suppress(OSError):
            return is_inside(self.root / name, self.root)
        return False

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted, as far as the search may still look."""
        names = []
        with (
            contextlib.suppress(OSError),
            os.scandir(os.path.join(self.root, folder)) as found,
        ):
            for entry in found:
                self.left -= 1
                if self.left < 0:
                    break
                names.append(entry.name)
        return sorted(names)

    def distributed(self, folder: str) -> bool:
        """Return whether a folder is a checkpoint of torch.distributed.checkpoint."""
        metadata = os.path.join(self.root, folder, METADATA)
        if not (folder and os.path.isfile(metadata) and self.inside(folder)):
            return False
        return any(name.endswith(".distcp") for name in self.names(folder))


def collect(
    root: Path, globs: Sequence[str], destination: Path, as_owner: AsOwner = nullcontext
) -> tuple[tuple[Collected, ...], tuple[str, ...]]:
    """Copy the files below `root` that the globs match to `destination`, which is emptied first;
    give them in the order of their names, and the globs without a match.

    `*`, `?` and `[…]` match within one name, not a leading dot unless the glob has one; `**`
    matches any number of folders and does not enter linked ones. A link inside `root` counts as
    what it points to. The index of a sharded model brings its shards, a file of a distributed
    checkpoint the whole folder. Copies share no inode with a file that something left behind may
    still write to; they are numbered and keep only their suffix. `root` is looked at inside
    `as_owner()`: with the rights of whoever wrote there, where that is another user. Raises
    Inconclusive for more than MAX_FILES files, MAX_BYTES or a search that is too wide.
    """
    with as_owner():
        search = _Search(root, as_owner)
        matches = {glob: [*_matches(search, glob)] for glob in globs}
        first = dict[str, str]()  # of the globs, by name
        for glob, names in matches.items():
            for name in names:
                first.setdefault(name, glob)
        whole = _whole(search, first)
    if search.left < 0:
        raise _too_many(f"search more than {MAX_VISITED:,} folder entries")
    if len(whole) > MAX_FILES:
        raise _too_many(f"match {len(whole):,} files, more than {MAX_FILES:,}")
    make_folder(destination)
    copies = []
    for number, (name, glob) in enumerate(whole.items()):
        item = _copied(search, name, destination / f"{number:04d}")
        copies.append(replace(item, glob=glob))
    unmatched = tuple(glob for glob in globs if not matches[glob])
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(with_digest, copies)), unmatched


def _too_many(what: str) -> Inconclusive:
    return Inconclusive(
        f"capture.artifacts {what}",
        reason_id="artifact/too-many",
        remedy="name the files to compare more narrowly",
    )


def in_place(path: Path) -> tuple[Collected, ...]:
    """Return one file where it lies, the index of a sharded model with its shards, or the folder of
    a distributed checkpoint."""
    search = _Search(path.resolve().parent)
    found = []
    for name in _whole(search, {path.resolve().name: ""}):
        item = Collected(name=name, path=search.root / name)
        if not (item.path.is_file() or item.path.is_dir()):
            item = replace(item, problem="it is not a regular file")
        found.append(with_digest(item))
    return tuple(found)


def _whole(search: _Search, globs: Mapping[str, str]) -> dict[str, str]:
    """Return the names, each with its glob, in order: with the shards that an index stands for, and
    with a folder in place of the files of a distributed checkpoint."""
    names = dict(globs)
    for name, glob in globs.items():
        folder, base = os.path.split(name)
        if index := _INDEX.fullmatch(base):
            for other in search.names(folder):
                if other.startswith(f"{index[1]}-") and other.endswith(f".{index[2]}"):
                    names.setdefault(os.path.join(folder, other), glob)
    folders = set(filter(search.distributed, {*map(os.path.dirname, names), *names}))
    whole = dict[str, str]()
    for name, glob in names.items():
        folder = os.path.dirname(name)
        whole.setdefault(folder if folder in folders else name, glob)
    return {name: whole[name] for name in sorted(whole, key=os.fsencode)}


def _matches(search: _Search, glob: str) -> Iterator[str]:
    """Yield the names of the files, links that lead out and distributed checkpoints that a glob
    matches. Each folder is looked at once, for all the parts of the glob that may stand there."""
    parts = PurePosixPath(glob).parts
    parts += ("*",) if parts[-1] == "**" else ()
    waiting = [("", {0})]
    while waiting:
        folder, places = waiting.pop()
        for name in search.names(folder):
            path = os.path.join(folder, name)
            full = os.path.join(search.root, path)
            is_link = os.path.islink(full)
            further = parts_after(parts, places, name, entered=not is_link)
            is_folder = os.path.isdir(full) and (not is_link or search.inside(path))
            if len(parts) in further and (not is_folder or search.distributed(path)):
                yield path
            further.discard(len(parts))
            if further and is_folder:
                waiting.append((path, further))


def _copied(search: _Search, name: str, target: Path) -> Collected:
    suffix = os.path.splitext(name)[1]
    if re.fullmatch(r"[.][A-Za-z0-9]{1,16}", suffix):
        target = target.with_suffix(suffix)
    item = Collected(name=_printable(name), path=target)
    try:
        with search.as_owner():
            kind = _kind(search, name)
            if kind != FILE:
                return replace(item, kind=kind)
            source = (search.root / name).resolve()
            is_folder = source.is_dir()
            members = [""]
            if is_folder:
                names = search.names(name)
                members = [member for member in names if (source / member).is_file()]
        if len(members) > MAX_FILES:
            raise OSError(f"it holds more than {MAX_FILES:,} files")
        if is_folder:
            target.mkdir()
        for member in members:
            search.copy(source / member, target / member)
    except PermissionError:
        return replace(item, kind=_CLOSED)
    except OSError as error:
        remove_tree(target)  # what was copied of a folder
        why = (error.strerror or str(error)).replace(f"{search.root}{os.sep}", "")
        return replace(item, problem=f"it could not be copied: {why}")
    return item


def _kind(search: _Search, name: str) -> str:
    """Return what the name is, links followed; nothing is opened. What is compared of a link that
    must not be read is what it says. Raises OSError where that cannot be seen."""
    path = os.path.join(search.root, name)
    link = ""
    if os.path.islink(path):
        target = _printable(variation.as_first(os.readlink(path)))
        link = f"link to {clip(target, 200)}"
    if not search.inside(name):
        return f"{link} that leads out of the working directory"
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), FILE)
    except OSError as error:
        if link and error.errno in _NOWHERE:
            return f"{link} that leads nowhere"
        raise


def with_digest(item: Collected) -> Collected:
    """Return the item with the digests of its bytes as they are now."""
    if not item.readable:
        return item
    paths = {WHOLE_FILE: item.path}
    if item.path.is_dir():
        members = sorted(filter(Path.is_file, item.path.iterdir()))
        paths = {_printable(path.name): path for path in members}
    files = tuple((name, *_digest(path)) for name, path in paths.items())
    digest = hashlib.sha256(repr(files).encode()).hexdigest()
    if WHOLE_FILE in paths:
        digest = files[0][1]
    return replace(item, digest=digest, files=files)


def _digest(path: Path) -> tuple[str, int]:
    """Return the digest and the size of a file."""
    with closing(open_regular(path, 0)) as handle:
        size = os.fstat(handle).st_size
        return digest_of_blocks(written_blocks(handle, size), size), size


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
