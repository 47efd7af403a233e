"""How names, foreign sentences and phrases become Markdown, and what a reviewer reads first in the
comment: heading, table and footer. What was not measured or not asked for has no row.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from markupsafe import Markup

from repro_gate import escape
from repro_gate.checks.pages import url
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.findings import address, says_more
from repro_gate.report.model import Reason, Report, View
from repro_gate.report.wording import Phrase

Row = tuple[str, Markup]  # label and value
_BREAK, _DOT = Markup("<br>"), Markup(" · ")
_REASONS = 3  # of the most telling reasons
MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "warn": "⚠️", "skip": "⏭️", "waived": "📝",
    "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌", "new-platform": "🆕",
}  # fmt: skip
GLANCE = 400  # characters of one text in the first table; what is folded has more
# a line, `src/train.py:41`: what is shown of it, and its address
Links = Mapping[str, tuple[str, str]]


def heading(report: Report, view: View) -> Markup:
    """Verdict and cause in one sentence: of a report that neither passed nor diverged, its first
    reason."""
    if (
        report.verdict != "pass"
        and not diverged(report)
        and not wording.drifted(report)
        and report.reasons
    ):
        return message(report.reasons[0].message.rstrip(". "), Form(message=160))
    return prose(wording.headline(report), NARROW, _links(report, view))


def first_rows(report: Report, view: View) -> list[Row]:
    """Return the first table's rows, most important first."""
    found = report.baseline
    drift = found is not None and found.status == "drift"
    lost, price, compared = wording.non_finite(report), report.cost, wording.compared(report)
    noise = None if diverged(report) else report.noise_floor
    checks = prose(wording.checks(report.checklist), NARROW)
    equal = f"{compared}; runs: {wording.bound(report)}" if report.verdict == "pass" else ""
    rows = (
        *(_baseline(report) if drift else []),
        *_divergence(report),
        *_why(report, _short(_links(report, view))),
        ("Losses that are not finite", Markup(lost and f"{MARKS['warn']} {lost}")),
        ("Determinism cost", prose(comparisons.cost(price) if price is not None else (), NARROW)),
        ("Compared", Markup(equal if compared else "")),
        ("Checklist", checks),
        *([] if drift else _baseline(report)),
        *_against(report),
        ("Noise floor", prose(wording.noise(noise) if noise is not None else (), NARROW)),
    )
    return [(label, value) for label, value in rows if value]


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


def told(report: Report) -> tuple[Reason, ...]:
    """The reasons that heading and table tell whole, with what to do."""
    found, telling = report.diagnosis, _telling(report)
    if found is not None:
        return tuple(item for item in report.reasons if item not in telling)
    first = (telling if diverged(report) else report.reasons)[:1] or report.reasons[:1]
    return tuple(
        item for item in first if len(item.message) <= GLANCE and len(item.remedy) <= GLANCE
    )


def _telling(report: Report) -> tuple[Reason, ...]:
    """The reasons that say more than the heading and the cause do."""
    reasons = report.reasons if diverged(report) or report.verdict == "pass" else report.reasons[1:]
    return tuple(item for item in reasons if says_more(item, report.diagnosis))


def diverged(report: Report) -> bool:
    """Whether two runs were compared and are not bitwise identical."""
    return report.determinism is not None and not report.determinism.identical


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


def _divergence(report: Report) -> list[Row]:
    found = report.determinism
    if found is None or found.identical:
        return []
    first = found.first_divergence
    seeds = [f"{item.seed} {'same' if item.identical else '**differs**'}" for item in found.seeds]
    besides = [
        prose(wording.spread(found), NARROW),
        *([Markup(f"seeds: {escape.listed(seeds, 20)}")] if len(seeds) > 1 else []),
    ]
    if first is None:
        return [("What differs", _DOT.join(besides))]
    values = None if first.measured else first.values
    far = prose(wording.how_far(replace(first, l2=None, relative_l2=None, values=values)), NARROW)
    where = prose(wording.where(first), NARROW)
    return [
        (
            "First to differ",
            _BREAK.join([where + (Markup(": ") + far if far else ""), _DOT.join(besides)]),
        )
    ]


def _why(report: Report, links: Links) -> list[Row]:
    """The cause; then the reasons that say more than it and than the heading do; and what to do
    about the first of them."""
    found = report.diagnosis
    if not report.reasons and found is None:
        return []
    lines = [] if found is None else [prose(line, NARROW, links) for line in findings.why(found)]
    telling = _telling(report)
    shown = telling[:_REASONS]
    lines += [message(item.message, NARROW) for item in shown]
    if left := len(telling) - len(shown):
        lines.append(Markup(and_more(left, "reason" if left == 1 else "reasons")))
    if found is None:
        remedy = message(
            (shown[0] if diverged(report) and shown else report.reasons[0]).remedy, NARROW
        )
    else:
        remedy = _remedy(found)
    return [
        *([("Why", _BREAK.join(lines))] if lines else []),
        *([("Remedy", remedy)] if remedy else []),
    ]


def _remedy(found: Diagnosis) -> Markup:
    """What to do about the cause, with a link to its page: a name of ours."""
    link = Markup(f"[{found.cause}]({findings.page_of(found)})")
    return (
        message(found.remedy, NARROW) + Markup(" (") + link + Markup(")")
        if found.remedy
        else Markup("see ") + link
    )


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


def _baseline(report: Report) -> list[Row]:
    """Of a result that changed, what is most telling of it."""
    found = report.baseline
    if found is None:
        return []
    # in the heading
    said = (
        bool(report.reasons) and found.message in report.reasons[0].message and not diverged(report)
    )
    value = (
        Markup(f"{MARKS[found.status]} **{found.status}**")
        if said
        else status(found.status, found.message, NARROW)
    )
    if found.recorded:
        value += Markup(" (recorded ") + code(found.recorded, NARROW) + Markup(")")
    lines = comparisons.baseline_lines(found, 3) if found.status in ("drift", "changed") else ()
    # of drift, what is known is most of what there is to go by
    shown = lines[: 5 if found.status == "drift" else 1]
    return [("Baseline", _BREAK.join([value, *(prose(line, NARROW) for line in shown)]))]


def _against(report: Report) -> list[Row]:
    found = report.against
    if found is None:
        return []
    value = Markup(", ").join(
        [
            prose(comparisons.at(found.ref, found.commit), NARROW),
            status(found.status, found.message, NARROW),
        ]
    )
    return [
        (
            "Against",
            _BREAK.join(
                [value, *(prose(line, NARROW) for line in comparisons.speed(found.speed)[:1])]
            ),
        )
    ]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How long a text may be: characters of a name and of a sentence."""

    name: int = 200
    message: int = 1_000


NARROW = Form(name=120, message=GLANCE)  # of what is seen first


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


def status(name: str, words: str, form: Form) -> Markup:
    """A status with its mark, then what is said of it."""
    return Markup(f"{MARKS[name]} **{name}**: ") + message(words, form)
