"""The sections of `operators` for a terminal, as Markdown for a folder of docs, and as a page for a
browser: each escapes every cell."""

from __future__ import annotations

from itertools import islice

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from repro_gate import escape
from repro_gate.report import widgets
from repro_gate.report.drawing import shown
from repro_gate.report.model import PLAIN, View
from repro_gate.report.operators import Page, Section

_CELL = 120  # characters of one cell on a terminal
_TEXT = 300  # elsewhere
_WIDE = 140  # columns of a terminal from which on tables fit
_SHOWN = 25  # rows of one table on a terminal
_ROWS = 2_000  # elsewhere


def terminal(page: Page, view: View = PLAIN, *, verbose: bool = False) -> str:
    """The summary and the first rows of each table, or with `verbose` all of them."""
    parts: list[RenderableType] = [
        Text(page.title, style="bold"),
        *(Text(escape.for_terminal(line, 600)) for line in page.summary),
    ]
    facts = widgets.labelled(
        (name[:10], Text(escape.for_terminal(value, 300), overflow="fold"))
        for name, value in page.facts
    )
    parts += widgets.section("", facts)
    for section in _with_rows(page):
        most = _ROWS if verbose else _SHOWN
        title = f"{section.title} ({len(section.rows):,})"
        shown = _grid(section, most) if view.width >= _WIDE else _lines(section, most)
        parts += widgets.section(title, shown if section.rows else Text("none"))
        if len(section.rows) > most:
            parts.append(
                widgets.indented(
                    widgets.say(escape.and_more(len(section.rows) - most, "(-v shows them)"), "dim")
                )
            )
    parts += [Text(f"note: {escape.for_terminal(note, 600)}") for note in page.notes]
    return widgets.printed(view, *parts)


def _grid(section: Section, most: int) -> Table:
    """A column for each, where there is room."""
    found = widgets.grid(*(None for _ in section.columns))
    found.add_row(*(Text(name, style="dim") for name in section.columns))
    for row in islice(section.rows, most):
        found.add_row(*(Text(escape.for_terminal(cell, _CELL)) for cell in row))
    return found


def _lines(section: Section, most: int) -> Table:
    """Two lines for each row: what it is, and further in what came of it, each cell with the name
    of its column."""
    found = widgets.grid(None)
    for row in islice(section.rows, most):
        cells = [escape.for_terminal(cell, _CELL) for cell in row]
        found.add_row(Text("  ".join(cell for cell in cells[:3] if cell), style="bold"))
        if rest := "; ".join(
            f"{name}: {cell}"
            for name, cell in zip(section.columns[3:], cells[3:], strict=True)
            if cell
        ):
            found.add_row(widgets.indented(Text(rest)))
    return found


def markdown(page: Page) -> str:
    """A page of its own."""
    lines = [f"# {page.title}", ""]
    lines += [f"- {escape.for_markdown(escape.clip(line, 1_000))}" for line in page.summary]
    lines += ["", "| | |", "| --- | --- |"]
    lines += [
        f"| {name} | {escape.for_code_span(escape.clip(value, _TEXT))} |"
        for name, value in page.facts
    ]
    for section in _with_rows(page):
        lines += ["", f"## {section.title}", ""]
        lines += [section.about, ""] if section.about else []
        lines += table(section) if section.rows else ["None."]
        if more := escape.and_more(len(section.rows) - _ROWS):
            lines += ["", f"{more}."]
    if page.notes:
        lines += [
            "",
            "## Notes",
            "",
            *(f"- {escape.for_markdown(escape.clip(note, 1_000))}" for note in page.notes),
        ]
    return "\n".join(lines) + "\n"


def table(section: Section) -> list[str]:
    """The lines of one table in Markdown."""
    head = [
        f"| {' | '.join(section.columns)} |",
        f"| {' | '.join('---' for _ in section.columns)} |",
    ]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in section.rows[:_ROWS])]


def html(page: Page) -> str:
    """One static page, without scripts."""
    environment = Environment(
        loader=PackageLoader("repro_gate.report", "templates"),
        autoescape=True,
        finalize=lambda value: shown(value, _TEXT * 3) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("operators.html.j2").render(
        page=page, sections=_with_rows(page), most=_ROWS
    )


def _with_rows(page: Page) -> list[Section]:
    return [section for section in page.sections if section.rows or section.always]


def _cell(text: str) -> str:
    return escape.for_markdown(escape.clip(text, _TEXT)) if text else ""
