"""The Report as GitHub Markdown: the comment of a pull request and the summary of a job. First the
heading and a table of what is seen first, then the report's `sections`; what was not measured or
not asked for has no row.

Text from outside is made safe by `code`, `message` and `prose`, and by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from repro_gate import escape
from repro_gate._version import DOCS_URL
from repro_gate.checks.pages import url
from repro_gate.escape import and_more, counted
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.glance import Row, compared_with, first_rows, reasons_above
from repro_gate.report.model import PLAIN, Reason, Report, View
from repro_gate.report.sections import (
    Block,
    Code,
    Items,
    Section,
    Table,
    sections,
)
from repro_gate.report.wording import Phrase, say

MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "recorded": "📼", "warn": "⚠️", "skip": "⏭️",
    "waived": "📝", "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌",
    "new-platform": "🆕",
}  # fmt: skip
# characters of a sentence; a name has a quarter of them
GLANCE = 300  # in the first table; what is folded has more
LEAST = 240
_LENGTH = 1_000
_AMPLE = 2_000
_LINES = 5  # of one row
# bytes: GitHub takes 1 MiB from one step, and the step may have more to say
SUMMARY_LIMIT = 1_000_000
ROOM = 8_000  # bytes that a comment takes where that can be had: more is not read
_ROWS, _ALL_ROWS = 7, 100  # of the first table, in a comment and in a summary
# in the brackets at the end of a remedy
_PAGE = re.compile(rf"(?<=\(){re.escape(DOCS_URL)}/([a-zA-Z/-]+)\.md(?=\))")


def comment(report: Report, view: View = PLAIN) -> str:
    """Return the comment, in at most ROOM bytes if sections can be left out, and in at most
    `view.limit` characters, which are 200 or more. The verdict is always in it."""
    limit = view.limit
    rows = first_rows(report, _ROWS)
    page = partial(_page, report, view, _head(report, view, rows))
    known = _told_whole(report, rows)

    text = ""
    for most, length in ((10, _LENGTH), (4, LEAST)):
        items = sections(report, most, whole=False, known=known)
        parts = [(item.rank, section(item, length)) for item in items]
        text = fitted(page, parts, limit, ROOM)
        # else each says less, so that more of them stay
        if len(parts) == len(items):
            break
    return text if len(text) <= limit else _short(report)


def line(
    report: Report,
    view: View = PLAIN,
    *,
    before: str = "",
    cost_before: tuple[float, float] | None = None,
) -> str:
    """Return a pass in one line, for a reviewer who knows the rest: what stayed, what changed, and
    every weakened check.

    `before` is the verdict of the comment that this one replaces, `cost_before` the interval of the
    cost there.
    """
    same = wording.TOLERATED if wording.diverged(report) else "bitwise identical"
    cost = report.cost
    cost_text = ""
    if before:
        same += ", as before" if before == "pass" else f"; the run before: {before}"
    if cost is not None:
        figure = comparisons.cost(replace(cost, max_percent=None, flags=()))
        cost_text = f"; determinism cost: {prose(figure, _LENGTH)}"
        if cost_before is not None:
            cost_text += f", before {numbers.interval(cost_before)}"
    if lost := wording.non_finite(report):
        cost_text += f"; {MARKS['warn']} losses that are {lost}"
    title = f"{MARKS[report.verdict]} **Repro Gate: {report.verdict}**"
    changes = [
        prose(row.lines[0], _LENGTH)
        for row in compared_with(report)
        if ("status", "unchanged") not in row.lines[0]
    ]
    weakened = [
        section(item, _LENGTH)
        for item in sections(report, 10, whole=False)
        if item.rank == 0
    ]
    text = _page(report, view, [f"{title}, {same}{cost_text}.", *changes], weakened)
    return text if len(text) <= view.limit else comment(report, view)


def summary(report: Report, view: View = PLAIN, limit: int = SUMMARY_LIMIT) -> str:
    """Return the report for a page of its own, in at most `limit` bytes of UTF-8: all of it, and
    unfolded."""

    rows = first_rows(report, _ALL_ROWS)
    page = partial(_page, report, view, _head(report, view, rows))
    items = sections(report, 200, known=_told_whole(report, rows))
    parts = [(item.rank, section(item, _AMPLE, opened=" open")) for item in items]
    text = fitted(page, parts, limit, limit)
    return text if len(text.encode()) <= limit else _short(report)


def fitted(
    page: Callable[[Sequence[str], bool], str],
    parts: list[tuple[int, str]],
    characters: int,
    size: int,
) -> str:
    """Return the page with as many sections as fit into so many characters and bytes. Sections are
    removed from `parts` in place, the largest rank first, rank 0 never. `page` takes the rest, and
    whether any was removed."""
    every = len(parts)
    while True:
        text = page([body for _, body in parts], len(parts) < every)
        ranks = [rank for rank, _ in reversed(parts)]
        fits = len(text) <= characters and len(text.encode()) <= size
        if fits or not any(ranks):
            return text
        del parts[-1 - ranks.index(max(ranks))]


def _short(report: Report) -> str:
    """Return the verdict and how much is weakened, for a report that is too long even without its
    sections."""
    title = f"## {mark(report)} Repro Gate: {report.verdict}\n"
    if weakened := len(report.weakened):
        title += f"\n{MARKS['warn']} **{comparisons.WEAKENED_TITLE}:** "
        title += f"{counted(weakened, 'weakened check')}.\n"
    return f"{title}\nThe report is too long for this place: see the JSON report.\n"


def _page(
    report: Report,
    view: View,
    head: Sequence[str],
    parts: Sequence[str],
    shortened: bool = False,
) -> str:
    *lines, last = footer(report, view)
    version = code(report.tool_version, _LENGTH)
    by = f"repro-gate {version}, started {code(report.started, _LENGTH)}"
    more = ". Shortened: the JSON report holds everything" * shortened
    took = f"took {numbers.duration(report.seconds)}{more}."
    foot = f"<sub>{last} · {by}, {took}</sub>"
    return "\n\n".join(filter(None, (*head, *parts, *lines, foot))) + "\n"


def _head(report: Report, view: View, rows: Sequence[Row]) -> list[str]:
    """Return the heading, and the rows as a table, whose first row has to be its head."""
    comma = "" if report.is_conditional else ","
    title = f"## {mark(report)} Repro Gate: {report.verdict}{comma} "
    links = _links(report, view)
    title += prose(wording.headline(report), _LENGTH, links)
    lines = [_cells(row, links) for row in rows]
    if lines:
        lines.insert(1, "| :--- | :--- |")
    return [title, "\n".join(lines)]


def section(item: Section, length: int, opened: str = "") -> str:
    """Return a section: folded, but for what has no title, and for what a reviewer must see."""
    length = length if item.rank else LEAST  # what is always there must be short
    body = "\n\n".join(as_markdown(block, length) for block in item.blocks)
    if not item.title:
        return body
    if item.rank == 0:
        return f"### {MARKS['warn']} {item.title}\n\n{body}"
    return f"<details{opened}><summary>{item.title}</summary>\n\n{body}\n\n</details>"


def as_markdown(block: Block, length: int) -> str:
    """Return a block of a section."""
    match block:
        case Code(text, language):
            return escape.for_code_block(text, language)
        case Items([[sentence]]):
            return prose(sentence, length)
        case Items(items):
            lines = (
                "<br>".join(prose(line, length) for line in item) for item in items
            )
            return "\n".join(f"- {line}" for line in lines)
        case Table(head, cells):
            body = ([prose(cell, length) for cell in row] for row in cells)
            rule = ["---"] * len(head)
            return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def mark(report: Report) -> str:
    """Return the mark of a report's verdict; of a pass under a condition it is that of a
    warning."""
    return MARKS["warn" if report.is_conditional else report.verdict]


def _cells(row: Row, links: Mapping[str, str]) -> str:
    """Return a row of the first table."""
    lines = row.lines
    if more := and_more(len(lines) - _LINES, "line"):  # the last ones hold the proof
        lines = (*lines[: _LINES - 2], say(more), *lines[-2:])
    value = "<br>".join(prose(line, GLANCE, links) for line in lines)
    return f"| **{row.label.capitalize()}** | {value} |"


def footer(report: Report, view: View) -> list[str]:
    """Return where the report comes from, a line each: the page and its run, then the commit and
    the base."""
    lines = []
    parts = [f"Commit {_commit(report)}"]
    if view.page_url:
        whole = link("open the page", view.page_url)
        lines.append(f"The whole report: {whole}")
    elif view.run_url:
        name = report.origin.name if report.origin is not None else ""
        how = (
            "; its `report.html` is the training's file: `repro-gate show report.json --html "
            "page.html` makes a page"
            if view.by_training
            else ", `report.html`"
        )
        artifact = link("artifact", f"{view.run_url}#artifacts")
        name = code(name or "repro-gate-report", GLANCE)
        lines.append(f"The whole report: {artifact} {name}{how}")
    if view.run_url:
        parts.append(link("workflow run", view.run_url))
    base = report.base
    if base is not None and not base.weakened:
        parts.append(f"base {prose(comparisons.base_policy(base), GLANCE)}")
    if view.by_training:
        parts.append("written by the training's job")
    return [*lines, " · ".join(parts)]


def _told_whole(report: Report, rows: Sequence[Row]) -> list[Reason]:
    """Return the reasons that heading and table tell, and do not cut."""
    return [
        item
        for item in reasons_above(report, rows)
        if max(len(item.message), len(item.remedy)) <= GLANCE
    ]


def link(text: str, address: str) -> str:
    """Return a link of ours."""
    return f"[{text}](<{escape.for_address(address)}>)"


def _links(report: Report, view: View) -> Mapping[str, str]:
    """Return a line, `src/train.py:41`, and its address, of each that the diagnosis names and that
    has one."""
    cause = report.diagnosis
    return {
        findings.place(item): address
        for item in (() if cause is None else (cause, *cause.also))
        if (address := findings.address(report, view, item))
    }


def _commit(report: Report) -> str:
    """Return the head that was pushed; where another commit was checked out (GitHub's trial merge),
    that one too."""
    subject = report.subject
    head = report.origin.head_sha if report.origin is not None else subject.commit
    parts = [code(comparisons.short(head), GLANCE) if head else "not in git"]
    if subject.commit and subject.commit != head:
        parts.append(f"tested as {code(comparisons.short(subject.commit), GLANCE)}")
    if count := len(subject.uncommitted):
        paths = counted(count, "uncommitted path")
        parts.append(f"{MARKS['warn']} with {paths}")
    return ", ".join(parts)


def code(text: str, length: int) -> str:
    """Return a name or a value as inline code."""
    return escape.for_code_span(escape.clip(text, length // 4))


def message(text: str, length: int) -> str:
    """Return a foreign sentence as inert prose; a page of our documentation is a link."""
    words = _PAGE.split(escape.clip(text, length))
    words[::2] = map(escape.for_markdown, words[::2])
    words[1::2] = (link(name, f"{DOCS_URL}/{name}.md") for name in words[1::2])
    return "".join(words)


def prose(phrase: Phrase, length: int, links: Mapping[str, str] | None = None) -> str:
    """Return a shared sentence: names as code, figures bold, foreign messages made inert, our own
    words as they are. `links` has the address of names that are lines of the checkout."""

    def part(role: str, words: str) -> str:
        match role:
            case "name" | "seen" if links and words in links:
                # a table is as wide as its longest name, and a phone is narrow
                name = words.rpartition("/")[2] if length == GLANCE else words
                return link(code(name, length), links[words])
            case "name" | "seen":
                return code(words, length)
            case "id":
                page = url(words)
                name = code(words, length)
                return name if page is None else f"[{name}]({page})"
            case "page":
                return f"[{words}]({findings.page_of(words)})"
            case "status" | "fault":
                mark = MARKS["fail"] if role == "fault" else MARKS.get(words, "")
                return f"{mark} **{message(words, length)}**"
            case "message":
                return message(words, length)
            case "figure" if words:
                return f"**{words}**"
        return words

    return "".join(part(role, words) for role, words in phrase)
