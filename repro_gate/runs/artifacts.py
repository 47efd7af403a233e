"""A run's declared artifacts, found by globs and copied out of the workspace before it is removed.
 What lies in the workspace was left by an untrusted process: links that lead out of it, pipes and
trees without end are passed over, and said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import translate
from pathlib import Path, PurePosixPath

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import NotRegular, copy_file
from repro_gate.trace.artifacts.tree import printable

MAX_FILES = 1_000
MAX_VISITED = 200_000  # folder entries looked at for one run
_WILD = re.compile(r"[*?\[]")
Sight = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class CollectedArtifact:
    """One file: its name below the root, as the globs see it, and where its copy lies now.

    A file that could not be taken (a link that leads out of the root, a pipe, a full disk) has a `note` that says why and no copy at
    `path`: `read_leaves` refuses it, and a comparison with it is a difference, never a silent pass.
    """

    name: str
    path: Path
    size: int = 0
    note: str = ""


class _Search:
    """One search: the root with its links resolved, and how many folder entries may still be looked at."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.left = MAX_VISITED

    def inside(self, name: str) -> bool:
        """Whether `name` lies below the root when all links are followed."""
        real = os.path.realpath(os.path.join(self.root, name))
        return real == self.root or real.startswith(self.root + os.sep)


def collect(
    root: Path, globs: Sequence[str], destination: Path, sight: Sight = nullcontext
) -> tuple[tuple[CollectedArtifact, ...], tuple[str, ...]]:
    """Copy the files below `root` that the globs match to `destination`; give them in the order of their names, and the globs without a
    match.

    `*`, `?` and `[…]` match within one name, not a leading dot unless the glob has one; `**` matches any number of folders and does not
    enter linked ones. A link to a file or folder inside `root` counts as what it points to. A copy, not a move: it shares no inode with a
    file that something left behind may still write to. Copies are numbered and keep only their suffix. Whatever is looked at below `root`
    is looked at inside `sight()`: with the rights of whoever wrote it, where that is another user. Raises UsageError for a glob that is
    absolute or has `..` in it, Inconclusive for more than MAX_FILES files or a search that is too wide.
    """
    with sight():
        search = _Search(root)
        matches = {glob: set(_expand(search, "", _parts(glob))) for glob in globs}
    names = sorted(set().union(*matches.values()), key=os.fsencode)
    if len(names) > MAX_FILES or search.left < 0:
        many = f"match {len(names):,} files, more than {MAX_FILES:,}"
        if search.left < 0:
            many = f"search more than {MAX_VISITED:,} folder entries"
        raise Inconclusive(f"capture.artifacts {many}", reason_id="artifact/too-many", remedy="name the files to compare more narrowly")
    destination.mkdir(parents=True, exist_ok=True)
    copies = (_copied(search, name, destination, place, sight) for place, name in enumerate(names))
    found = tuple(replace(item, name=printable(item.name)) for item in copies)
    return found, tuple(glob for glob in globs if not matches[glob])


def _parts(glob: str) -> tuple[str, ...]:
    path = PurePosixPath(glob)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in glob:
        raise UsageError(
            f"capture.artifacts: {glob!r} is no path below the working directory",
            reason_id="spec/invalid",
            remedy="write it relative to train.working-directory, without `..`: `out/*.pt`",
        )
    return path.parts


def _copied(search: _Search, name: str, destination: Path, place: int, sight: Sight) -> CollectedArtifact:
    suffix = os.path.splitext(name)[1]
    target = destination / f"{place:04d}{suffix if re.fullmatch(r'[.][A-Za-z0-9]{1,16}', suffix) else ''}"
    target.unlink(missing_ok=True)
    with sight():
        inside, source = search.inside(name), Path(os.path.realpath(os.path.join(search.root, name)))
    if not inside:
        return CollectedArtifact(name, target, note="a link leads out of the working directory")
    try:
        return CollectedArtifact(name, target, copy_file(source, target, sight))
    except NotRegular:
        return CollectedArtifact(name, target, note="it is no regular file")
    except OSError as error:
        target.unlink(missing_ok=True)
        return CollectedArtifact(name, target, note=f"it could not be kept: {error.strerror or error}")


def _expand(search: _Search, base: str, parts: tuple[str, ...]) -> Iterator[str]:
    """Names of the files below `base` that the rest of a glob matches."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for folder in _folders(search, base):
            if rest:
                yield from _expand(search, folder, rest)
            else:
                yield from _expand(search, folder, ("*",))
        return
    if _WILD.search(part):
        pattern = re.compile(translate(part))
        names = [name for name in _names(search, base) if pattern.match(name) and (part.startswith(".") or not name.startswith("."))]
    else:
        names = [part]
    for name in names:
        path = f"{base}/{name}" if base else name
        full = os.path.join(search.root, path)
        if rest and os.path.isdir(full) and search.inside(path):
            yield from _expand(search, path, rest)
        elif not rest and os.path.lexists(full) and not os.path.isdir(full):
            yield path


def _folders(search: _Search, base: str) -> Iterator[str]:
    """`base` and all folders below it, without hidden and linked ones."""
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        yield folder
        for name in _names(search, folder):
            path = f"{folder}/{name}" if folder else name
            full = os.path.join(search.root, path)
            if not name.startswith(".") and os.path.isdir(full) and not os.path.islink(full):
                waiting.append(path)


def _names(search: _Search, folder: str) -> list[str]:
    """Names in a folder, sorted, as far as the search may still look."""
    names: list[str] = []
    try:
        with os.scandir(os.path.join(search.root, folder)) as found:
            for entry in found:
                search.left -= 1
                if search.left < 0:
                    break
                names.append(entry.name)
    except OSError:
        return []
    return sorted(names)
