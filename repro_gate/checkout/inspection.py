"""What git says about the folder under test, asked without letting the repository run anything.
Every question goes through `git.git`; nothing is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.checkout.git import GitFailed, WorkTree, git, git_line, git_names
from repro_gate.errors import UsageError
from repro_gate.files import read_start

_NO_REPOSITORY = re.compile("not a git repository|must be run in a work tree")
LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ .*\n)*?oid "
    rb"sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
LFS_POINTER_BYTES = 1024  # git-lfs' own bound
SUBMODULE = "160000"
_FILE_MODES = frozenset({"100644", "100755"})


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
    directory = Path(os.path.realpath(directory))
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is not a folder", reason_id="workspace/no-folder"
        )
    marked = next(
        (
            folder
            for folder in (directory, *directory.parents)
            if os.path.lexists(folder / ".git")
        ),
        None,
    )
    if marked is None:
        return Checkout(root=directory)
    with asking(marked):
        try:
            top = git_line(directory, "rev-parse", "--show-toplevel")
        except FileNotFoundError:
            return _without_git(directory, "git is not installed")
        except GitFailed as error:
            if not _NO_REPOSITORY.search(str(error)):
                raise
            return _without_git(directory, f"{marked / '.git'} is no usable repository")
        root = Path(os.path.realpath(top))
        if root != marked:
            return _without_git(
                directory, f"git takes {root} for the top level of {marked}"
            )
        if directory != root and _is_ignored(root, directory):
            return _without_git(directory, f"git ignores this folder in {root}")
        return _inspect(root)


def _without_git(directory: Path, why: str) -> Checkout:
    return Checkout(root=directory, notes=(f"{why}: the folder is taken as it is",))


def outermost(root: Path) -> Path:
    """Return the top level of the repository that holds `root` as a submodule, of whatever depth;
    `root` itself where none does."""
    with contextlib.suppress(GitFailed):
        while above := git_line(root, "rev-parse", "--show-superproject-working-tree"):
            root = Path(os.path.realpath(above))
    return root


def listed_files(root: Path) -> list[str]:
    """Return paths relative to `root` of tracked and untracked-not-ignored files, submodules and
    nested checkouts included, sorted.

    Tracked files that are gone are listed too. Raise UsageError if git fails.
    """
    with asking(root):
        return sorted(set(_listed(root, "")), key=os.fsencode)


def ignored_files(
    root: Path, suffixes: Sequence[str], most: int = 5_000
) -> tuple[str, ...]:
    """Return paths relative to `root` of files with one of `suffixes` that git ignores; a folder
    that is ignored whole stands for what it holds, with a slash behind it. Raise UsageError if git
    fails."""
    with asking(root):
        ignored = ("--others", "--ignored", "--exclude-standard", "--directory")
        names = git_names(root, "ls-files", "-z", *ignored)
    return tuple(
        name
        for name in names
        if name.endswith((*suffixes, "/")) and not name.endswith("__pycache__/")
    )[:most]


def _inspect(root: Path) -> Checkout:
    missing: list[str] = []
    uncommitted = sorted(set(_uncommitted(root, "", missing)), key=os.fsencode)
    return Checkout(
        root=root,
        commit=head_of(root) or None,
        uncommitted=tuple(uncommitted),
        is_git=True,
        notes=tuple(
            f"submodule {path} is not initialised: its files are missing"
            for path in missing
        ),
    )


def _uncommitted(root: Path, prefix: str, uninitialised: list[str]) -> Iterator[str]:
    """Yield paths that differ from HEAD or are new, and the same of each submodule and nested
    checkout."""
    shown = ("--untracked-files=all", "--ignore-submodules=all", "--no-renames")
    status = git_names(root, "status", "--porcelain=v1", "-z", *shown)
    entries = [(line[:2], line[3:]) for line in status]
    tracked = index_of(root)
    unchanged = _unchanged_lfs(
        root, {path for code, path in entries if code == " M"}, tracked
    )
    for code, path in entries:
        if path.endswith("/") and code == "??" and is_checkout(root / path):
            yield prefix + path.rstrip("/")
            yield from _uncommitted(root / path, prefix + path, uninitialised)
        elif path not in unchanged:
            yield prefix + path
    for item in tracked:
        if item.mode != SUBMODULE:
            continue
        if not is_checkout(root / item.path):
            uninitialised.append(prefix + item.path)
            continue
        if head_of(root / item.path) != item.blob:
            yield prefix + item.path
        yield from _uncommitted(
            root / item.path, f"{prefix}{item.path}/", uninitialised
        )


def _listed(root: Path, prefix: str) -> Iterator[str]:
    for item in index_of(root):
        if item.mode != SUBMODULE:
            yield prefix + item.path
        elif is_checkout(root / item.path):
            yield from _listed(root / item.path, f"{prefix}{item.path}/")
    for path in git_names(root, "ls-files", "-z", "--others", "--exclude-standard"):
        if not path.endswith("/"):
            yield prefix + path
        elif is_checkout(root / path):
            yield from _listed(root / path, prefix + path)


def index_of(root: Path, work_tree: WorkTree | None = None) -> list[Tracked]:
    """Return the index (`mode blob stage TAB path`): the checkout's own, or one apart from it."""
    found: dict[str, Tracked] = {}
    for line in git(root, "ls-files", "-z", "--stage", work_tree=work_tree).split(
        b"\0"
    ):
        if line:
            about, _, path = line.partition(b"\t")
            mode, blob, _ = about.decode("ascii").split(" ")
            found[os.fsdecode(path)] = Tracked(mode, blob, os.fsdecode(path))
    return list(found.values())


def _unchanged_lfs(
    root: Path, modified: set[str], tracked: Sequence[Tracked]
) -> set[str]:
    """Return those of the modified files that are what their LFS pointer in the index says: with
    filters off, git cannot tell."""
    blobs = {item.path: item.blob for item in tracked if item.path in modified}
    if not blobs:
        return set()
    given = "".join(f"{blob}\n" for blob in sorted(set(blobs.values())))
    sizes = (
        git(root, "cat-file", "--batch-check", stdin=given.encode())
        .decode()
        .splitlines()
    )
    small = [
        line.split()[0]
        for line in sizes
        if " blob " in line and int(line.split()[2]) <= LFS_POINTER_BYTES
    ]
    # `blob type size LF content LF`, again and again
    batch = git(
        root,
        "cat-file",
        "--batch",
        stdin="".join(f"{blob}\n" for blob in small).encode(),
    )
    pointers: dict[str, re.Match[bytes]] = {}
    while batch:
        about, _, rest = batch.partition(b"\n")
        blob, _, size = about.decode("ascii").split(" ")
        if match := LFS_POINTER.fullmatch(rest[: int(size)]):
            pointers[blob] = match
        batch = rest[int(size) + 1 :]
    return {
        path
        for path, blob in blobs.items()
        if blob in pointers and _is_content(root / path, pointers[blob])
    }


def _is_content(path: Path, pointer: re.Match[bytes]) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != int(pointer[2]):
            return False
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return False
    return digest.hexdigest().encode() == pointer[1]


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


def _is_ignored(root: Path, directory: Path) -> bool:
    try:
        git(root, "check-ignore", "--quiet", "--", os.path.relpath(directory, root))
    except GitFailed as error:
        if error.status == 1:
            return False
        raise
    return True


@contextlib.contextmanager
def asking(root: Path) -> Iterator[None]:
    """Raise UsageError where git fails inside: the checkout at `root` cannot be read."""
    try:
        yield
    except GitFailed as error:
        message = f"git cannot read the checkout {root}: {str(error)[:500]}"
        raise UsageError(
            message,
            remedy="see whether `git status` works in it",
            reason_id="workspace/git",
        ) from error


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
    with asking(root):
        return frozenset(
            prefix + item.path
            for _, prefix, entries in _repositories(root)
            for item in entries
            if item.mode != SUBMODULE
        )


def submodules(root: Path) -> tuple[Submodule, ...]:
    """Return the submodules of the checkout at `root` and theirs, in order of their paths. Raises
    UsageError if git fails."""
    found: list[Submodule] = []
    with asking(root):
        for folder, prefix, entries in _repositories(root):
            for item in (item for item in entries if item.mode == SUBMODULE):
                there = is_checkout(folder / item.path)
                actual = head_of(folder / item.path) if there else None
                found.append(Submodule(prefix + item.path, item.blob, actual))
    return tuple(sorted(found, key=lambda item: os.fsencode(item.path)))


def lfs_pointers(root: Path) -> tuple[str, ...]:
    """Return tracked files, those of submodules included, in whose place their LFS pointer stands,
    and that git's attributes give to LFS; only files as small as one are read.

    Raise UsageError if git fails.
    """
    found: list[str] = []
    with asking(root):
        for folder, prefix, entries in _repositories(root):
            paths = [
                item.path
                for item in entries
                if item.mode in _FILE_MODES and _is_pointer(folder / item.path)
            ]
            managed = _managed_by_lfs(folder, paths) if paths else ()
            found += [prefix + path for path in managed]
    return tuple(sorted(found, key=os.fsencode))


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


def _is_pointer(path: Path) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LFS_POINTER_BYTES:
            return False
        return LFS_POINTER.fullmatch(read_start(path, LFS_POINTER_BYTES)) is not None
    except OSError:
        return False


def _managed_by_lfs(root: Path, paths: Sequence[str]) -> Iterator[str]:
    """Yield those of these paths whose attribute `filter` is `lfs`: fields of `path NUL filter NUL
    value NUL`."""
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    fields = git(root, "check-attr", "-z", "--stdin", "filter", stdin=given).split(
        b"\0"
    )
    for path, value in zip(fields[0::3], fields[2::3], strict=False):
        if value == b"lfs":
            yield os.fsdecode(path)
