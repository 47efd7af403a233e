"""The Report as one static page: no script, nothing loaded from elsewhere, readable without a
stylesheet, in at most MAX_BYTES.

Text from outside passes `drawing.shown` and is escaped by the template engine; only drawings and
phrases made here are Markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate.checks.pages import url
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report import drawing, findings, heat_map, numbers, wording
from repro_gate.report.drawing import shown, tag
from repro_gate.report.findings import address
from repro_gate.report.model import PLAIN, Report, Subject, View
from repro_gate.report.sections import Block, Code, Facts, Items, Section, Table, sections
from repro_gate.report.wording import Phrase

MAX_BYTES = 1024 * 1024
_ROWS = (200, 60, 15)  # rows of a list; fewer where the page would be too large
_TEXT = (600, 300, 120)  # characters of one text
_FOLDED = 12  # rows from which on a table is folded
_SOURCE = 1  # rank of the lines around the cause, which the page marks and links


def render(report: Report, view: View = PLAIN) -> str:
    """The page as text, in at most MAX_BYTES of UTF-8: what is too large is drawn coarser and cut
    shorter, and the page says so."""
    for shorter, (rows, text) in enumerate(zip(_ROWS, _TEXT, strict=True)):
        page = _rendered(report, view, rows, text, shortened=shorter > 0)
        if len(page.encode()) <= MAX_BYTES:
            return page
    bare = Report(
        verdict=report.verdict,
        tool_version="",
        started="",
        seconds=0.0,
        subject=Subject(spec="", command="", commit=None),
    )
    return _rendered(bare, PLAIN, _ROWS[-1], _TEXT[-1], shortened=True)


@cache
def _environment(limit: int) -> Environment:
    """`limit`: characters of one text from outside."""
    environment = Environment(
        loader=PackageLoader("repro_gate.report", "templates"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else shown(value, limit),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=numbers.duration, prose=lambda words: drawing.prose(words, limit)
    )
    return environment


def _rendered(report: Report, view: View, rows: int, text: int, *, shortened: bool) -> str:
    """The template's context, in the page's order."""

    def said(phrase: Phrase) -> Markup:
        return _phrase(phrase, text)

    found = report.diagnosis
    # what the headline, the cause and its remedy tell
    known = (
        ()
        if found is None
        else [item for item in report.reasons if not findings.says_more(item, found)]
    )
    parts = [
        item
        for item in sections(report, rows, known=known)
        if item.rank != _SOURCE and "by module and step" not in item.title
    ]
    glance = [item for item in parts if _is_seen_first(item)]
    below = [item for item in parts if not _is_seen_first(item)]
    context: dict[str, object] = {
        "title": f"Repro Gate: {report.verdict}",
        "verdict": report.verdict,
        "headline": said(wording.headline(report)),
        "why": [said(line) for line in findings.why(found)] if found is not None else [],
        "excerpts": _excerpts(report, view),
        "remedy": (found.remedy, findings.page_of(found.cause)) if found is not None else None,
        "glance": [_section(item, text) for item in glance],
        "maps": heat_map.maps(report, rows // 5),
        "growth": drawing.growth(report),
        "cost": drawing.cost(report.cost) if report.cost is not None else "",
        "legend": heat_map.legend(),
        "below": [_section(item, text) for item in below],
        "report": report,
        "run_url": quote(view.run_url, safe="/:?&=#%@+,;~-._")
        if view.run_url.startswith("https://")
        else "",
        "shortened": shortened,
    }
    return (
        _environment(8_000 if not shortened else 2 * text)
        .get_template("page.html.j2")
        .render(context)
        .encode("utf-8", "backslashreplace")
        .decode("utf-8")
    )


def _is_seen_first(item: Section) -> bool:
    return item.rank < 3 or item.title.startswith(("Against", "What"))


def _section(item: Section, limit: int) -> tuple[str, str, Markup]:
    """Return the anchor, title and body of a section."""
    title = item.title or "Logs"
    body = Markup("").join(_block(block, title, limit) for block in item.blocks)
    return re.sub("[^a-z]+", "-", title.lower()), title, body


def _block(block: Block, title: str, limit: int) -> Markup:
    match block:
        case Facts(facts) if not any(label for label, _ in facts):
            return Markup("").join(tag("p", _phrase(phrase, limit)) for _, phrase in facts)
        case Facts(facts):
            lines = (
                tag("div", tag("dt", label or " ") + tag("dd", _phrase(phrase, limit)))
                for label, phrase in facts
            )
            return tag("dl", Markup("").join(lines), class_="facts")
        case Items(items):
            entries = (
                tag("li", Markup("<br>").join(_phrase(line, limit) for line in item))
                for item in items
            )
            return tag("ul", Markup("").join(entries), class_="plain")
        case Code(code, language):
            lines = (tag("code", shown(line, limit) or " ") for line in code.split("\n"))
            kind = "command" if language == "sh" else "log"
            return tag("pre", Markup("\n").join(lines), class_=kind, tabindex=0)
        case Table(head, rows):
            titles = Markup("").join(tag("th", name, scope="col") for name in head)
            cells = (
                Markup("").join(tag("td", _phrase(cell, limit) or " ") for cell in row)
                for row in rows
            )
            table = tag(
                "table",
                tag("caption", title)
                + tag("thead", tag("tr", titles))
                + tag("tbody", Markup("").join(tag("tr", row) for row in cells)),
            )
            drawn = tag(
                "div",
                table,
                class_="scroll",
                tabindex=0,
                role="region",
                aria_label=f"{title}, {head[0]}",
            )
            if len(rows) < _FOLDED:
                return drawn
            return tag("details", tag("summary", f"All {len(rows):,}") + drawn)


def _phrase(phrase: Phrase, limit: int) -> Markup:
    """A shared sentence: names as code, figures bold, all else as text."""
    return Markup("").join(_part(role, words, limit) for role, words in phrase if words)


def _part(role: str, words: str, limit: int) -> Markup:
    if role in ("name", "seen", "id"):
        name, page = tag("code", shown(words, limit)), url(words) if role == "id" else None
        return name if page is None else tag("a", name, href=page)
    if role in ("figure", "fault"):
        return tag("strong", shown(words, limit))
    if role == "status":
        return tag("span", shown(words, limit), class_=f"status {shown(words, 20)}")
    return drawing.prose(words, 4 * limit)


def _excerpts(report: Report, view: View) -> list[dict[str, object]]:
    """The lines around each cause, with the address of its line at the commit where that is
    known."""
    found = report.diagnosis
    causes_shown: Sequence[Diagnosis] = () if found is None else (found, *found.also)
    return [
        {
            "place": findings.place(item),
            "link": address(report, view, item),
            "lines": item.excerpt,
            "line": item.line,
        }
        for item in causes_shown[:4]
        if item.file
    ]
