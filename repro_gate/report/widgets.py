"""Pieces of what a terminal shows: text with its foreign parts made safe, tables, sections, and all
of it as lines of one width.

`text` is the one place where text from outside becomes something that is printed. `fitted` lays
labelled rows into a number of lines, what matters least left out first, so that a report fits on
one screen whatever its texts hold.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repro_gate.escape import for_encoding, for_terminal
from repro_gate.report.glance import Row
from repro_gate.report.model import View
from repro_gate.report.wording import Phrase

_VERDICT_STYLE = {
    "pass": "bold white on green",
    "fail": "bold white on red",
    "inconclusive": "bold black on yellow",
    "recorded": "bold black on cyan",
}
STATUS_STYLE = {
    "pass": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "dim",
    "waived": "cyan",
    "unchanged": "bold green",
    "no-op": "bold green",
    "changed": "bold yellow",
    "drift": "bold white on red",
}
_ROLE_STYLE = {
    "say": "",
    "figure": "bold",
    "name": "bold cyan",
    "id": "bold cyan",
    "message": "",
    "seen": "dim",
    "fault": "bold red",
    "page": "",
    "command": "bold",
}
_LABEL_STYLE = {
    "verdict": "bold",
    "remedy": "green",
    "loss": "yellow",
    "weakened": "yellow",
}
_RULE = 80  # columns of a rule at most
ELLIPSIS = "..."  # of a stream without Unicode
# characters of one text from outside
_LIMITS = {
    **dict.fromkeys(("name", "id"), 160),
    **dict.fromkeys(("message", "seen", "fault"), 600),
    **dict.fromkeys(("status", "page"), 60),
    "command": None,
}
LABEL = 15  # columns of a label with the blanks around it
EXTRA = 5  # from this rank on, rows are left out before any other is cut short
_SHORT = 3  # lines of a row where room is short
_INDENT = 2


def printed(view: View, *parts: RenderableType) -> str:
    """Return the parts one below the other, without the blanks with which tables fill up their
    lines."""
    console = Console(
        file=io.StringIO(),
        width=view.width,
        force_terminal=view.colour,
        color_system="auto" if view.colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        for part in parts:
            # a command to copy, a line to search for
            unbroken = isinstance(part, Text) and part.no_wrap
            console.print(
                part,
                width=min(view.width, _RULE) if isinstance(part, Rule) else None,
                soft_wrap=bool(unbroken),
            )
    output = "\n".join(line.rstrip(" ") for line in capture.get().split("\n"))
    if not unicode(view):
        output = output.replace("─", "-").replace("…", ELLIPSIS)
    return for_encoding(output, view.encoding)


def unicode(view: View) -> bool:
    """Return whether the stream holds every character."""
    return view.encoding.lower().startswith("utf")


def text(phrase: Phrase, style: str = "") -> Text:
    """Return a phrase as one line that folds, its foreign parts clipped and made visible."""
    line = Text(style=style, overflow="fold")
    for role, words in phrase:
        safe = for_terminal(words, _LIMITS[role]) if role in _LIMITS else words
        if role == "page":
            safe = f"`repro-gate explain {safe}`"
        line.append(
            safe,
            style=STATUS_STYLE.get(words, "bold")
            if role == "status"
            else _ROLE_STYLE[role],
        )
    return line


def verdict_badge(verdict: str) -> Text:
    """Return the verdict in capitals."""
    return Text(f" {verdict.upper()} ", style=_VERDICT_STYLE[verdict])


def indented(line: RenderableType) -> Padding:
    """Return it two columns further in."""
    return Padding(line, (0, 0, 0, 2))


def grid(*widths: int | None) -> Table:
    """Return columns without lines: a fixed width each, None for the one that takes the rest."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for width in widths:
        table.add_column(width=width, no_wrap=False, overflow="fold")
    return table


def section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    """Return a blank line, a titled rule where there is a title, the body where there is one."""
    yield Text("")
    if title:
        yield Rule(title, align="left", style="dim")
    if body is not None:
        yield indented(body)


def fitted(groups: Sequence[Sequence[Row]], width: int, most: int) -> list[Text]:
    """Return the rows as lines of a terminal, a blank line between two groups, `most` lines in all
    unless rows of rank 0 alone take more."""
    lines: list[Text] = []
    for lowest, limit in ((EXTRA, most), (1, _SHORT)):
        laid = [
            (number, row, _drawn(row, width, limit))
            for number, group in enumerate(groups)
            for row in group
        ]
        while (excess := len(lines := _joined(laid)) - most) > 0:
            ranks = [row.rank for _, row, _ in laid]
            rank = max(ranks)
            if rank < lowest:
                break
            at = len(ranks) - 1 - ranks[::-1].index(rank)
            number, row, drawn = laid.pop(at)
            if row.form == "fold" and excess < len(drawn):
                shortened = _shortened(drawn, len(drawn) - excess, width)
                laid.insert(at, (number, row, shortened))
        else:
            break
    return lines


def _joined(laid: Sequence[tuple[int, Row, list[Text]]]) -> list[Text]:
    lines: list[Text] = []
    for _, group in groupby(laid, key=itemgetter(0)):
        lines += [Text("")] if lines else []
        lines += chain.from_iterable(drawn for _, _, drawn in group)
    return lines


def _drawn(row: Row, width: int, limit: int) -> list[Text]:
    """Return the row's lines, none wider than the terminal unless it is to be copied."""
    if row.form == "verdict":
        first = verdict_badge(row.label).append("  ")
    else:
        label = row.label.ljust(LABEL - _INDENT) if row.label else ""
        first = Text(" " * _INDENT + label, style="dim")
    room = max(width - len(first), 1)
    most = min(row.most, limit)
    lines = [text(phrase, _LABEL_STYLE.get(row.label, "")) for phrase in row.lines]
    if row.form == "cut":
        lines = lines[-most:]
        for line in lines:
            line.truncate(room, overflow="ellipsis")
    elif row.form != "whole":
        lines = _folded(lines, room, most + 1)
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
    console = Console(width=room, file=io.StringIO())
    folded = list[Text]()
    for line in lines:
        if len(folded) < most:
            folded += line.wrap(console, room, overflow="fold")
    for line in folded:
        line.rstrip()
    return folded
