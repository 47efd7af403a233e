"""Labelled rows of text fitted into a number of lines: what matters least is left out or cut short
first. So a report fits on one screen whatever its texts hold."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

LABEL = 15  # columns of a label with the blanks around it
EXTRA = 5  # from this rank on, rows are left out before any other is cut short
_INDENT = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """Lines under one label. `rank` says how soon it may go: 0 never, then the larger the sooner.
    It takes `most` lines of the screen at most, and where room is short down to `least`, or the
    lines of `core` where there are any.

    `form`: `fold` breaks long lines, `cut` ends them with an ellipsis, `whole` leaves them as they
    are, so that they can be copied.
    """

    lines: tuple[Text, ...]
    label: str = ""
    rank: int = 0
    most: int = 2
    least: int = 1
    form: str = "fold"
    core: tuple[Text, ...] = ()
    head: Text | None = None  # in the place of the label, in a column of its own width


def fitted(groups: Sequence[Sequence[Row]], width: int, most: int) -> list[Text]:
    """The rows as lines of a terminal, a blank line between two groups, `most` lines in all unless
    rows of rank 0 alone take more."""
    laid = [[_Laid(row, width) for row in group] for group in groups]
    ranks = sorted({row.rank for group in groups for row in group}, reverse=True)
    extra = [rank for rank in ranks if rank >= EXTRA]
    # What is nice to know goes before what is worth knowing is cut short; that goes last.
    for rank in (
        *extra,
        *(-rank for rank in ranks if rank < EXTRA),
        *(rank for rank in ranks if 0 < rank < EXTRA),
    ):
        for item in (
            item
            for group in reversed(laid)
            for item in reversed(group)
            if item.row.rank == abs(rank)
        ):
            if (excess := _height(laid) - most) > 0:
                item.shorten(excess, gone=rank > 0)
    found: list[Text] = []
    for group in laid:
        lines = [line for item in group for line in item.shown()]
        found += [Text(""), *lines] if found and lines else lines
    return found


def _height(laid: Sequence[Sequence[_Laid]]) -> int:
    taken = [sum(item.count for item in group) for group in laid]
    return sum(taken) + max(sum(count > 0 for count in taken) - 1, 0)


class _Laid:
    """A row at one width, of which `count` lines are shown."""

    def __init__(self, row: Row, width: int) -> None:
        self.row = row
        label = Text(
            " " * _INDENT + row.label.ljust(LABEL - _INDENT) if row.label else " " * _INDENT,
            style="dim",
        )
        self._first = row.head or label
        self._room = max(width - len(self._first), 1)
        self._lines = (
            list(row.lines)
            if row.form != "fold"
            else list(_folded(row.lines, self._room, row.most + 1))
        )
        self.count = min(len(self._lines), row.most)

    def shorten(self, excess: int, *, gone: bool) -> None:
        """Take up to `excess` lines less; none at all where the row is to go."""
        if gone:
            self.count = 0
        elif self.row.core:
            self._lines, self.count = list(self.row.core), len(self.row.core)
        else:
            self.count = min(self.count, max(self.row.least, self.count - excess))

    def shown(self) -> Iterator[Text]:
        """The lines, none wider than the terminal unless it is to be copied."""
        for number, line in enumerate(self._lines[: self.count]):
            shown = line.copy()
            if self.row.form == "fold" and number == self.count - 1 < len(self._lines) - 1:
                shown.truncate(self._room - 1)
                shown.append("…")
            elif self.row.form == "cut":
                shown.truncate(self._room, overflow="ellipsis")
            yield (
                Text(no_wrap=True)
                .append_text(Text(" " * len(self._first)) if number else self._first)
                .append_text(shown)
            )


def _folded(lines: Sequence[Text], room: int, most: int) -> list[Text]:
    """The first lines that a terminal of that width would make of these."""
    console, found = Console(width=room, file=io.StringIO()), list[Text]()
    for line in lines:
        for part in line.wrap(console, room, overflow="fold") if len(found) < most else ():
            part.rstrip()
            found.append(part)
    return found
