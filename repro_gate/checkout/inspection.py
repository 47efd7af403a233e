"""What git says about the folder under test, asked without letting the repository run anything.
Every question goes through `git.git`; nothing is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout.git import GitFailed, WorkTree, git, git_line, git_names
from repro_gate.errors import UsageError
from repro_gate.files import open_regular

_NO_REPOSITORY = re.compile("not a git repository|must be run in a work tree")
_LFS_VERSION = "version https://git-lfs.github.com/spec/v1\n"
_LFS_POINTER = re.compile(
    re.escape(_LFS_VERSION.encode())
    + rb"(?:[a-z0-9.-]+ .*\n)*?oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_LFS_POINTER_BYTES = 1024  # git-lfs' own bound
_MOST_IGNORED = 5_000
SUBMODULE = "160000"


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The folder under test.

    `root` is git's top level, or the folder itself where git does not manage it. `commit` is None
    without git or without a commit. `uncommitted` are paths relative to `root` that are modified,
    staged, deleted or new, those in submodules included; bytes that are no UTF-8 stand as
    surrogates (`os.fsencode` gives them back).
    """

    root: Path
    commit: str | None = None
    uncommitted: tuple[str, ...] = ()
    is_git: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tracked:
    """One line of the index."""

    mode: str
    blob: str
    path: str


def inspect_checkout(directory: Path) -> Checkout:
    """Return what stands at `directory`. Raise UsageError if it is not a folder, or git fails on a
    repository that is there."""
    root = Path(os.path.realpath(directory))
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder", reason_id="workspace/no-folder")
    folders = (root, *root.parents)
    marked = next((item for item in folders if os.path.lexists(item / ".git")), None)
    if marked is None:
        return Checkout(root=root)
    if why := _no_checkout(root, marked):
        return Checkout(root=root, notes=(f"{why}: the folder is taken as it is",))
    modules = submodules(marked)
    moved = (item.path for item in modules if item.actual not in (None, item.recorded))
    return Checkout(
        root=marked,
        commit=head_of(marked) or None,
        uncommitted=_sorted((*moved, *_uncommitted(marked, ""))),
        is_git=True,
        notes=tuple(
            f"submodule {item.path} is not initialised: its files are missing"
            for item in modules
            if item.actual is None
        ),
    )


def _no_checkout(directory: Path, marked: Path) -> str:
    """Return why git does not manage `directory`, although a `.git` stands in `marked`; empty where
    it does."""
    try:
        root = Path(
            os.path.realpath(git_line(directory, "rev-parse", "--show-toplevel"))
        )
        if root != marked:
            return f"git takes {root} for the top level of {marked}"
        if directory != root:
            place = os.path.relpath(directory, root)
            git(root, "check-ignore", "--quiet", "--", place)
            return f"git ignores this folder in {root}"
    except FileNotFoundError:
        return "git is not installed"
    except GitFailed as error:
        if _NO_REPOSITORY.search(error.answer):
            return f"{marked / '.git'} is no usable repository"
        if error.status != 1:  # by which `check-ignore` says no
            raise
    return ""


def outermost(root: Path) -> Path:
    """Return the top level of the repository that holds `root` as a submodule, of whatever depth;
    `root` itself where none does."""
    with contextlib.suppress(GitFailed):
        while above := git_line(root, "rev-parse", "--show-superproject-working-tree"):
            root = Path(os.path.realpath(above))
    return root


def listed_files(root: Path) -> tuple[str, ...]:
    """Return paths relative to `root` of tracked and untracked-not-ignored files, submodules and
    nested checkouts included, sorted.

    Tracked files that are gone are listed too. Raise UsageError if git fails.
    """
    return _sorted(_listed(root, ""))


def ignored_files(root: Path, suffixes: Sequence[str]) -> tuple[str, ...]:
    """Return paths relative to `root` of files with one of `suffixes` that git ignores; a folder
    that is ignored whole stands for what it holds, with a slash behind it. Raise UsageError if git
    fails."""
    ignored = ("--others", "--ignored", "--exclude-standard", "--directory")
    names = [
        name
        for name in git_names(root, "ls-files", "-z", *ignored)
        if name.endswith((*suffixes, "/")) and not name.endswith("__pycache__/")
    ]
    return tuple(names[:_MOST_IGNORED])


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=os.fsencode))


def _uncommitted(root: Path, prefix: str) -> Iterator[str]:
    """Yield paths that differ from HEAD or are new, and the same of each submodule and nested
    checkout."""
    options = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
    for folder, above, entries in _repositories(root, prefix):
        blobs = {item.path: item.blob for item in entries}
        for line in git_names(folder, "status", "--porcelain=v1", "-z", *options):
            code = line[:2]
            path = line[3:]
            if path.endswith("/") and code == "??" and is_checkout(folder / path):
                yield above + path.rstrip("/")
                yield from _uncommitted(folder / path, above + path)
            elif code != " M" or not _is_content_of(folder / path, blobs[path]):
                yield above + path


def _listed(root: Path, prefix: str) -> Iterator[str]:
    for folder, above, entries in _repositories(root, prefix):
        yield from (above + item.path for item in entries if item.mode != SUBMODULE)
        others = ("--others", "--exclude-standard")
        for path in git_names(folder, "ls-files", "-z", *others):
            if not path.endswith("/"):
                yield above + path
            elif is_checkout(folder / path):
                yield from _listed(folder / path, above + path)


def index_of(root: Path, work_tree: WorkTree | None = None) -> list[Tracked]:
    """Return the index (`mode blob stage TAB path`): the checkout's own, or one apart from it."""
    entries: dict[str, Tracked] = {}
    for line in git_names(root, "ls-files", "-z", "--stage", work_tree=work_tree):
        about, _, path = line.partition("\t")
        mode, blob, _ = about.split(" ")
        entries[path] = Tracked(mode, blob, path)
    return list(entries.values())


def _is_content_of(path: Path, blob: str) -> bool:
    """Return whether a file is what the LFS pointer `blob` in the index stands for: with filters
    off, git cannot tell."""
    digest = hashlib.sha256()
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
            size = file.tell()
    except OSError:
        return False
    pointer = f"{_LFS_VERSION}oid sha256:{digest.hexdigest()}\nsize {size}\n".encode()
    committed = b"blob %d\0%b" % (len(pointer), pointer)
    name = "sha1" if len(blob) == 40 else "sha256"  # as git names a blob
    return hashlib.new(name, committed, usedforsecurity=False).hexdigest() == blob


def is_checkout(folder: Path) -> bool:
    """Return whether a repository of its own stands here (and git agrees that its files do), not a
    link to one."""
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return False
    try:
        top = git_line(folder, "rev-parse", "--show-toplevel")
    except GitFailed:
        return False
    return os.path.realpath(top) == os.path.realpath(folder)


def head_of(root: Path) -> str:
    """Return the commit that is checked out; empty where there is none."""
    try:
        return git_line(root, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        return ""


# ---- what of a checkout is tracked and there


@dataclass(frozen=True)
class Submodule:
    """One submodule, nested ones included. `recorded` is the commit that the superproject names,
    `actual` the one that is checked out (None: its files are not there)."""

    path: str
    recorded: str
    actual: str | None


def tracked_files(root: Path) -> frozenset[str]:
    """Return paths relative to `root` of all files in the index, those of submodules included,
    whether they are there or not.

    Raise UsageError if git fails.
    """
    return frozenset(
        prefix + item.path
        for _, prefix, entries in _repositories(root)
        for item in entries
        if item.mode != SUBMODULE
    )


def submodules(root: Path) -> tuple[Submodule, ...]:
    """Return the submodules of the checkout at `root` and theirs, in order of their paths. Raises
    UsageError if git fails."""
    modules: list[Submodule] = []
    for folder, prefix, entries in _repositories(root):
        for item in (item for item in entries if item.mode == SUBMODULE):
            place = folder / item.path
            actual = head_of(place) if is_checkout(place) else None
            modules.append(Submodule(prefix + item.path, item.blob, actual))
    return tuple(sorted(modules, key=lambda item: os.fsencode(item.path)))


def lfs_pointers(root: Path) -> tuple[str, ...]:
    """Return tracked files, those of submodules included, in whose place their LFS pointer stands,
    and that git's attributes give to LFS; only files as small as one are read.

    Raise UsageError if git fails.
    """
    by_lfs = ("ls-files", "-z", "--", ":(attr:filter=lfs)")
    return _sorted(
        prefix + path
        for folder, prefix, _ in _repositories(root)
        for path in git_names(folder, *by_lfs)
        if lfs_pointer(folder / path)
    )


def _repositories(
    root: Path, prefix: str = ""
) -> Iterator[tuple[Path, str, list[Tracked]]]:
    """Yield the repository at `root` and each submodule that is there: its folder, the prefix of
    its paths, and its index."""
    entries = index_of(root)
    yield root, prefix, entries
    for item in entries:
        if item.mode == SUBMODULE and is_checkout(root / item.path):
            yield from _repositories(root / item.path, f"{prefix}{item.path}/")


def lfs_pointer(path: Path) -> re.Match[bytes] | None:
    """Return the LFS pointer that a file holds, its digest in the first group; None where it is no
    pointer or no regular file."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return _LFS_POINTER.fullmatch(file.read(_LFS_POINTER_BYTES + 1))
    except OSError:
        return None
