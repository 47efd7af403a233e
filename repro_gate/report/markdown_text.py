"""How names, foreign sentences and phrases become Markdown; and the comment's heading, first table
and footer. What was not measured or not asked for has no row.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from repro_gate import escape
from repro_gate.checks.pages import url
from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.findings import address
from repro_gate.report.glance import Row, glance, telling
from repro_gate.report.model import Reason, Report, View
from repro_gate.report.wording import Phrase, say

_BREAK, _DOT = Markup("<br>"), Markup(" · ")
MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "warn": "⚠️", "skip": "⏭️", "waived": "📝",
    "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌", "new-platform": "🆕",
}  # fmt: skip
GLANCE = 300  # characters of one text in the first table; what is folded has more
_HEADING = 160  # characters of a reason in the heading
_LINES = 5  # of one row
# a line, `src/train.py:41`: what is shown of it, and its address
Links = Mapping[str, tuple[str, str]]


def heading(report: Report, view: View) -> Markup:
    """Return verdict and cause in one sentence: of a report that neither passed nor diverged, its
    first reason."""
    first = _heading_reason(report)
    if first is not None:
        return message(first.message.rstrip(". "), Form(message=_HEADING))
    return prose(wording.headline(report), NARROW, _links(report, view))


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
    links, lines = _short(_links(report, view)), row.lines
    if more := and_more(len(lines) - _LINES, "lines"):  # the last ones hold the proof
        lines = (*lines[: _LINES - 2], say(more), *lines[-2:])
    value = _BREAK.join(prose(line, NARROW, links) for line in lines)
    return Markup(f"| **{row.label.capitalize()}** | ") + value + Markup(" |")


def footer(report: Report, view: View) -> list[Markup]:
    """Where the report comes from, a line each: the page and its run, then the commit and the
    base."""
    origin = report.origin
    lines = []
    if view.run_url:
        name = origin.name if origin is not None and origin.name else "repro-gate-report"
        link = _link(Markup("artifact"), f"{view.run_url}#artifacts") + " " + code(name, NARROW)
        # what another one's run left is not to be opened in a browser
        how = ", `report.html`"
        if view.foreign:
            how = "; `repro-gate show report.json --html page.html` makes a page of it"
        lines.append(Markup("The whole report: ") + link + Markup(how))
    parts = [Markup("Commit ") + _commit(report)]
    if view.run_url:
        parts.append(_link(Markup("workflow run"), view.run_url))
    if report.base is not None and not report.base.weakened:
        parts.append(Markup("base ") + prose(comparisons.nothing_less(report.base), NARROW))
    return [*lines, _DOT.join(parts)]


def reasons_shown(report: Report, rows: Sequence[Row]) -> tuple[Reason, ...]:
    """Return the reasons that heading and table tell whole, with what to do."""
    left = [*_known(report), *telling(report, _known(report))]
    shown = [row.reason for row in rows if row.reason is not None]
    if report.diagnosis is None:  # a row of its own says what to do about the first
        shown += [*left, *report.reasons][:1]
    else:
        shown += [item for item in report.reasons if item not in left]
    return tuple(item for item in shown if max(len(item.message), len(item.remedy)) <= GLANCE)


def _link(text: Markup, address: str) -> Markup:
    """A link of ours: what could end it early is quoted."""
    return Markup("[") + text + Markup(f"](<{quote(address, safe='/:?&=#%@+,;~-._')}>)")


def _links(report: Report, view: View) -> Links:
    """Return the address of each line that the diagnosis names, where it has one."""
    cause = report.diagnosis
    named = () if cause is None else (cause, *cause.also)
    return {
        findings.place(item): (findings.place(item), at)
        for item in named
        if (at := address(report, view, item))
    }


def _short(links: Links) -> Links:
    """Return the same addresses shown as `train.py:41`: a table is as wide as its longest name, and
    a phone is narrow."""
    names = [shown.rpartition("/")[2] for shown, _ in links.values()]
    return {
        line: (name if names.count(name) == 1 else line, links[line][1])
        for line, name in zip(links, names, strict=True)
    }


def _commit(report: Report) -> Markup:
    """The head that was pushed; where another commit was checked out (GitHub's trial merge), that
    one too."""
    origin, subject = report.origin, report.subject
    tested = None if subject.commit is None else code(comparisons.short(subject.commit), NARROW)
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


@dataclass(frozen=True, kw_only=True)
class Form:
    """How long a text may be: characters of a name and of a sentence."""

    name: int = 200
    message: int = 1_000


NARROW = Form(name=100, message=GLANCE)  # of what is seen first


def code(text: object, form: Form) -> Markup:
    """A name or a value as inline code."""
    return Markup(escape.for_code_span(escape.clip(str(text), form.name)))


def message(text: str, form: Form) -> Markup:
    """A foreign sentence as inert prose."""
    return Markup(escape.for_markdown(escape.clip(text, form.message)))


def prose(phrase: Phrase, form: Form, links: Links | None = None) -> Markup:
    """A shared sentence: names as code, figures bold, foreign messages made inert, our own words as
    they are. `links` has, of names that are lines of the checkout, what is shown
    and the address."""

    def part(role: str, words: str) -> str:
        if role in ("name", "seen"):
            return _linked(words, form, links or {})
        if role == "id":
            page = url(words)
            return code(words, form) if page is None else f"[{code(words, form)}]({page})"
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
    if words not in links:
        return code(words, form)
    shown, address = links[words]
    return Markup("[") + code(shown, form) + Markup(f"](<{address}>)")
