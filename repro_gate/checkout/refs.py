"""What stands in another commit of the checkout's repository: its spec and baseline, and its whole
tree as a snapshot to train from. git writes the tree as a clean checkout would (line ends and
encodings included), with an index of its own and apart from the checkout, and refuses names that no
checkout may hold. Nothing in the repository or in the checkout is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from repro_gate.checkout.git import GitFailed, WorkTree, git, git_line
from repro_gate.checkout.inspection import (
    LFS_POINTER,
    LFS_POINTER_BYTES,
    SUBMODULE,
    index_of,
    is_checkout,
)
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import UsageError, obeyed
from repro_gate.files import copy_file, is_below, make_folder, scratch_folder

_EXPORT_SECONDS = 3600  # to write all files of a tree
_MAX_NOTES = 100
_MAX_PATH = 4096  # bytes of a path in a tree
_FETCH = "fetch what is missing (`git fetch --refetch --no-filter`), or clone without `--filter`"


def commit_of(root: Path, ref: str, option: str) -> str:
    """Return the commit that `ref` names in the repository at `root`, in hex. Raise UsageError,
    naming the `option` it came from."""
    try:
        if ref.startswith("-") or not _can_be_asked(ref):
            raise GitFailed("no name of a commit", 1)
        name = f"{ref}^{{commit}}"
        return git_line(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", name
        )
    except GitFailed:
        name = ref.removeprefix("refs/remotes/").removeprefix("origin/")
        remedy = (
            f"fetch it first (`git fetch origin {name}`; in a workflow: actions/checkout with "
            "`fetch-depth: 0`)"
        )
        raise UsageError(
            f"{option} {ref}: no such commit in {root}",
            remedy=remedy,
            reason_id="usage/ref",
        ) from None


def merge_base(root: Path, commit: str) -> str:
    """Return where HEAD left the line of `commit`; `commit` itself where that is not known (a
    shallow clone)."""
    try:
        return git_line(root, "merge-base", "HEAD", commit)
    except GitFailed:
        return commit


def file_at(root: Path, commit: str, path: str, limit: int) -> bytes | None:
    """Return the bytes of the regular file `path` (relative to `root`) in `commit`, as committed,
    at most `limit` + 1 of them.

    None where there is none, also for a path that leaves the repository. Raise UsageError where
    this clone lacks what it takes to know.
    """
    leaves = any(part.lower() in ("", ".", "..", ".git") for part in path.split("/"))
    if leaves or not _can_be_asked(path):
        return None
    try:
        arguments = ("ls-tree", "-z", "--long", "--full-tree", commit, "--", path)
        listed = git(root, "--literal-pathspecs", *arguments)
        about, _, name = listed.partition(b"\0")[0].partition(b"\t")
        if name != os.fsencode(path) or not about.startswith(b"100"):
            return None
        _, _, blob, size = about.decode("ascii", "replace").split()
        if int(size) > limit:
            return b"\0" * (limit + 1)  # too long is all that the caller needs to know
        return git(root, "cat-file", "blob", blob)
    except (GitFailed, ValueError) as error:
        raise _unreadable(commit, f"{path} cannot be read", error) from error


def export(
    root: Path, commit: str, destination: Path, leave_out: Sequence[Path] = ()
) -> Snapshot:
    """Write the tree of a commit to a folder, submodules that are initialised included, LFS
    contents where this clone has them.

    `leave_out` are absolute paths below `root` (declared data) that a workspace links instead. The
    snapshot's notes name what is not there. Raise UsageError for a commit whose files this clone
    lacks, or that git cannot write."""
    top = make_folder(destination).resolve()
    notes = list[str]()
    others = {os.path.normpath(path) for path in leave_out}
    try:
        files = _write(root, commit, top, "", others, notes)
    except (GitFailed, OSError) as error:
        raise _unreadable(
            commit, "the tree cannot be written as files", error
        ) from error
    return Snapshot(
        root=destination, source=root, files=files, notes=tuple(notes[:_MAX_NOTES])
    )


def _write(
    root: Path,
    commit: str,
    top: Path,
    prefix: str,
    leave_out: set[str],
    notes: list[str],
) -> int:
    """Write one repository's tree below `prefix` ("" or ending in a slash) of `top`, and those of
    its submodules. Return how many files that were."""
    repository = Path(git_line(root, "rev-parse", "--absolute-git-dir"))
    with scratch_folder() as scratch, obeyed():
        work_tree = WorkTree(repository, top / prefix, scratch / "index")
        git(root, "read-tree", commit, work_tree=work_tree)
        entries = [
            item
            for item in index_of(root, work_tree)
            if not is_below(os.path.join(root, item.path), leave_out)
        ]
        names = [item.path for item in entries if item.mode != SUBMODULE]
        git(
            root,
            *("checkout-index", "--force", "--quiet", "-z", "--stdin"),
            stdin=b"".join(os.fsencode(name) + b"\0" for name in names),
            work_tree=work_tree,
            seconds=_EXPORT_SECONDS,
        )
    files = len(names)
    for name in names:
        path = top / prefix / name
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            _resolve_lfs(root, path, status, f"{prefix}{name}", notes)
    for item in entries:
        if item.mode != SUBMODULE:
            continue
        name = prefix + item.path
        target = top / name
        if (
            _holds(root / item.path, item.blob)
            # through no link of the tree
            and os.path.realpath(target) == str(target)
        ):
            target.mkdir(parents=True, exist_ok=True)
            files += _write(
                root / item.path, item.blob, top, f"{name}/", leave_out, notes
            )
        else:
            notes.append(
                f"submodule {name} at {item.blob[:12]} is not in this clone: its files are missing"
            )
    return files


def _holds(folder: Path, commit: str) -> bool:
    """Return whether a submodule's own repository is there, through no link, and has the commit."""
    try:
        if os.path.realpath(folder.parent) != os.path.normpath(
            folder.parent
        ) or not is_checkout(folder):
            return False
        git(folder, "cat-file", "-e", f"{commit}^{{commit}}")
    except (GitFailed, OSError):
        return False
    return True


def _resolve_lfs(
    root: Path, path: Path, status: os.stat_result, name: str, notes: list[str]
) -> None:
    """Put in the place of an LFS pointer what it points to; a note where this clone does not have
    it."""
    content = path.read_bytes() if status.st_size <= LFS_POINTER_BYTES else b""
    pointer = LFS_POINTER.fullmatch(content)
    if pointer is None:
        return
    oid = pointer[1].decode("ascii")
    try:
        store = git_line(root, "rev-parse", "--git-path", "lfs/objects")
        source = root / store / oid[:2] / oid[2:4] / oid
        os.stat(source)
        path.unlink()
        copy_file(source, path)
    except (GitFailed, OSError):
        path.write_bytes(content)
        notes.append(f"{name} is an LFS pointer whose content is not in this clone")
    path.chmod(stat.S_IMODE(status.st_mode))


def _unreadable(commit: str, what: str, error: Exception) -> UsageError:
    reason = " ".join(str(error).split())[:300]
    return UsageError(
        f"commit {commit[:12]}: {what}: {reason}",
        remedy=_FETCH,
        reason_id="usage/commit",
    )


def _can_be_asked(text: str) -> bool:
    """Return whether it can be an argument of a command."""
    try:
        return bool(text) and "\0" not in text and len(os.fsencode(text)) < _MAX_PATH
    except ValueError:
        return False
