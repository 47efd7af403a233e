"""The whole report on a terminal, as `-v` prints it: the verdict, then every section."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from repro_gate.escape import for_terminal
from repro_gate.report import wording
from repro_gate.report.model import Report
from repro_gate.report.sections import Block, Code, Facts, Items, Table, sections
from repro_gate.report.widgets import grid, indented, labelled, section, text, verdict_badge

_ROWS = 20  # of a list; the rest is in the JSON report


def parts(report: Report) -> Iterator[RenderableType]:
    """Return everything that a person may want to read, the verdict first."""
    badge = verdict_badge(report.verdict)
    head = grid(len(badge), None)
    head.add_row(badge, text(wording.headline(report), "bold"))
    yield head
    for item in sections(report, _ROWS):
        if item.blocks[0] == Code(report.reproduce, "sh"):  # on one line, so that it can be copied
            yield from section(item.title, None)
            yield Text("  " + for_terminal(report.reproduce), style="bold", no_wrap=True)
        else:
            yield from section(item.title, Group(*map(laid_out, item.blocks)))


def laid_out(block: Block) -> RenderableType:
    """Return a block of a section as lines of a terminal."""
    match block:
        case Facts(facts) if not any(label for label, _ in facts):
            return Group(*(text(phrase) for _, phrase in facts))
        case Facts(facts):
            return labelled((label, text(phrase)) for label, phrase in facts)
        case Items(items):
            table = grid(None)
            for first, *below in items:
                table.add_row(text(first))
                for line in below:
                    table.add_row(indented(text(line)))
            return table
        case Code(code):
            lines = (text((("message", line.expandtabs(4)),)) for line in code.split("\n"))
            return indented(Group(*lines))
        case Table(head, rows):
            table = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
            for title in head:
                table.add_column(title, overflow="fold")
            for row in rows:
                table.add_row(*map(text, row))
            return table
