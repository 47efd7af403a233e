"""What git says about the folder under test, asked without letting the repository run anything.

Called by `workspace` and `gate`. Every call of git goes through `_git`: the environment's GIT_* variables are dropped, hooks, the file
system monitor, content filters, lazy fetching and prompts are switched off for that call alone, and ownership by somebody else is accepted
because of that. Nothing is written: not to the repository, not to any configuration.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.errors import UsageError

_GIT_SECONDS = 300
_QUIET = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",
    "safe.directory": "*",
}
_FILTER = re.compile(rb"filter\.(.+)\.(clean|smudge|process|required)", re.DOTALL | re.IGNORECASE)
_REMOTE = re.compile(rb"remote\.(.+)\.url", re.DOTALL | re.IGNORECASE)
_LFS_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ .*\n)*?oid sha256:([0-9a-f]{64})\nsize (\d+)\n")
_LFS_POINTER_BYTES = 1024  # git-lfs' own bound
_SUBMODULE = "160000"


@dataclass(frozen=True)
class Checkout:
    """The folder under test.

    `root` is git's top level, or the folder itself where git does not manage it. `commit` is None without git or without a commit.
    `uncommitted` are paths relative to `root` that are modified, staged, deleted or new, those in submodules included; bytes that are no
    UTF-8 stand as surrogates (`os.fsencode` gives them back). `uninitialised` are submodules whose files are not there.
    """

    root: Path
    commit: str | None = None
    uncommitted: tuple[str, ...] = ()
    is_git: bool = False
    has_remote: bool = False
    uninitialised: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Tracked:
    """One line of the index."""

    mode: str
    blob: str
    path: str


def inspect_checkout(directory: Path) -> Checkout:
    """What stands at `directory`. Raises UsageError if it is no folder, or git fails on a repository that is there."""
    directory = Path(os.path.realpath(directory))
    if not directory.is_dir():
        raise UsageError(f"{directory} is no folder", reason_id="workspace/no-folder")
    marked = next((folder for folder in (directory, *directory.parents) if os.path.lexists(folder / ".git")), None)
    if marked is None:
        return Checkout(directory)
    try:
        top = os.fsdecode(_git(directory, "rev-parse", "--show-toplevel").removesuffix(b"\n"))
    except FileNotFoundError:
        return Checkout(directory, notes=("git is not installed: the folder is taken as it is",))
    except _GitError as error:
        if "not a git repository" in str(error) or "must be run in a work tree" in str(error):
            return Checkout(directory, notes=(f"{marked / '.git'} is no usable repository: the folder is taken as it is",))
        raise _unusable(marked, error) from error
    root = Path(os.path.realpath(top))
    if root != marked:
        return Checkout(directory, notes=(f"git takes {root} for the top level of {marked}: the folder is taken as it is",))
    try:
        if directory != root and _is_ignored(root, directory):
            return Checkout(directory, notes=(f"git ignores this folder in {root}: it is taken as it is",))
        return _inspect(root)
    except _GitError as error:
        raise _unusable(root, error) from error


def listed_files(root: Path) -> Iterator[str]:
    """Paths relative to `root` of tracked and untracked-not-ignored files, submodules and nested checkouts included, sorted.

    Tracked files that are gone are listed too. Raises UsageError if git fails.
    """
    try:
        yield from sorted(set(_listed(root, "")), key=os.fsencode)
    except _GitError as error:
        raise _unusable(root, error) from error


def _inspect(root: Path) -> Checkout:
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip().decode("ascii")
    except _GitError:
        commit = ""
    uninitialised: list[str] = []
    uncommitted = sorted(set(_uncommitted(root, "", uninitialised)), key=os.fsencode)
    notes = tuple(f"submodule {path} is not initialised: its files are missing" for path in uninitialised)
    remote = any(_REMOTE.fullmatch(name) for name in _config_names(root))
    return Checkout(root, commit or None, tuple(uncommitted), True, remote, tuple(uninitialised), notes)


def _uncommitted(root: Path, prefix: str, uninitialised: list[str]) -> Iterator[str]:
    """Paths that differ from HEAD or are new, and the same of each submodule and nested checkout."""
    status = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")
    entries = [(os.fsdecode(line[:2]), os.fsdecode(line[3:])) for line in status.split(b"\0") if line]
    tracked = _tracked(root)
    unchanged = _unchanged_lfs(root, {path for code, path in entries if code == " M"}, tracked)
    for code, path in entries:
        if path.endswith("/") and code == "??" and _is_checkout(root / path):
            yield prefix + path.rstrip("/")
            yield from _uncommitted(root / path, prefix + path, uninitialised)
        elif path not in unchanged:
            yield prefix + path
    for item in tracked:
        if item.mode != _SUBMODULE:
            continue
        if not _is_checkout(root / item.path):
            uninitialised.append(prefix + item.path)
            continue
        if _head(root / item.path) != item.blob:
            yield prefix + item.path
        yield from _uncommitted(root / item.path, f"{prefix}{item.path}/", uninitialised)


def _listed(root: Path, prefix: str) -> Iterator[str]:
    for item in _tracked(root):
        if item.mode != _SUBMODULE:
            yield prefix + item.path
        elif _is_checkout(root / item.path):
            yield from _listed(root / item.path, f"{prefix}{item.path}/")
    for line in _git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0"):
        path = os.fsdecode(line)
        if path.endswith("/"):
            if _is_checkout(root / path):
                yield from _listed(root / path, prefix + path)
        elif path:
            yield prefix + path


def _tracked(root: Path) -> list[_Tracked]:
    """The index: `mode blob stage TAB path`."""
    found: dict[str, _Tracked] = {}
    for line in _git(root, "ls-files", "-z", "--stage").split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, blob, _ = about.decode("ascii").split(" ")
            found[os.fsdecode(path)] = _Tracked(mode, blob, os.fsdecode(path))
    return list(found.values())


def _unchanged_lfs(root: Path, modified: set[str], tracked: Sequence[_Tracked]) -> set[str]:
    """Of the modified files those that are what their LFS pointer in the index says: with filters off, git cannot tell."""
    blobs = {item.path: item.blob for item in tracked if item.path in modified}
    if not blobs:
        return set()
    names = "\n".join(sorted(set(blobs.values()))) + "\n"
    sizes = [line.split() for line in _git(root, "cat-file", "--batch-check", given=names.encode()).decode("ascii", "replace").splitlines()]
    small = [line[0] for line in sizes if len(line) == 3 and line[1] == "blob" and int(line[2]) <= _LFS_POINTER_BYTES]
    pointers = _pointers(_git(root, "cat-file", "--batch", given="".join(f"{blob}\n" for blob in small).encode()))
    return {path for path, blob in blobs.items() if blob in pointers and _is_content(root / path, pointers[blob])}


def _pointers(batch: bytes) -> dict[str, re.Match[bytes]]:
    """LFS pointers by blob in the output of `cat-file --batch`: `blob type size LF content LF`, again and again."""
    found: dict[str, re.Match[bytes]] = {}
    while batch:
        about, _, rest = batch.partition(b"\n")
        blob, _, size = about.decode("ascii").split(" ")
        match = _LFS_POINTER.fullmatch(rest[: int(size)])
        if match:
            found[blob] = match
        batch = rest[int(size) + 1 :]
    return found


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


def _is_checkout(folder: Path) -> bool:
    """Whether a repository of its own stands here (and git agrees that its files do), not a link to one."""
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return False
    try:
        return os.path.realpath(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n"))) == os.path.realpath(folder)
    except _GitError:
        return False


def _head(root: Path) -> str:
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", "HEAD").strip().decode("ascii")
    except _GitError:
        return ""


def _is_ignored(root: Path, directory: Path) -> bool:
    try:
        _git(root, "check-ignore", "--quiet", "--", os.path.relpath(directory, root))
    except _GitError as error:
        if error.status == 1:
            return False
        raise
    return True


def _config_names(root: Path) -> list[bytes]:
    return _run(root, ("config", "--list", "--name-only", "-z"), {}).split(b"\0")


class _GitError(Exception):
    """git ended with a status other than 0. The text is what it wrote to stderr."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _git(root: Path, *arguments: str, given: bytes = b"") -> bytes:
    """stdout of a git command in `root`, with everything switched off that could run a program of the repository's choosing."""
    filters = {match[1] for name in _config_names(root) if (match := _FILTER.fullmatch(name))}
    off = {f"filter.{os.fsdecode(name)}.{key}": "" for name in filters for key in ("clean", "smudge", "process")}
    off |= {f"filter.{os.fsdecode(name)}.required": "false" for name in filters}
    return _run(root, arguments, off, given)


def _run(root: Path, arguments: Sequence[str], off: Mapping[str, str], given: bytes = b"") -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_COUNT": str(len(_QUIET) + len(off)),
        "GIT_NO_REPLACE_OBJECTS": "1",
    }
    for place, (key, value) in enumerate({**_QUIET, **off}.items()):
        environment |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=root,
            env=environment,
            input=given,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _GitError(f"git {arguments[0]} took longer than {_GIT_SECONDS} s", -1) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise _GitError(said or f"git {arguments[0]} ended with {done.returncode}", done.returncode)
    return done.stdout


def _unusable(root: Path, error: _GitError) -> UsageError:
    dubious = "dubious ownership" in str(error) or "unsafe repository" in str(error)
    remedy = f"git config --global --add safe.directory {root}" if dubious else "see whether `git status` works in it"
    return UsageError(f"git cannot read the checkout {root}: {str(error)[:500]}", remedy=remedy, reason_id="workspace/git")
