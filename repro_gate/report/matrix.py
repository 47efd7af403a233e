"""Several reports in one table.

`render` makes the comment of one commit: a row for each kind of machine, and what fails below it.
Runs are compared within one machine only, so each row stands for itself; the verdict of all is that
of the worst. `between` says on a terminal what changed between two reports: a row for each finding,
check and input that is not the same, side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from repro_gate.compare.model import Cost
from repro_gate.escape import and_more, clip, for_terminal
from repro_gate.report import comparisons, markdown, wording
from repro_gate.report.glance import first_rows, glance, reasons_above
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import (
    Block,
    Section,
    Table,
    labelled,
    sections,
)
from repro_gate.report.terminal import laid_out
from repro_gate.report.widgets import printed, text
from repro_gate.report.wording import Phrase, phrase, say

_HEADER = ("Where", "Result", "First to differ", "Determinism\u00a0cost", "Platform")
_WORST_FIRST = ("fail", "inconclusive", "recorded", "pass")
_LENGTH = 480  # characters of a sentence; a name has a quarter of them
_ACT = 2  # rank of the sections that say what is wrong and what to do
_FIRST = 7  # rows of one report
_ROWS = 40  # of `between`
# rows of a glance that `between` has in another form, or that say nothing of a change
_ELSEWHERE = ("checks", "config hash", "note", "compared", "runs")


def render(reports: Sequence[Report], view: View = PLAIN) -> str:
    """Return the Markdown of a comment on `reports` (at least one), in at most `view.limit`
    characters. Rows are in the order of their names, whatever order the reports come in."""
    cells = sorted(
        zip(_names(reports), reports, strict=True),
        key=lambda pair: (pair[0], pair[1].started),
    )
    worst = worst_of(reports)
    counts = Counter(report.verdict for report in reports)
    counted = ", ".join(
        f"{counts[word]} {word}" for word in _WORST_FIRST if counts[word]
    )
    heading = f"## {markdown.mark(worst)} Repro Gate: {worst.verdict} ({counted})"
    rows = tuple(_row(name, report) for name, report in cells)
    table = markdown.as_markdown(Table(_HEADER, rows), _LENGTH)
    *_, commit = markdown.footer(cells[0][1], view)

    def page(parts: Sequence[str], shortened: bool) -> str:
        more = "\n\nShortened: each job's report holds everything." * shortened
        return "\n\n".join((heading, table, *parts, commit)) + f"{more}\n"

    below = [
        (_ACT, _below(name, report))
        for name, report in cells
        if report.verdict != "pass"
    ]
    rest = "The table is too long for this place: see each job's report."
    text = markdown.fitted(page, below, view.limit, 4 * view.limit)
    return text if len(text) <= view.limit else f"{heading}\n\n{rest}\n"


def worst_of(reports: Sequence[Report]) -> Report:
    """Return the report with the worst verdict: one kind of machine that fails fails all."""
    return min(
        reports,
        key=lambda item: (_WORST_FIRST.index(item.verdict), not item.is_conditional),
    )


def _names(reports: Sequence[Report]) -> Iterator[str]:
    """Yield what tells each report from its siblings: the GPU, else the device; those of one kind
    by the report's folder, which is also the name of one whose training never came so far as to
    name a device. Untrusted text."""
    versions = [report.subject.versions for report in reports]
    devices = [item.get("gpu-model") or item.get("device") or "" for item in versions]
    for report, device in zip(reports, devices, strict=True):
        parts = [device]
        is_alone = device and devices.count(device) == 1
        if report.origin is not None and not is_alone:
            parts.append(report.origin.name)
        yield ", ".join(filter(None, parts)) or "unknown device"


def _row(name: str, report: Report) -> tuple[Phrase, ...]:
    pair = report.determinism
    missing = say("–")
    platform = missing
    if report.config_hash is not None:
        digest = comparisons.short(report.config_hash.platform)
        platform = say(digest.removeprefix("sha256:"), "name")
    result = f"{markdown.mark(report)} {report.verdict}: {{}}"
    return (
        say(name, "name"),
        phrase(result, wording.headline(report)),
        wording.where(pair.first_divergence if pair else None) or missing,
        comparisons.cost(report.cost) or missing,
        platform,
    )


def _below(name: str, report: Report) -> str:
    """Return what one row's report says against the change, folded. Markdown is not read inside a
    summary: there a name is HTML's code."""
    name = escape(clip(for_terminal(name), _LENGTH // 4))
    title = f"{markdown.mark(report)} <code>{name}</code>: why, and what to do"
    rows = first_rows(report, _FIRST)
    blocks: list[Block] = [labelled(rows)]
    for item in sections(report, 5, whole=False, known=reasons_above(report, rows)):
        if item.rank == _ACT:
            blocks += item.blocks
    body = Section(title, _ACT, tuple(blocks))
    return markdown.section(body, _LENGTH)


def between(a: Report, b: Report, names: tuple[str, str], view: View = PLAIN) -> str:
    """Return the table. `names` are the files. It prints whatever the texts hold."""
    hashed = a.config_hash is not None and b.config_hash is not None
    first = _facts(a, inputs=hashed)
    second = _facts(b, inputs=hashed)
    cost = say("cost")
    if first.get(cost) != second.get(cost):
        second[cost] = (*second.get(cost, ()), *_overlap(a.cost, b.cost))
    missing = say("none")
    changed = [
        (label, first.get(label) or missing, second.get(label) or missing)
        for label in {**first, **second}
        if first.get(label) != second.get(label)
    ]
    titles = [for_terminal(name, 160) for name in names]
    rows = Table(("", *titles), tuple(changed[:_ROWS]))
    more = say(and_more(len(changed) - _ROWS))
    return printed(view, laid_out(rows), *([text(more, "dim")] if more else []))


def _facts(report: Report, *, inputs: bool) -> dict[Phrase, Phrase]:
    """Return the verdict, what is seen first of a report, the status of each check, and the
    `inputs` of the config hash, by name."""
    lines = {
        "started": [say(report.started, "message")],
        "verdict": [say(report.verdict)],
        "result": [wording.headline(report)],
    }
    for row in glance(report):
        if row.label not in _ELSEWHERE:
            lines.setdefault(row.label, []).extend(row.lines)
    facts = {}
    for label, each in lines.items():
        facts[say(label)] = wording.joined(each, "; ")
    for item in report.checklist:
        check = phrase("check {name}", name=item.id)
        facts[check] = say(item.status, "message")
    if inputs and report.config_hash is not None:
        for root, name, value in comparisons.inputs(report.config_hash):
            input_label = phrase(f"{root} {{name}}", name=name)
            facts[input_label] = say(comparisons.short(value), "message")
    return facts


def _overlap(a: Cost | None, b: Cost | None) -> Phrase:
    """Return whether two costs may be the same."""
    if a is None or b is None:
        return ()
    low = max(a.ci95[0], b.ci95[0])
    high = min(a.ci95[1], b.ci95[1])
    words = "overlap: no change is shown" if low <= high else "do not overlap"
    return say(f"; the intervals {words}")
