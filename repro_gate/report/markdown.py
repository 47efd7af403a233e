"""The Report as GitHub Markdown: the comment of a pull request and the summary of a job. What is
seen first is made in `markdown_text`, what comes below it are the report's `sections`.

Every text from outside has gone through `markdown_text`: what is Markup here is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from repro_gate import escape
from repro_gate.report import comparisons, numbers, wording
from repro_gate.report.glance import Row
from repro_gate.report.markdown_text import (
    MARKS,
    Form,
    cells,
    code,
    first_rows,
    footer,
    heading,
    prose,
    reasons_shown,
)
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import MAP, Block, Code, Facts, Items, Section, Table, sections
from repro_gate.report.wording import phrase

LIMIT = 65_536  # characters (code points) of a comment on GitHub
SUMMARY_LIMIT = (
    1_000_000  # bytes: GitHub takes 1 MiB from one step, and the step may have more to say
)
ROOM = 8_000  # bytes that a comment takes where that can be had: more is not read
_ROWS = 7  # of a comment's first table
_FORM, _AMPLE, _LEAST = Form(), Form(name=500, message=2_000), Form(name=60, message=300)


def comment(report: Report, view: View = PLAIN) -> str:
    """Return the comment, in at most ROOM bytes if sections can be left out, and in at most
    `view.limit` characters. The verdict is always in it."""
    limit = LIMIT if view.limit is None else view.limit
    first = first_rows(report, _ROWS)
    head = [_title(report, view), _first_table(report, view, first)]

    def fits(text: str) -> bool:
        return len(text) <= limit and len(text.encode()) <= ROOM

    text = ""
    for rows, form in ((10, _FORM), (4, _LEAST)):
        found = sections(report, rows, whole=False, known=reasons_shown(report, first))
        parts = [(item.rank, _section(item, form, opened="")) for item in found]
        needed = [part for part in parts if part[0] < MAP]
        text = _fitted(report, view, head, parts, fits)
        if all(part in parts for part in needed):  # else each says less, so that more of them stay
            break
    return text if len(text) <= limit else _short(report, lambda text: len(text) <= limit, limit)


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
    head = [Markup(f"{MARKS[report.verdict]} **Repro Gate: {report.verdict}**, ") + sentence + "."]
    weakened = [
        _section(item, _FORM, opened="")
        for item in sections(report, 10, whole=False)
        if item.rank == 0
    ]
    text = _page(report, view, [*head, *_changes(report), *weakened])
    return text if len(text) <= limit else comment(report, view)


def summary(report: Report, view: View = PLAIN) -> str:
    """Return the report for a page of its own, in at most `view.limit` bytes of UTF-8: all of it,
    and unfolded."""
    limit = SUMMARY_LIMIT if view.limit is None else view.limit

    def fits(text: str) -> bool:
        return len(text.encode()) <= limit

    head = [_title(report, view), _first_table(report, view, first_rows(report, 100))]
    found = [(item.rank, _section(item, _AMPLE, opened=" open")) for item in sections(report, 200)]
    text = _fitted(report, view, head, found, fits)
    return text if fits(text) else _short(report, fits, limit)


def _fitted(
    report: Report,
    view: View,
    head: Sequence[Markup],
    found: list[tuple[int, Markup]],
    fits: Callable[[str], bool],
) -> str:
    """Return the page without as many sections, those of the largest rank first, as it takes to
    fit; what has rank 0 stays."""
    text = _page(report, view, [*head, *(body for _, body in found)])
    while not fits(text) and (largest := max((rank for rank, _ in found), default=0)):
        last = max(index for index, (rank, _) in enumerate(found) if rank == largest)
        del found[last]
        text = _page(report, view, [*head, *(body for _, body in found)], shortened=True)
    return text


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


def _page(report: Report, view: View, parts: Sequence[Markup], *, shortened: bool = False) -> str:
    *lines, last = footer(report, view)
    by = [
        Markup("repro-gate ") + code(report.tool_version, _FORM),
        Markup("started ") + code(report.started, _FORM),
        Markup(f"took {numbers.duration(report.seconds)}"),
    ]
    more = ". Shortened: the JSON report holds everything" if shortened else ""
    foot = Markup("<sub>") + last + Markup(" · ") + Markup(", ").join(by) + Markup(f"{more}.</sub>")
    return "\n\n".join(part for part in (*parts, *lines, foot) if part) + "\n"


def _title(report: Report, view: View) -> Markup:
    return Markup(f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}, ") + heading(
        report, view
    )


def _first_table(report: Report, view: View, rows: Sequence[Row]) -> Markup:
    """Return the rows as a table, whose first row has to be its head."""
    lines = [cells(row, report, view) for row in rows]
    return Markup("\n").join(
        [*lines[:1], *([Markup("| :--- | :--- |")] if lines else []), *lines[1:]]
    )


def _section(section: Section, form: Form, *, opened: str) -> Markup:
    """Return a section: folded, but for what has no title, and for what a reviewer must see."""
    form = form if section.rank else _LEAST  # what is always there must be short
    body = Markup("\n\n").join(as_markdown(block, form) for block in section.blocks)
    if not section.title:
        return body
    if section.rank == 0:
        return Markup(f"### {MARKS['warn']} {section.title}\n\n") + body
    fold = Markup(f"<details{opened}><summary>{section.title}</summary>\n\n")
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
    found = [
        (Markup(), report.baseline),
        (
            Markup("against ") + code(report.against.ref, _FORM) + ", "
            if report.against
            else Markup(),
            report.against,
        ),
    ]
    return [
        start
        + prose(phrase("{status}: {message}", status=item.status, message=item.message), _FORM)
        for start, item in found
        if item and item.status != "unchanged"
    ]


def _one_line(report: Report, before: str, cost_before: tuple[float, float] | None) -> Markup:
    found, price = report.determinism, report.cost
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
        said += f", before {numbers.interval(cost_before)}" if cost_before is not None else ""
    said += (
        f"; {MARKS['warn']} losses that are not finite: {lost}"
        if (lost := wording.non_finite(report))
        else ""
    )
    return Markup(said)
