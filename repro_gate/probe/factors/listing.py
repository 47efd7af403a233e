"""The order in which a directory is listed: it is the file system's, and no two need agree.

Pinned, names come sorted; varied, in the reverse of the order in which they were given.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Iterator, List

from ..patch import wrap
from .use import USES

NAME = "listing"


def install() -> None:
    """Wrap the two calls that everything goes through: `glob`, `os.walk`, `pathlib` and
    torchvision's folders too."""
    native = (sys.modules[os.name],)
    wrap(os, "listdir", _listdir, also=native)
    wrap(os, "scandir", _scandir, also=native)


def _listdir(original: Any, *args: Any, **kwargs: Any) -> Any:
    names: List[Any] = original(*args, **kwargs)
    if sys._getframe(2).f_code.co_filename.startswith("<frozen importlib"):
        return names  # who looks for a module asks for no order
    return USES.ask(NAME, "os.listdir", lambda: names, lambda _: sorted(names), lambda: names[::-1])


def _scandir(original: Any, *args: Any, **kwargs: Any) -> Any:
    with original(*args, **kwargs) as found:
        entries = list(found)

    def by_name(_: Any) -> List[Any]:
        return sorted(entries, key=lambda entry: entry.name)

    return Entries(USES.ask(NAME, "os.scandir", lambda: entries, by_name, lambda: entries[::-1]))


class Entries:
    """What `os.scandir` gives: an iterator that can be closed."""

    def __init__(self, entries: List[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left open: the folder was read whole."""
        self._entries = iter(())
