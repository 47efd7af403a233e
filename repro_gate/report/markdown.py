"""The Report as GitHub Markdown: the comment of a pull request and the summary of a job. First the
heading and a table of what is seen first, then the report's `sections`; what was not measured or
not asked for has no row.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from repro_gate import escape
from repro_gate.checks.pages import url
from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.findings import address
from repro_gate.report.glance import Row, compared_with, glance, telling
from repro_gate.report.model import PLAIN, Reason, Report, View
from repro_gate.report.sections import (
    MAP,
    Block,
    Code,
    Facts,
    Items,
    Section,
    Table,
    sections,
)
from repro_gate.report.wording import Phrase, say

_BREAK = Markup("<br>")
_DOT = Markup(" · ")
MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "warn": "⚠️", "skip": "⏭️", "waived": "📝",
    "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌", "new-platform": "🆕",
}  # fmt: skip
GLANCE = 300  # characters of one text in the first table; what is folded has more
_HEADING = 160  # characters of a reason in the heading
_LINES = 5  # of one row
Links = Mapping[str, str]  # a line, `src/train.py:41`, and its address
LIMIT = 65_536  # characters (code points) of a comment on GitHub
# bytes: GitHub takes 1 MiB from one step, and the step may have more to say
SUMMARY_LIMIT = 1_000_000
ROOM = 8_000  # bytes that a comment takes where that can be had: more is not read
_ROWS = 7  # of a comment's first table


@dataclass(frozen=True, kw_only=True)
class Form:
    """How long a text may be: characters of a name and of a sentence."""

    name: int = 200
    message: int = 1_000


NARROW = Form(name=100, message=GLANCE)  # of what is seen first
_FORM = Form()
_AMPLE = Form(name=500, message=2_000)
_LEAST = Form(name=60, message=300)


def comment(report: Report, view: View = PLAIN) -> str:
    """Return the comment, in at most ROOM bytes if sections can be left out, and in at most
    `view.limit` characters. The verdict is always in it."""
    limit = LIMIT if view.limit is None else view.limit
    first = first_rows(report, _ROWS)
    page = partial(_page, report, view, _head(report, view, first))

    def fits(text: str) -> bool:
        return len(text) <= limit and len(text.encode()) <= ROOM

    text = ""
    for rows, form in ((10, _FORM), (4, _LEAST)):
        found = sections(report, rows, whole=False, known=reasons_shown(report, first))
        parts = [(item.rank, section(item, form)) for item in found]
        needed = [part for part in parts if part[0] < MAP]
        text = fitted(page, parts, fits)
        # else each says less, so that more of them stay
        if all(part in parts for part in needed):
            break
    return (
        text
        if len(text) <= limit
        else _short(report, lambda text: len(text) <= limit, limit)
    )


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
    limit = LIMIT if view.limit is None else view.limit
    sentence = _one_line(report, before, cost_before)
    head = [
        Markup(f"{MARKS[report.verdict]} **Repro Gate: {report.verdict}**, ")
        + sentence
        + "."
    ]
    weakened = [
        section(item, _FORM)
        for item in sections(report, 10, whole=False)
        if item.rank == 0
    ]
    text = _page(report, view, [*head, *_changes(report)], weakened)
    return text if len(text) <= limit else comment(report, view)


def summary(report: Report, view: View = PLAIN) -> str:
    """Return the report for a page of its own, in at most `view.limit` bytes of UTF-8: all of it,
    and unfolded."""
    limit = SUMMARY_LIMIT if view.limit is None else view.limit

    def fits(text: str) -> bool:
        return len(text.encode()) <= limit

    page = partial(_page, report, view, _head(report, view, first_rows(report, 100)))
    found = [
        (item.rank, section(item, _AMPLE, opened=" open"))
        for item in sections(report, 200)
    ]
    text = fitted(page, found, fits)
    return text if fits(text) else _short(report, fits, limit)


def fitted(
    page: Callable[[Sequence[Markup], bool], str],
    found: list[tuple[int, Markup]],
    fits: Callable[[str], bool],
) -> str:
    """Return the page of as many sections as fit, which stay in `found`: those of the largest rank
    go first, and what has rank 0 stays. `page` also takes whether any is gone."""
    shortened = False
    while True:
        text = page([body for _, body in found], shortened)
        ranks = [rank for rank, _ in found]
        if fits(text) or not any(ranks):
            return text
        last = ranks[::-1].index(max(ranks))
        del found[-1 - last]
        shortened = True


def _short(report: Report, fits: Callable[[str], bool], limit: int) -> str:
    """Return a few lines, and where not even these fit the beginning of the verdict."""
    title = f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}\n"
    rest = "\nThe report is too long for this place: see the JSON report.\n"
    weakened = len(report.base.weakened) if report.base is not None else 0
    warning = (
        f"\n{MARKS['warn']} **{comparisons.WEAKENED_TITLE}:** "
        f"{numbers.count(weakened, 'weakened check')}.\n"
        if weakened
        else ""
    )
    texts = (f"{title}{warning}{rest}", f"{title}{warning}")
    return next(filter(fits, texts), report.verdict[:limit])


def _page(
    report: Report,
    view: View,
    head: Sequence[Markup],
    parts: Sequence[Markup],
    shortened: bool = False,
) -> str:
    *lines, last = footer(report, view)
    by = [
        Markup("repro-gate ") + code(report.tool_version, _FORM),
        Markup("started ") + code(report.started, _FORM),
        Markup(f"took {numbers.duration(report.seconds)}"),
    ]
    more = ". Shortened: the JSON report holds everything" if shortened else ""
    foot = (
        Markup("<sub>")
        + last
        + Markup(" · ")
        + Markup(", ").join(by)
        + Markup(f"{more}.</sub>")
    )
    return "\n\n".join(part for part in (*head, *parts, *lines, foot) if part) + "\n"


def _head(report: Report, view: View, rows: Sequence[Row]) -> list[Markup]:
    """Return the heading, and the rows as a table, whose first row has to be its head."""
    title = Markup(f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}, ")
    lines = [cells(row, report, view) for row in rows]
    if lines:
        lines.insert(1, Markup("| :--- | :--- |"))
    return [title + heading(report, view), Markup("\n").join(lines)]


def section(item: Section, form: Form, opened: str = "") -> Markup:
    """Return a section: folded, but for what has no title, and for what a reviewer must see."""
    form = form if item.rank else _LEAST  # what is always there must be short
    body = Markup("\n\n").join(as_markdown(block, form) for block in item.blocks)
    if not item.title:
        return body
    if item.rank == 0:
        return Markup(f"### {MARKS['warn']} {item.title}\n\n") + body
    fold = Markup(f"<details{opened}><summary>{item.title}</summary>\n\n")
    return fold + body + Markup("\n\n</details>")


def as_markdown(block: Block, form: Form) -> Markup:
    """Return a block of a section."""
    lines: list[Markup]
    match block:
        case Code(text, language):
            return Markup(escape.for_code_block(text, language))
        case Facts([("", phrase)]):  # a sentence by itself
            return prose(phrase, form)
        case Facts(facts):
            lines = [
                Markup(f"- {label}: " if label else "- ") + prose(phrase, form)
                for label, phrase in facts
            ]
        case Items(items):
            lines = [
                Markup("- ") + Markup("<br>").join(prose(line, form) for line in item)
                for item in items
            ]
        case Table(head, cells):
            lines = [
                Markup("| ") + Markup(" | ").join(row) + Markup(" |")
                for row in (
                    map(Markup, head),
                    [Markup("---")] * len(head),
                    *([prose(cell, form) for cell in row] for row in cells),
                )
            ]
    return Markup("\n").join(lines)


def _changes(report: Report) -> list[Markup]:
    """Return what is new since the baseline and another ref."""
    unchanged = ("status", "unchanged")
    first = [row.lines[0] for row in compared_with(report)]
    return [prose(line, _FORM) for line in first if unchanged not in line]


def _one_line(
    report: Report, before: str, cost_before: tuple[float, float] | None
) -> Markup:
    found = report.determinism
    price = report.cost
    identical = found is None or found.identical
    said = (
        "bitwise identical"
        if identical
        else "not bitwise identical, but within the tolerance of the spec"
    )
    said += {"": "", "pass": ", as before"}.get(before, f"; the run before: {before}")
    if price is not None:
        said += (
            f"; determinism costs **{numbers.percent(price.determinism_cost_pct)}**, 95% interval "
            f"{numbers.interval(price.ci95)}"
        )
        said += (
            f", before {numbers.interval(cost_before)}"
            if cost_before is not None
            else ""
        )
    said += (
        f"; {MARKS['warn']} losses that are not finite: {lost}"
        if (lost := wording.non_finite(report))
        else ""
    )
    return Markup(said)


def heading(report: Report, view: View) -> Markup:
    """Return verdict and cause in one sentence: of a report that neither passed nor diverged, its
    first reason."""
    first = _heading_reason(report)
    if first is not None:
        return message(first.message.rstrip(". "), Form(message=_HEADING))
    return prose(wording.headline(report), _FORM, _links(report, view))


def _heading_reason(report: Report) -> Reason | None:
    if report.verdict == "pass" or wording.diverged(report) or wording.drifted(report):
        return None
    return next(iter(report.reasons), None)


def _known(report: Report) -> list[Reason]:
    """Return the reason that the heading tells whole."""
    first = _heading_reason(report)
    return [] if first is None or len(first.message) > _HEADING else [first]


def first_rows(report: Report, most: int) -> list[Row]:
    """Return the rows of the first table: of all that no section says, those of the lowest
    ranks."""
    rows = [row for row in glance(report, _known(report)) if not row.has_section]
    kept = sorted(rows, key=lambda row: row.rank)[:most]
    return [row for row in rows if row in kept]


def cells(row: Row, report: Report, view: View) -> Markup:
    """Return a row of the first table."""
    links = _links(report, view)
    lines = row.lines
    if more := and_more(len(lines) - _LINES, "lines"):  # the last ones hold the proof
        lines = (*lines[: _LINES - 2], say(more), *lines[-2:])
    value = _BREAK.join(prose(line, NARROW, links) for line in lines)
    return Markup(f"| **{row.label.capitalize()}** | ") + value + Markup(" |")


def footer(report: Report, view: View) -> list[Markup]:
    """Return where the report comes from, a line each: the page and its run, then the commit and
    the base."""
    origin = report.origin
    lines = []
    if view.run_url:
        name = (
            origin.name if origin is not None and origin.name else "repro-gate-report"
        )
        page = (
            link(Markup("artifact"), f"{view.run_url}#artifacts")
            + " "
            + code(name, NARROW)
        )
        # what another one's run left is not to be opened in a browser
        how = ", `report.html`"
        if view.foreign:
            how = "; `repro-gate show report.json --html page.html` makes a page of it"
        lines.append(Markup("The whole report: ") + page + Markup(how))
    parts = [Markup("Commit ") + _commit(report)]
    if view.run_url:
        parts.append(link(Markup("workflow run"), view.run_url))
    if report.base is not None and not report.base.weakened:
        parts.append(
            Markup("base ") + prose(comparisons.base_policy(report.base), NARROW)
        )
    return [*lines, _DOT.join(parts)]


def reasons_shown(report: Report, rows: Sequence[Row]) -> tuple[Reason, ...]:
    """Return the reasons that heading and table tell whole, with what to do."""
    left = [*_known(report), *telling(report, _known(report))]
    shown = [row.reason for row in rows if row.reason is not None]
    if report.diagnosis is None:  # a row of its own says what to do about the first
        shown += [*left, *report.reasons][:1]
    else:
        shown += [item for item in report.reasons if item not in left]
    return tuple(
        item for item in shown if max(len(item.message), len(item.remedy)) <= GLANCE
    )


def link(text: Markup, address: str) -> Markup:
    """Return a link of ours."""
    return Markup("[") + text + Markup(f"](<{escape.for_address(address)}>)")


def _links(report: Report, view: View) -> Links:
    """Return the address of each line that the diagnosis names, where it has one."""
    cause = report.diagnosis
    causes = () if cause is None else (cause, *cause.also)
    addresses = {findings.place(item): address(report, view, item) for item in causes}
    return {place: at for place, at in addresses.items() if at}


def _commit(report: Report) -> Markup:
    """Return the head that was pushed; where another commit was checked out (GitHub's trial merge),
    that one too."""
    origin = report.origin
    subject = report.subject
    tested = (
        None
        if subject.commit is None
        else code(comparisons.short(subject.commit), NARROW)
    )
    parts = [tested or Markup("not in git")]
    if origin is not None:
        parts = [code(comparisons.short(origin.head_sha), NARROW)]
        if tested is not None and subject.commit != origin.head_sha:
            parts.append(Markup("tested as ") + tested)
    if subject.uncommitted:
        parts.append(
            Markup(
                f"{MARKS['warn']} with "
                f"{numbers.count(len(subject.uncommitted), 'uncommitted path')}"
            )
        )
    return Markup(", ").join(parts)


def code(text: object, form: Form) -> Markup:
    """Return a name or a value as inline code."""
    return Markup(escape.for_code_span(escape.clip(str(text), form.name)))


def message(text: str, form: Form) -> Markup:
    """Return a foreign sentence as inert prose."""
    return Markup(escape.for_markdown(escape.clip(text, form.message)))


def prose(phrase: Phrase, form: Form, links: Links | None = None) -> Markup:
    """Return a shared sentence: names as code, figures bold, foreign messages made inert, our own
    words as they are. `links` has, of names that are lines of the checkout, what is shown and the
    address."""

    def part(role: str, words: str) -> str:
        if role in ("name", "seen"):
            return _linked(words, form, links or {})
        if role == "id":
            page = url(words)
            return (
                code(words, form) if page is None else f"[{code(words, form)}]({page})"
            )
        if role == "page":
            return f"[{words}]({findings.page_of(words)})"
        if role in ("status", "fault"):
            mark = MARKS["fail"] if role == "fault" else MARKS.get(words, "")
            return f"{mark} **{message(words, form)}**"
        if role == "message":
            return message(words, form)
        return f"**{words}**" if role == "figure" and words else words

    return Markup("".join(part(role, words) for role, words in phrase))


def _linked(words: str, form: Form, links: Links) -> Markup:
    """Return a name; in a table a line with an address is `train.py:41`: a table is as wide as its
    longest name, and a phone is narrow."""
    if words not in links:
        return code(words, form)
    name = words.rpartition("/")[2] if form is NARROW else words
    return link(code(name, form), links[words])
