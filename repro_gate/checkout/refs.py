"""What stands in another commit of the checkout's repository: its spec and baseline, and its whole
tree as a snapshot to train from. git writes the tree as a clean checkout would (line ends and
encodings included), with an index of its own and apart from the checkout, and refuses names that no
checkout may hold. Nothing in the repository or in the checkout is written.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from repro_gate.checkout.git import GitFailed, WorkTree, git, git_line
from repro_gate.checkout.inspection import (
    SUBMODULE,
    Tracked,
    index_of,
    is_checkout,
    lfs_pointer,
)
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import UsageError, obeyed
from repro_gate.files import make_folder, scratch_folder

_EXPORT_SECONDS = 3600  # to write all files of a tree
_MAX_NOTES = 100
_MAX_PATH = 4096  # bytes of a path in a tree
_FETCH = "fetch what is missing (`git fetch --refetch --no-filter`), or clone without `--filter`"


def commit_of(root: Path, ref: str, option: str) -> str:
    """Return the commit that `ref` names in the repository at `root`, in hex. Raise UsageError,
    naming the `option` it came from."""
    try:
        if ref.startswith("-") or not _can_be_asked(ref):
            raise GitFailed(root, "no name of a commit", 1)
        question = ("rev-parse", "--verify", "--quiet", "--end-of-options")
        return git_line(root, *question, f"{ref}^{{commit}}")
    except GitFailed:
        name = ref.removeprefix("refs/remotes/").removeprefix("origin/")
        raise UsageError(
            f"{option} {ref}: no such commit in {root}",
            remedy=f"fetch it first (`git fetch origin {name}`; in a workflow: actions/checkout "
            "with `fetch-depth: 0`)",
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


def export(root: Path, commit: str, destination: Path) -> Snapshot:
    """Write the tree of a commit to a folder, submodules that are initialised included, LFS
    contents where this clone has them.

    The snapshot's notes name what is not there. Raise UsageError for a commit whose files this
    clone lacks, or that git cannot write."""
    top = make_folder(destination).resolve()
    notes = list[str]()
    files = 0
    # each repository, its commit, and the prefix of its paths: "", or one that ends in a slash
    waiting = [(root, commit, "")]
    try:
        while waiting:
            folder, tree, prefix = waiting.pop()
            for item in _write_tree(folder, tree, top / prefix):
                name = prefix + item.path
                target = top / name
                place = folder / item.path
                if item.mode != SUBMODULE:
                    files += 1
                    if not _fill_lfs_pointer(folder, target):
                        notes.append(
                            f"{name} is an LFS pointer to what this clone lacks"
                        )
                elif (
                    _holds(place, item.blob)
                    # through no link of the tree
                    and os.path.realpath(target) == str(target)
                ):
                    target.mkdir(parents=True, exist_ok=True)
                    waiting.append((place, item.blob, f"{name}/"))
                else:
                    notes.append(
                        f"submodule {name} at {item.blob[:12]} is not in this clone: its files "
                        "are missing"
                    )
    except (GitFailed, OSError) as error:
        raise _unreadable(
            commit, "the tree cannot be written as files", error
        ) from error
    return Snapshot(
        root=destination, source=root, files=files, notes=tuple(notes[:_MAX_NOTES])
    )


def _write_tree(root: Path, commit: str, folder: Path) -> list[Tracked]:
    """Write one repository's tree to `folder`; returns its entries, those of submodules too."""
    repository = Path(git_line(root, "rev-parse", "--absolute-git-dir"))
    with scratch_folder() as scratch, obeyed():
        work_tree = WorkTree(repository, folder, scratch / "index")
        git(root, "read-tree", commit, work_tree=work_tree)
        entries = index_of(root, work_tree)
        names = (item.path for item in entries if item.mode != SUBMODULE)
        git(
            root,
            *("checkout-index", "--force", "--quiet", "-z", "--stdin"),
            stdin=b"".join(os.fsencode(name) + b"\0" for name in names),
            work_tree=work_tree,
            seconds=_EXPORT_SECONDS,
        )
    return entries


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


def _fill_lfs_pointer(root: Path, path: Path) -> bool:
    """Put in the place of an LFS pointer what it points to. False where this clone does not have
    it."""
    if pointer := lfs_pointer(path):
        oid = pointer[1].decode("ascii")
        store = git_line(root, "rev-parse", "--git-path", "lfs/objects")
        try:
            shutil.copyfile(root / store / oid[:2] / oid[2:4] / oid, path)
        except OSError:
            return False
    return True


def _unreadable(commit: str, what: str, error: Exception) -> UsageError:
    reason = " ".join(str(getattr(error, "answer", error)).split())[:300]
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
