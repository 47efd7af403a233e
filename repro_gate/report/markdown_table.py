"""The first table of the comment: what diverged, where, why, and what determinism costs. `Form` says how much is shown; whatever is
Markup here has been made safe or is our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from markupsafe import Markup

from repro_gate import escape
from repro_gate.compare.model import Distance
from repro_gate.report import comparisons, numbers, wording
from repro_gate.report.model import Reason, Report
from repro_gate.report.wording import Phrase

MARKS: Mapping[str, str] = {
    "pass": "✅",
    "fail": "❌",
    "inconclusive": "❔",
    "warn": "⚠️",
    "skip": "⏭️",
    "waived": "📝",
    "unchanged": "✅",
    "no-op": "✅",
    "changed": "⚠️",
    "drift": "❌",
    "new-platform": "🆕",
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """How much is shown: characters of one text, entries of one list. 0 leaves the part out."""

    name: int = 200
    message: int = 1_000
    reasons: int = 25
    notes: int = 15
    weakened: int = 25
    changed_inputs: int = 10
    inputs: int = 100
    checks: int = 40
    evidence: int = 5
    tensors: int = 20
    runs: int = 20
    log_lines: int = 30
    settings: int = 40
    environment: int = 40
    chart: bool = True
    reproduce: int = 4_000
    open: bool = False  # whether what is folded is shown unfolded: where there is room for more than a glance


def forms() -> tuple[Form, ...]:
    """From the whole story to its core; each inputs out what of the one before it is of least use."""
    whole = Form()
    short_log = replace(whole, log_lines=5, environment=10, inputs=25)
    no_flags = replace(short_log, log_lines=0, environment=0, settings=0, inputs=0, evidence=0, name=160, message=600)
    no_runs = replace(no_flags, runs=0, tensors=5, checks=15, notes=5)
    core = replace(no_runs, tensors=0, checks=5, notes=0, reasons=10, weakened=10, changed_inputs=3, message=300, name=100)
    least = replace(core, checks=0, reasons=3, weakened=3, changed_inputs=0, message=100, name=60, chart=False, reproduce=500)
    return whole, short_log, no_flags, no_runs, core, least


def ample() -> Form:
    """What a page of its own has room for (a job's summary): far more than a comment, and unfolded."""
    many = 200
    return Form(
        name=500,
        message=2_000,
        reasons=many,
        notes=many,
        weakened=many,
        changed_inputs=many,
        inputs=1_000,
        checks=many,
        evidence=25,
        tensors=many,
        runs=many,
        log_lines=200,
        settings=many,
        environment=many,
        reproduce=8_000,
        open=True,
    )


def code(text: object, form: Form) -> Markup:
    """A name or a value as inline code."""
    return Markup(escape.for_code_span(escape.clip(str(text), form.name)))


def message(text: str, form: Form) -> Markup:
    """A foreign sentence as inert prose."""
    return Markup(escape.for_markdown(escape.clip(text, form.message)))


def prose(phrase: Phrase, form: Form) -> Markup:
    """A shared sentence: names as code, figures bold, foreign messages made inert, our own words as they are."""

    def part(role: str, words: str) -> str:
        if role == "name":
            return code(words, form)
        if role == "message":
            return message(words, form)
        return f"**{words}**" if role == "figure" and words else words

    return Markup("".join(part(role, words) for role, words in phrase))


Row = tuple[str, Markup]
_COST = "Determinism\u00a0cost"  # kept on one line: a column is as wide as its longest word
_BREAK = Markup("<br>")
_DOT = Markup(" · ")
_GENERAL = "determinism/diverged"  # says again what the headline and the first row say
_REASONS = 3  # of the most telling reasons
_NAME, _MESSAGE = 120, 400  # characters; the folded parts have more


@dataclass(frozen=True)
class Links:
    """Pages of our own making that the comment leads to: never a config hash out of a report."""

    run_url: str | None = None  # the workflow run
    report_url: str | None = None  # the whole report: an artifact, a page


def rows(report: Report, form: Form, links: Links) -> list[Row]:
    """The table's rows in order; the first is its header, so there is always one."""
    form = replace(form, name=min(form.name, _NAME), message=min(form.message, _MESSAGE))
    found = [
        *_divergence(report, form),
        *_why(report, form),
        ("Commit", _commit(report, form, links)),
        (_COST, prose(wording.cost(report.cost, report.cost_budget_pct), form)),
        *_compared(report),
        *_checklist(report),
        *_baseline(report, form),
        ("Noise floor", prose(wording.noise(report.noise_floor), form)),
        *_against(report, form),
        *_base(report, form),
        *_seeds(report),
        *_non_finite(report),
    ]
    return found if report.verdict != "pass" else sorted(found, key=lambda row: row[0] == "Commit")  # what was bought, and at what price


def footer(links: Links) -> Markup:
    """Where everything is, for the last line; the run stands in the table. Empty where no page is known."""
    return link("Full report", links.report_url) if links.report_url else Markup("")


def link(words: str, url: str) -> Markup:
    """A link of ours. What could end it early is quoted: a config hash comes out of the runner's variables."""
    return Markup(f"[{words}](<{quote(url, safe='/:?&=#%@+,;~-._')}>)")


def _divergence(report: Report, form: Form) -> list[Row]:
    found = report.determinism
    if found is None or found.comparison.identical:
        return []
    pair, first = found.comparison, found.comparison.first_divergence
    if first is None:
        return [("What differs", prose(wording.spread(pair), form))]
    glance = None if first.distance is None else Distance(first.distance.max_abs, first.distance.max_ulp)
    far = prose(wording.how_far(replace(first, distance=glance)), form)
    return [
        ("First to differ", prose(wording.where(first), form)),
        ("How far", _DOT.join([*([far] if far else []), prose(wording.spread(pair), form)])),
    ]


def _compared(report: Report) -> list[Row]:
    """What a pass speaks of."""
    said = wording.compared(report)
    return [("Compared", Markup(said))] if said else []


def _why(report: Report, form: Form) -> list[Row]:
    """The reasons that say more than the first row does, and what to do about the first of them."""
    if not report.reasons:
        return []
    told = telling(report.reasons)
    shown = told[: min(_REASONS, form.reasons)]
    lines = [message(item.message, form) for item in shown] or [Markup("no check found a cause")]
    if len(told) > len(shown):
        lines.append(Markup(f"and {numbers.count(len(told) - len(shown), 'more reason')}"))
    remedy = (shown or report.reasons)[0].remedy
    return [("Why", _BREAK.join(lines)), *([("What to do", message(remedy, form))] if remedy else [])]


def telling(reasons: Sequence[Reason]) -> list[Reason]:
    """The reasons that name more than the place where the runs diverge: a line, a file, a flag, a figure."""
    return [item for item in reasons if item.id != _GENERAL]


def _commit(report: Report, form: Form, links: Links) -> Markup:
    """The head that was pushed; where another commit was checked out (GitHub's trial merge), that one too."""
    origin, subject = report.origin, report.subject
    tested = None if subject.commit is None else code(comparisons.short(subject.commit), form)
    parts = [tested or Markup("not in git")]
    if origin is not None:
        parts = [code(comparisons.short(origin.head_sha), form)]
        if tested is not None and subject.commit != origin.head_sha:
            parts.append(Markup("tested as ") + tested)
    if subject.uncommitted:
        parts.append(Markup(f"{MARKS['warn']} with {numbers.count(len(subject.uncommitted), 'uncommitted path')}"))
    if links.run_url:
        parts.append(link("workflow run", links.run_url))
    return _DOT.join(parts)


def _checklist(report: Report) -> list[Row]:
    """By category: how many of the checks that were made passed, with the worst of them as the mark."""
    if not report.checklist:
        return []

    def mark(category: str, passed: int) -> str:
        statuses = {item.status for item in report.checklist if item.category == category}
        return MARKS["fail" if "fail" in statuses else "warn" if "warn" in statuses or not passed else "pass"]

    parts = (
        Markup(f"{mark(category, passed)} {category} {f'**{passed:,}**/{made:,}' if made else 'nothing checked'}")
        for category, passed, made in wording.coverage(report.checklist)
    )
    return [("Checklist", _DOT.join(parts))]


def _baseline(report: Report, form: Form) -> list[Row]:
    """Of a result that changed, what is most telling of it."""
    found = report.baseline
    if found is None:
        return [("Baseline", Markup("none"))]
    value = status(found.status, found.message, form)
    if found.recorded:
        value += Markup(" (recorded ") + code(found.recorded, form) + Markup(")")
    lines = comparisons.baseline_lines(found, 3) if found.status in ("drift", "changed") and form.changed_inputs else ()
    return [("Baseline", _BREAK.join([value, *(prose(line, form) for line in lines[:1])]))]


def _against(report: Report, form: Form) -> list[Row]:
    found = report.against
    if found is None:
        return []
    return [
        ("Against", Markup(", ").join([prose(comparisons.at(found.ref, found.commit), form), status(found.status, found.message, form)]))
    ]


def _base(report: Report, form: Form) -> list[Row]:
    """What is weakened stands below the table, for each one by itself."""
    base = report.base
    return [] if base is None or base.weakened else [("Base", prose(comparisons.nothing_less(base), form))]


def _seeds(report: Report) -> list[Row]:
    if len(report.comparisons) < 2:
        return []
    shown = [f"{item.seed} {'same' if item.comparison.identical else '**differs**'}" for item in report.comparisons[:20]]
    return [("Seeds", Markup(", ".join(shown) + (", …" if len(report.comparisons) > 20 else "")))]


def _non_finite(report: Report) -> list[Row]:
    shown = ", ".join(f"{value} at step {step}" for step, value in report.non_finite[:10])
    return [("Losses that are not finite", Markup(f"{MARKS['warn']} {shown}"))] if shown else []


def status(name: str, words: str, form: Form) -> Markup:
    """A status with its mark, then what is said of it."""
    return Markup(f"{MARKS[name]} **{name}**: ") + message(words, form)
