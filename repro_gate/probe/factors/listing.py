"""The order in which a directory is listed: it is the file system's, and no two need agree.

Pinned, names come sorted; varied, in the reverse of the order in which they were given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ..imports import wrap_later
from .use import USES

NAME = "listing"


def install() -> None:
    """Wrap the two calls that everything goes through: `glob`, `os.walk`, `pathlib` and
    torchvision's folders too."""
    wrap_later("os", "listdir", _listdir)
    wrap_later("os", "scandir", _scandir)


def _listdir(original: Any, *args: Any, **kwargs: Any) -> Any:
    names, frame = original(*args, **kwargs), sys._getframe(2)
    if frame.f_code.co_filename.startswith("<frozen importlib"):
        return names  # who looks for a module asks for no order
    return USES.ask(
        NAME,
        "os.listdir",
        lambda: names,
        lambda _, names: sorted(names),
        _reversed,
        frame,
    )


def _scandir(original: Any, *args: Any, **kwargs: Any) -> Any:
    with original(*args, **kwargs) as scan:
        entries = list(scan)

    def by_name(_: Any, entries: list[Any]) -> list[Any]:
        return sorted(entries, key=lambda entry: entry.name)

    frame = sys._getframe(2)
    return Entries(
        USES.ask(NAME, "os.scandir", lambda: entries, by_name, _reversed, frame)
    )


def _reversed(items: list[Any]) -> list[Any]:
    return items[::-1]


class Entries:
    """What `os.scandir` gives: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def close(self) -> None:
        """Forget the rest; nothing is left open: the folder was read whole."""
        self._entries = iter(())
