"""The Report on a terminal: the verdict, why, and what to do, on one screen; the whole of it where
that was asked for (`View.verbose`). And the checklist of `repro-gate check`, which trains nothing.

At 80 columns, without colour, on an ASCII stream; foreign text goes through `widgets.text`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from rich.console import Group, RenderableType
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, for_terminal, listed
from repro_gate.report import glance, numbers, wording
from repro_gate.report.document import jsonable, to_text
from repro_gate.report.glance import Row, row
from repro_gate.report.model import PLAIN, Report, RunSummary, View
from repro_gate.report.sections import (
    Block,
    Code,
    Facts,
    Items,
    Table,
    check_items,
    sections,
    source_lines,
)
from repro_gate.report.widgets import (
    ELLIPSIS,
    EXTRA,
    fitted,
    grid,
    indented,
    printed,
    section,
    text,
    unicode,
    verdict_badge,
)
from repro_gate.report.wording import Phrase, phrase, say

MOST_OF_A_PASS, MOST = 15, 30  # lines
_FEW, _FILES = 3, 6  # runs that ended badly, and written files, that are named
_LOG = 8  # lines of a log
_ROWS = 20  # of a list; the rest is in the JSON report
SCHEMA_ID = "repro-gate/checklist/v1"
_COUNTED = (
    ("fail", "failed"),
    ("warn", "warn"),
    ("waived", "waived"),
    ("pass", "passed"),
    ("skip", "skipped"),
)


def render(report: Report, view: View = PLAIN, written: Sequence[str] = ()) -> str:
    """Return the report as lines of text, the verdict first. Whatever the texts hold and whatever
    the encoding is, it prints.

    A pass takes 15 lines at most, anything else 30; `view.verbose` prints all of it. `written` are
    the names of the files that were written besides.
    """
    if view.verbose:
        return printed(view, *parts(report))
    width = view.width - (0 if unicode(view) else len(ELLIPSIS) - 1)
    most = MOST_OF_A_PASS if report.verdict == "pass" else MOST
    # the noise floor has a line of its own
    headline = wording.headline(replace(report, noise_floor=None))
    head = row(report.verdict, 0, headline, form="verdict")
    answer = glance.answer_rows(report)
    answer[1:1] = _source(report.diagnosis)
    further = glance.further_rows(report)
    groups = [
        [item for item in rows if item.lines]
        for rows in ([head], answer, _log(report), further, _last(report, written))
    ]
    return printed(view, *fitted(groups, width, most))


def _source(why: Diagnosis | None) -> Iterator[Row]:
    """Yield the source lines around the cause. If space is short, only its own line stays."""
    for line in source_lines(why):
        if line.startswith(">"):
            yield row("", 2, say(line, "name"), form="cut")
        else:
            yield row("", EXTRA, say(line, "seen"), form="cut")


def _log(report: Report) -> Iterator[Row]:
    """Yield a row that names the runs that ended badly (not those that the gate stopped), then the
    end of the first one's log."""
    ended = [run for run in report.runs if wording.ended_badly(run)]
    if report.verdict == "inconclusive":
        more = say(and_more(len(ended) - _FEW, "runs"))
        yield row("ended", 2, *map(_ended, ended[:_FEW]), more, most=4)
    logged = [run for run in ended if run.log_tail and report.verdict != "pass"]
    for run in logged[:1]:
        yield row("", 2, phrase("end of the log of {name}:", name=run.name))
        tail = (line.expandtabs(4) for line in run.log_tail if line.strip())
        lines = (phrase("| {message}", message=line) for line in tail)
        yield row("", 2, *lines, most=_LOG, form="cut")


def _ended(run: RunSummary) -> Phrase:
    after = f"{numbers.count(run.steps, 'step')}, {numbers.duration(run.seconds)}"
    words = f"{{name}}: {{message}} after {after}"
    return phrase(words, name=run.name, message=wording.outcome(run))


def _last(report: Report, written: Sequence[str]) -> Iterator[Row]:
    """Return how many checks passed, how to see it again, and where the rest of the report is."""
    yield glance.checks_row(report)
    command = say(report.reproduce, "command")
    yield row("reproduce", 0, command, form="whole")
    more = say("`-v`, or `repro-gate show -v REPORT.json`, prints the rest")
    if written:
        names = listed([for_terminal(name, 200) for name in written], _FILES)
        more = phrase("`-v` prints the rest; written: {message}", message=names)
    yield row("more", 0, more, most=1)


def parts(report: Report) -> Iterator[RenderableType]:
    """Return everything that a person may want to read, the verdict first."""
    badge = verdict_badge(report.verdict)
    head = grid(len(badge), None)
    head.add_row(badge, text(wording.headline(report), "bold"))
    yield head
    for item in sections(report, _ROWS):
        # on one line, so that it can be copied
        if item.blocks[0] == Code(report.reproduce, "sh"):
            command = f"  {for_terminal(report.reproduce)}"
            yield from section(item.title, None)
            yield Text(command, style="bold", no_wrap=True)
        else:
            yield from section(item.title, Group(*map(laid_out, item.blocks)))


def laid_out(block: Block) -> RenderableType:
    """Return a block of a section as lines of a terminal."""
    table = grid(None)
    match block:
        case Facts(facts) if not any(label for label, _ in facts):
            return Group(*(text(phrase) for _, phrase in facts))
        case Facts(facts):
            table = grid(12, None)
            for label, line in facts:
                table.add_row(Text(label, style="dim"), text(line))
        case Items(items):
            for first, *below in items:
                table.add_row(text(first))
                for line in below:
                    table.add_row(indented(text(line)))
        case Code(code):
            lines = code.expandtabs(4).split("\n")
            return indented(Group(*(text(say(line, "message")) for line in lines)))
        case Table(head, rows):
            table = Grid(
                *(Column(title, overflow="fold") for title in head),
                box=None,
                padding=(0, 2, 0, 0),
                header_style="dim",
                pad_edge=False,
            )
            for cells in rows:
                table.add_row(*map(text, cells))
    return table


def render_checklist(
    results: Sequence[CheckResult],
    need_training: Sequence[str] = (),
    view: View = PLAIN,
) -> str:
    """Return every result by category, the worst first, and one line of counts at the end.

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
    if wording.undeclared(results):
        parts += [Text(""), Text(wording.undeclared(results), style="dim")]
    return printed(view, *parts, Text(""), _summary(results, len(need_training)))


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


def _summary(results: Sequence[CheckResult], waiting: int) -> Text:
    """Return `checklist: 3 failed, 2 warn, 9 passed, 4 need training (repro-gate run)`; of what
    there is none, only `passed` is said."""
    statuses = Counter(item.status for item in results)
    counts = [
        f"{statuses[status]:,} {word}"
        for status, word in _COUNTED
        if statuses[status] or status == "pass"
    ]
    if waiting:
        need = "needs" if waiting == 1 else "need"
        counts.append(f"{waiting:,} {need} training (repro-gate run)")
    colours = {"fail": "red", "warn": "yellow"}
    colour = next((colours[name] for name in colours if statuses[name]), "green")
    style = f"bold {colour}"
    # one line, so that a log can be searched for it
    return Text(f"checklist: {', '.join(counts)}", style=style, no_wrap=True)
