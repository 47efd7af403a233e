"""Finds the checkpoint that a training wrote last: the probe looks before each step, the gate once
the training has been stopped."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os

_MOST = 100_000  # files that are looked at


def newest(folder: str, pattern: str, since: float) -> str:
    """Return the match of a glob below a folder that was made or changed last, if it was after
    `since` (seconds since 1970), relative to the folder; empty if there is none.

    The time of a folder is that of the newest file in it.
    """
    found = (since, "")
    looked = itertools.count()
    for path in glob.iglob(os.path.join(glob.escape(folder), pattern), recursive=True):
        inside = glob.iglob(os.path.join(glob.escape(path), "**"), recursive=True)
        for file in itertools.chain([path], inside):
            if next(looked) > _MOST:
                return found[1]
            with contextlib.suppress(OSError):
                if os.path.isfile(file):
                    name = os.path.relpath(path, folder)
                    found = max(found, (os.stat(file).st_mtime, name))
    return found[1]
