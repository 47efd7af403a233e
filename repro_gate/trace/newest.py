"""Finds the checkpoint that a training wrote last: the probe looks before each step, the gate once
the training has been stopped. The folder is untrusted: no link is followed, and there is a
limit."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Sequence

Written = tuple[float, str]  # seconds since 1970; of what: empty for nothing
_MOST = 100_000  # files and folders that are looked at


def newest(folder: str, pattern: str, since: Written) -> Written:
    """Return the match of a glob below a folder that was made or changed last, by its name relative
    to the folder; `since` if nothing was written after that.

    A folder that matches has the time of the newest file in it. As for `capture.artifacts`, `*`
    matches no leading dot, and `**` any number of folders.
    """
    parts = os.path.normpath(pattern).split(os.sep)
    parts += ["*"] if parts[-1] == "**" else []
    latest = since
    left = _MOST
    # a folder, what matches so far (empty: nothing yet), and the parts that may come next
    waiting = [("", "", {0})]
    while waiting:
        above, match, places = waiting.pop()
        with (
            contextlib.suppress(OSError),
            os.scandir(os.path.join(folder, above)) as entries,
        ):
            for entry in entries:
                left -= 1
                if left < 0:
                    return latest
                name = os.path.join(above, entry.name)
                further = set() if match else parts_after(parts, places, entry.name)
                matched = match or (name if len(parts) in further else "")
                if entry.is_dir(follow_symlinks=False):
                    if matched or further:
                        waiting.append((name, matched, further))
                elif matched and not entry.is_symlink():
                    changed = entry.stat(follow_symlinks=False).st_mtime
                    latest = max(latest, (changed, matched))
    return latest


def parts_after(
    parts: Sequence[str], places: set[int], name: str, entered: bool = True
) -> set[int]:
    """Return which parts of a glob may come after a name, of those that may stand in its place.
    `entered`: whether `**` may go on below it."""
    further = set[int]()
    waiting = [place for place in places if place < len(parts)]
    for place in waiting:
        part = parts[place]
        is_hidden = name.startswith(".") and not part.startswith(".")
        if part == "**":
            if place + 1 not in places:
                waiting.append(place + 1)
            further |= {place} if entered and not is_hidden else set()
        elif fnmatch.fnmatchcase(name, part) and not is_hidden:
            further.add(place + 1)
    return further
