"""The order in which a directory is listed: it is the file system's, and no two need agree.

Pinned, names come sorted; varied, in the reverse of the order in which they were given.
"""

from __future__ import annotations

from typing import Any

from ..imports import wrap_later
from .use import ask

NAME = "listing"


def install() -> None:
    """Wrap the two calls that everything goes through: `glob`, `os.walk`, `pathlib` and
    torchvision's folders too."""
    wrap_later("os", "listdir", _listdir)
    wrap_later("os", "scandir", _scandir)


def _listdir(original: Any, *args: Any, **kwargs: Any) -> Any:
    return _ordered("os.listdir", original(*args, **kwargs))


def _scandir(original: Any, *args: Any, **kwargs: Any) -> Any:
    with original(*args, **kwargs) as scan:
        Entries.kind = type(scan)
        return Entries(_ordered("os.scandir", list(scan)))


def _ordered(source: str, items: list[Any]) -> Any:
    return ask(
        NAME,
        source,
        lambda: items,
        lambda *_: sorted(items, key=lambda item: getattr(item, "name", item)),
        lambda _: items[::-1],
    )


class Entries:
    """What `os.scandir` gives: an iterator that can be closed, and says that it is the original's
    `kind`, which nobody can make."""

    kind: type
    __class__ = property(lambda self: self.kind)

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Entries:
        return self

    def __enter__(self) -> Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Forget the rest; nothing is left open: the folder was read whole."""
        self._entries = iter(())
