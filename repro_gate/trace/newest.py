"""Finds the checkpoint that a training wrote last: the probe looks before each step, the gate once
the training has been stopped. The folder is untrusted: no link is followed, and there is a
limit."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Sequence

_MOST = 100_000  # files that are looked at


def newest(folder: str, pattern: str, since: float) -> str:
    """Return the match of a glob below a folder that was made or changed last, if it was after
    `since` (seconds since 1970), relative to the folder; empty if there is none.

    A folder that matches has the time of the newest file in it.
    """
    parts = os.path.normpath(pattern).split(os.sep)
    found = (since, "")
    left = _MOST
    for above, _, files in os.walk(folder):
        for file in files:
            left -= 1
            if left < 0:
                return found[1]
            path = os.path.join(above, file)
            names = os.path.relpath(path, folder).split(os.sep)
            count = _matched(parts, names)
            if count:
                with contextlib.suppress(OSError):
                    name = os.sep.join(names[:count])
                    found = max(found, (os.lstat(path).st_mtime, name))
    return found[1]


def _matched(parts: Sequence[str], names: Sequence[str]) -> int:
    """Return how many names of a path, from its beginning, a glob matches; 0 if it matches none.
    `**` stands for any number of folders."""
    places = {0}
    for count, name in enumerate(names, 1):
        for place, part in enumerate(parts):
            if place in places and part == "**":
                places.add(place + 1)
        places = {
            place + (parts[place] != "**")
            for place in places
            if place < len(parts)
            and (parts[place] == "**" or fnmatch.fnmatchcase(name, parts[place]))
        }
        if len(parts) in places:
            return count
    return 0
