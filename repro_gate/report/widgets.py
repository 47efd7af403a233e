"""Pieces of what a terminal shows: text with its foreign parts made safe, labelled rows, tables and
sections.

`text` is the one place where text from outside becomes something that is printed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
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
    "figure": "bold",
    "name": "bold cyan",
    "id": "bold cyan",
    "seen": "dim",
    "fault": "bold red",
    "command": "bold",
}
_LABEL_STYLE = {
    "remedy": "green",
    "loss": "yellow",
    "weakened": "yellow",
}
_RULE = 80  # columns of a rule at most
# of a stream without Unicode
ELLIPSIS = "..."
_ASCII = str.maketrans("─●▁▂▃▄▅▆▇█", "-*12345678")
# characters of one text from outside
_LIMITS = {
    **dict.fromkeys(("name", "id"), 160),
    **dict.fromkeys(("message", "seen", "fault"), 600),
    **dict.fromkeys(("status", "page"), 60),
}
_LABEL = 11  # columns of a label


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
        output = output.translate(_ASCII).replace("…", ELLIPSIS)
    return for_encoding(output, view.encoding)


def unicode(view: View) -> bool:
    """Return whether the stream holds every character."""
    return view.encoding.lower().startswith("utf")


def text(phrase: Phrase, style: str = "") -> Text:
    """Return a phrase as one line that folds, its foreign parts clipped and made visible."""
    line = Text(style=style, overflow="fold")
    for role, words in phrase:
        safe = for_terminal(words, _LIMITS.get(role))
        if role == "page":
            safe = f"`repro-gate explain {safe}`"
        shown = _ROLE_STYLE.get(role, "")
        line.append(
            safe, STATUS_STYLE.get(words, "bold") if role == "status" else shown
        )
    return line


def verdict_badge(verdict: str, is_conditional: bool = False) -> Text:
    """Return the verdict in capitals. A pass under a condition has the colour of a warning."""
    style = _VERDICT_STYLE["inconclusive" if is_conditional else verdict]
    return Text(f" {verdict.upper()} ", style=style)


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


def labelled_row(row: Row, length: int | None = None) -> Iterator[RenderableType]:
    """Yield the row's label, and its lines beside it; of a command one unbroken line to be copied.
    With `length` only the first and the last lines, and of each so many characters."""
    lines = [text(phrase, _LABEL_STYLE.get(row.label, "")) for phrase in row.lines]
    if row.label == "reproduce":
        label = f"  {row.label:{_LABEL}}  "
        yield Text(no_wrap=True).append(label, "dim").append_text(lines[0])
        return
    if row.is_code:
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
    elif length is not None:
        lines[1:-2] = []  # the last ones hold the proof
        for line in lines:
            line.truncate(length, overflow="ellipsis")
    if not row.label:
        yield indented(Group(*lines))
        return
    table = grid(_LABEL, None)
    table.add_row(Text(row.label, style="dim"), Group(*lines))
    yield indented(table)
