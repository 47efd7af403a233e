"""The Report on a terminal: the verdict, why, and what to do, on one screen; the whole of it where
that was asked for (`View.verbose`). And the checklist of `repro-gate check`, which trains nothing.

At 80 columns, without colour, on an ASCII stream; foreign text goes through `widgets.text`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult
from repro_gate.compare.operators import OperatorCall, Operators
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import for_terminal, listed
from repro_gate.report import glance, numbers, operators, wording
from repro_gate.report.document import jsonable, to_text
from repro_gate.report.glance import Row, row
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import (
    Block,
    Code,
    Items,
    Table,
    check_items,
    ended_logs,
    operator_blocks,
    source_lines,
    whole_report,
)
from repro_gate.report.widgets import (
    ELLIPSIS,
    grid,
    indented,
    labelled_row,
    printed,
    section,
    text,
    unicode,
    verdict_badge,
)
from repro_gate.report.wording import phrase, say

MOST_OF_A_PASS, MOST = 15, 30  # lines
_FILES = 6  # written files that are named
_LOG = 8  # lines of a log
_EXTRA = 5  # from this rank on, rows are left out before any other is cut short
_ROWS = 20  # of a list; the rest is in the JSON report
SCHEMA_ID = "repro-gate/checklist/v1"


def render(report: Report, view: View = PLAIN, written: Sequence[str] = ()) -> str:
    """Return the report as lines of text, the verdict first. Whatever the texts hold and whatever
    the encoding is, it prints.

    A pass takes 15 lines at most, anything else 30; `view.verbose` prints all of it. `written` are
    the names of the files that were written besides.
    """
    if view.verbose:
        return printed(view, *parts(report))
    # an ASCII stream gets three dots for one character
    narrow = replace(
        view, width=view.width - (0 if unicode(view) else len(ELLIPSIS) - 1)
    )
    most = MOST_OF_A_PASS if report.verdict == "pass" else MOST
    answer = glance.answer_rows(report)
    answer[1:1] = _source(report.diagnosis)
    further = glance.further_rows(report)
    groups = answer, _log(report), further, _last(report, written)
    rows = [
        (number, item)
        for number, group in enumerate(groups)
        for item in group
        if item.lines
    ]

    length: int | None = None
    while True:
        shown = printed(narrow, _head(report), *_screen(rows, length))
        last = max(range(len(rows)), key=lambda at: (rows[at][1].rank, at))
        rank = rows[last][1].rank
        if shown.count("\n") <= most or not rank:
            return shown
        if rank < _EXTRA and length is None:
            length = 3 * narrow.width
        else:
            del rows[last]


def _screen(
    rows: Sequence[tuple[int, Row]], length: int | None
) -> Iterator[RenderableType]:
    """Yield numbered groups of rows with a blank line before each, lines in at most `length`
    characters."""
    for _, group in groupby(rows, key=itemgetter(0)):
        yield Text("")
        for _, item in group:
            yield from labelled_row(item, length)


def _head(report: Report) -> RenderableType:
    badge = verdict_badge(report.verdict, report.is_conditional)
    head = grid(len(badge), None)
    head.add_row(badge, text(wording.headline(report), "bold"))
    return head


def _source(why: Diagnosis | None) -> Iterator[Row]:
    """Yield the source lines around the cause. If space is short, only its own line stays."""
    for line in source_lines(why):
        role, rank = ("name", 1) if line.startswith(">") else ("seen", 8)
        yield row("", rank, say(line, role), is_code=True)


def _log(report: Report) -> Iterator[Row]:
    """Yield the end of the log of the first run that ended badly."""
    for title, log in ended_logs(report.runs, _LOG, 1):
        yield row("", 2, title)
        lines = (phrase("| {message}", message=line.expandtabs(4)) for line in log)
        yield row("", 2, *lines, is_code=True)


def _last(report: Report, written: Sequence[str]) -> Iterator[Row]:
    """Return how many checks passed, how to see it again, and where the rest of the report is."""
    yield glance.checks_row(report)
    command = say(report.reproduce, "command")
    yield row("reproduce", 0, command)
    more = say("`-v`, or `repro-gate show -v REPORT.json`, prints the rest")
    if written:
        names = listed([for_terminal(name, 200) for name in written], _FILES)
        more = phrase("`-v` prints the rest; written: {message}", message=names)
    yield row("more", 0, more, is_code=True)


def parts(report: Report) -> Iterator[RenderableType]:
    """Return everything that a person may want to read, the verdict first."""
    yield _head(report)
    yield Text("")
    first, rest = whole_report(report, _ROWS)
    for item in first:
        yield from labelled_row(item)
    for part in rest:
        # on one line, so that it can be copied
        if part.blocks[0] == Code(report.reproduce, "sh"):
            command = f"  {for_terminal(report.reproduce)}"
            yield from section(part.title, None)
            yield Text(command, style="bold", no_wrap=True)
        else:
            yield from section(part.title, Group(*map(laid_out, part.blocks)))


def laid_out(block: Block) -> RenderableType:
    """Return a block of a section as lines of a terminal."""
    match block:
        case Items(items):
            lines = [
                indented(text(line)) if number else text(line)
                for item in items
                for number, line in enumerate(item)
            ]
            return Group(*lines)
        case Code(code):
            rows = code.expandtabs(4).split("\n")
            return indented(Group(*(text(say(line, "message")) for line in rows)))
        case Table(head, cells):
            table = Grid(
                *(Column(title, overflow="fold") for title in head),
                box=None,
                show_header=any(head),
                padding=(0, 2, 0, 0),
                header_style="dim",
                pad_edge=False,
            )
            for row in cells:
                table.add_row(*map(text, row))
            return table


def render_checklist(
    results: Sequence[CheckResult],
    need_training: Sequence[str],
    view: View,
) -> str:
    """Return every result by category, the worst first, and one line on all of them at the end.

    `need_training` are the ids of the checks that were not made, since only a training can answer
    them.
    """
    parts: list[RenderableType] = []
    for category, passed, made in wording.coverage(results):
        here = [
            item
            for item in wording.worst_first(results)
            if item.category == category and not wording.is_undeclared(item)
        ]
        title = f"{category}: {numbers.of(passed, made) if made else 'nothing checked'}"
        parts += section(title, laid_out(check_items(here)) if here else None)
    # one line, so that a log can be searched for it
    counts = phrase("checklist: {}", wording.checks(results) or say("nothing checked"))
    if waiting := len(need_training):
        need = "needs" if waiting == 1 else "need"
        counts += say(f"; {waiting:,} {need} training (repro-gate run)")
    line = text(counts)
    line.no_wrap = True
    return printed(view, *parts, Text(""), line)


def render_operators(
    found: Operators,
    changed: Mapping[str, Sequence[OperatorCall]] | None = None,
    view: View = PLAIN,
) -> str:
    """Return the operators as a table, and what changed since another measurement if there was
    one."""
    rows = len(found.calls) if view.verbose else _ROWS
    blocks = operator_blocks(found, rows)
    parts = [*section("Operators", Group(*map(laid_out, blocks)))]
    if changed is not None:
        most = max(map(len, changed.values()), default=0)  # of either measurement
        shown = most if view.verbose else _ROWS
        items = Items(tuple(operators.changed(changed, shown)))
        parts += section("What changed", laid_out(items))
    return printed(view, *parts)


def checklist_json(
    results: Sequence[CheckResult], spec_path: str, need_training: Sequence[str] = ()
) -> str:
    """Return what `repro-gate check --json` writes: the results with the fields of report.json's
    `checklist`, and what they add up to."""
    statuses = Counter(item.status for item in results)
    document = {
        "schema": SCHEMA_ID,
        "tool_version": __version__,
        "spec": spec_path,
        "counts": {status: statuses[status] for status in STATUSES},
        "coverage": [
            {"category": category, "passed": passed, "made": made}
            for category, passed, made in wording.coverage(results)
        ],
        "checklist": [asdict(item) for item in results],
        "need_training": list(need_training),
    }
    return to_text(jsonable(document))
