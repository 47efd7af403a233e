"""Labelled rows of text fitted into a number of lines: what matters least is left out first. So a
report fits on one screen whatever its texts hold."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

LABEL = 15  # columns of a label with the blanks around it
EXTRA = 5  # from this rank on, rows are left out before any other is cut short
_SHORT = 3  # lines of a row where room is short
_INDENT = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """Lines under one label, `most` on the screen. `rank` says how soon it may go: 0 never, then
    the larger the sooner.

    `form`: `fold` breaks long lines, `cut` ends them with an ellipsis and keeps the last ones,
    `whole` leaves them as they are, so that they can be copied.
    """

    lines: tuple[Text, ...]
    label: str = ""
    rank: int = 0
    most: int = 2
    form: str = "fold"
    head: Text | None = None  # in the place of the label, in a column of its own width


def fitted(groups: Sequence[Sequence[Row]], width: int, most: int) -> list[Text]:
    """Return the rows as lines of a terminal, a blank line between two groups, `most` lines in all
    unless rows of rank 0 alone take more."""
    found: list[Text] = []
    for lowest, limit in ((EXTRA, most), (1, _SHORT)):
        laid = [[(row, _drawn(row, width, limit)) for row in group] for group in groups]
        while (excess := len(found := _joined(laid)) - most) > 0:
            rank = max((row.rank for group in laid for row, _ in group), default=0)
            if rank < lowest:
                break
            group = [item for item in laid if any(row.rank == rank for row, _ in item)][-1]
            at = max(index for index, (row, _) in enumerate(group) if row.rank == rank)
            row, lines = group.pop(at)
            if row.form == "fold" and excess < len(lines):
                group.insert(at, (row, _shortened(lines, len(lines) - excess, width)))
        else:
            break
    return found


def _joined(laid: Sequence[Sequence[tuple[Row, list[Text]]]]) -> list[Text]:
    found: list[Text] = []
    for group in laid:
        lines = [line for _, drawn in group for line in drawn]
        found += [Text(""), *lines] if found and lines else lines
    return found


def _drawn(row: Row, width: int, limit: int) -> list[Text]:
    """Return the row's lines, none wider than the terminal unless it is to be copied."""
    first = row.head or Text(
        " " * _INDENT + row.label.ljust(LABEL - _INDENT if row.label else 0), style="dim"
    )
    room, most = max(width - len(first), 1), min(row.most, limit)
    if row.form == "whole":
        lines = list(row.lines)
    elif row.form == "cut":
        lines = [line.copy() for line in row.lines[-most:]]
        for line in lines:
            line.truncate(room, overflow="ellipsis")
    else:
        lines = _folded(row.lines, room, most + 1)
        if len(lines) > most:
            lines = _shortened(lines, most, room)
    return [
        Text(no_wrap=True)
        .append_text(Text(" " * len(first)) if number else first)
        .append_text(line)
        for number, line in enumerate(lines)
    ]


def _shortened(lines: Sequence[Text], most: int, width: int) -> list[Text]:
    last = lines[most - 1].copy()
    last.truncate(width - 1)
    return [*lines[: most - 1], last.append("…")]


def _folded(lines: Sequence[Text], room: int, most: int) -> list[Text]:
    """Return the first lines that a terminal of that width would make of these."""
    console, found = Console(width=room, file=io.StringIO()), list[Text]()
    for line in lines:
        for part in line.wrap(console, room, overflow="fold") if len(found) < most else ():
            part.rstrip()
            found.append(part)
    return found
