"""The `cache` folder: kept between jobs (`actions/cache`, or a disk of the runner's), the gate's own while it runs.

In a container the gate is root and the workspace is the runner's: what root would leave there breaks the next checkout. So the folder is
root's while the gate runs, since the cache of digests is used only where nobody else could have written it, and its owner's again after.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from repro_gate.errors import UsageError, held


@contextlib.contextmanager
def lent(cache: Path | None, workspace: Path) -> Iterator[None]:
    """The folder, made where it is missing, belongs to the gate inside the block. Nothing is done outside the workspace, or where gate and
    owner are one. Raises UsageError for the workspace itself, and for a link in its path: the checkout could have it lead anywhere."""
    if cache is None:
        yield
        return
    inside = Path(os.path.normpath(cache)).is_relative_to(workspace)
    if inside and Path(os.path.normpath(cache)) == workspace:
        raise _unusable(cache, "it is the workspace itself")
    if inside:
        _make(cache, workspace)
    owner = os.stat(workspace)
    theirs = inside and os.geteuid() == 0 and owner.st_uid != 0
    with held():
        if theirs:
            _give(cache, 0, 0)
        try:
            yield
        finally:
            if theirs:
                _give(cache, owner.st_uid, owner.st_gid)


def _make(cache: Path, workspace: Path) -> None:
    """Each folder down to the cache, and in it the file that keeps git from seeing it."""
    owner, place = os.stat(workspace), workspace
    for part in Path(os.path.relpath(cache, workspace)).parts:
        place = place / part
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o755)
            if os.geteuid() == 0:
                os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)
        if place.is_symlink() or not place.is_dir():
            raise _unusable(os.path.relpath(cache, workspace), f"{part!r} is a link or no folder")
    with contextlib.suppress(FileExistsError):
        handle = os.open(place / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("*\n")


def _unusable(cache: str | os.PathLike[str], why: str) -> UsageError:
    return UsageError(
        f"cache: {os.fspath(cache)!r} cannot be used: {why}",
        remedy="name a folder that is no part of the checkout: `with: {cache: .repro-gate-cache}`",
        reason_id="action/cache-folder",
    )


def _give(cache: Path, uid: int, gid: int) -> None:
    """The whole tree to one owner: links themselves, never what they lead to, and folders by their descriptors, so that none is swapped."""
    for _, names, files, folder in os.fwalk(cache):
        for name in (*names, *files):
            with contextlib.suppress(FileNotFoundError):
                os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
    os.chown(cache, uid, gid, follow_symlinks=False)
