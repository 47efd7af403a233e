"""The Report as GitHub Markdown: the comment of a pull request and the summary of a job. Its first table is made here, what is folded below
it in `markdown_details`; the layout is `templates/report.md.j2`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate import escape
from repro_gate.compare.model import Distance
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more
from repro_gate.report import causes, comparisons, costs, numbers, wording
from repro_gate.report.findings import GENERAL, points_at
from repro_gate.report.markdown_details import AMPLE, FORMS, MARKS, Form, code, details, message, prose
from repro_gate.report.model import PLAIN, Report, View

LIMIT = 65_536  # characters (code points) of a comment on GitHub
SUMMARY_LIMIT = 1_000_000  # bytes: GitHub takes 1 MiB from one step, and the step may have more to say
Row = tuple[str, Markup]  # label and value
_COST = "Determinism\u00a0cost"  # kept on one line: a column is as wide as its longest word
_BREAK, _DOT = Markup("<br>"), Markup(" · ")
_REASONS = 3  # of the most telling reasons
_NAME, _MESSAGE = 120, 400  # characters; the folded parts have more


def comment(report: Report, view: View = PLAIN) -> str:
    """The longest form of the report that fits into `view.limit` characters. The verdict is in each of them."""
    limit = LIMIT if view.limit is None else view.limit
    return _fitting(report, view, FORMS, lambda text: len(text) <= limit) or report.verdict[:limit]


def summary(report: Report, view: View = PLAIN) -> str:
    """The report for a page of its own, in at most `view.limit` bytes of UTF-8: more rows than the comment, and unfolded."""
    limit = SUMMARY_LIMIT if view.limit is None else view.limit
    return _fitting(report, view, (AMPLE, *FORMS), lambda text: len(text.encode()) <= limit) or report.verdict[:limit]


def _fitting(report: Report, view: View, longest_first: Sequence[Form], fits: Callable[[str], bool]) -> str:
    """The first form that fits, or a few lines; empty where not even these do."""
    for form in longest_first:
        text = _rendered(report, view, form, shortened=form != longest_first[0])
        if fits(text):
            return text
    heading = f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}\n"
    rest = "\nThe report is too long for this place: see the JSON report.\n"
    weakened = len(report.base.weakened) if report.base is not None else 0
    line = f"\n{MARKS['warn']} **{comparisons.WEAKENED_TITLE}:** {numbers.count(weakened, 'weakened check')}.\n" if weakened else ""
    return next((text for text in (f"{heading}{line}{rest}", f"{heading}{line}", f"{heading}{rest}") if fits(text)), "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("repro_gate.report", "templates"),
        autoescape=False,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(duration=numbers.duration, thousands="{:,}".format, own=Markup)
    environment.globals.update(marks=MARKS, and_more=lambda left: Markup(and_more(left)))
    return environment


def _finalized(value: object) -> str:
    """What the template engine does to everything that is printed: text that nobody has made safe yet is made safe."""
    return value if isinstance(value, Markup) else escape.for_markdown(str(value))


def _rendered(report: Report, view: View, form: Form, *, shortened: bool) -> str:
    context: dict[str, object] = {
        "verdict": report.verdict,
        "headline": prose(wording.headline(report), form),
        "rows": _rows(report, view, replace(form, name=min(form.name, _NAME), message=min(form.message, _MESSAGE))),
        "shortened": shortened,
        **details(report, form),
    }
    return _environment().get_template("report.md.j2").render(context)


def _rows(report: Report, view: View, form: Form) -> list[Row]:
    """The first table's rows in order; the first is its header, so there is always one."""
    base = report.base
    found = [
        *_divergence(report, form),
        *_why(report, form),
        ("Commit", _commit(report, form, view.run_url)),
        (_COST, prose(costs.cost(report.cost, report.cost_budget_pct), form)),
        *([("Compared", Markup(f"{said}; runs: {wording.bound(report)}"))] if (said := wording.compared(report)) else []),
        *_checklist(report),
        *_baseline(report, form),
        ("Noise floor", prose(wording.noise(report.noise_floor), form)),
        *_against(report, form),
        *([("Base", prose(comparisons.nothing_less(base), form))] if base is not None and not base.weakened else []),
        *_seeds(report),
    ]
    if report.non_finite:
        found.append(("Losses that are not finite", Markup(f"{MARKS['warn']} {wording.non_finite(report)}")))
    return found if report.verdict != "pass" else sorted(found, key=lambda row: row[0] == "Commit")  # what was bought, and at what price


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


def _why(report: Report, form: Form) -> list[Row]:
    """The cause; then the reasons that say more than it and than the first row do; and what to do about the first of them."""
    found = report.diagnosis
    if not report.reasons and found is None:
        return []
    lines = [] if found is None else [prose(line, form) for line in causes.why(found)]
    telling = [item for item in report.reasons if item.id != GENERAL and (found is None or not points_at(item, found))]
    shown = telling[: min(_REASONS, form.rows)]
    lines += [message(item.message, form) for item in shown]
    if left := len(telling) - len(shown):
        lines.append(Markup(and_more(left, "reason" if left == 1 else "reasons")))
    told = _BREAK.join(lines) if lines else Markup("no cause was looked for")
    remedy = message((shown or report.reasons)[0].remedy, form) if found is None else _remedy(found, form)
    return [("Why", told), *([("Remedy", remedy)] if remedy else [])]


def _remedy(found: Diagnosis, form: Form) -> Markup:
    """What to do about the cause, with a link to its page: a name of ours."""
    link = Markup(f"[{found.cause}]({causes.page_of(found)})")
    return message(found.remedy, form) + Markup(" (") + link + Markup(")") if found.remedy else Markup("see ") + link


def _commit(report: Report, form: Form, run_url: str) -> Markup:
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
    if run_url:  # made of the runner's variables: what could end the link early is quoted
        parts.append(Markup(f"[workflow run](<{quote(run_url, safe='/:?&=#%@+,;~-._')}>)"))
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
    value = _status(found.status, found.message, form)
    if found.recorded:
        value += Markup(" (recorded ") + code(found.recorded, form) + Markup(")")
    lines = comparisons.baseline_lines(found, 3) if found.status in ("drift", "changed") and form.changed_inputs else ()
    return [("Baseline", _BREAK.join([value, *(prose(line, form) for line in lines[:1])]))]


def _against(report: Report, form: Form) -> list[Row]:
    found = report.against
    if found is None:
        return []
    value = Markup(", ").join([prose(comparisons.at(found.ref, found.commit), form), _status(found.status, found.message, form)])
    return [("Against", _BREAK.join([value, *(prose(line, form) for line in comparisons.speed(found.speed)[:1])]))]


def _seeds(report: Report) -> list[Row]:
    if len(report.comparisons) < 2:
        return []
    shown = [f"{item.seed} {'same' if item.comparison.identical else '**differs**'}" for item in report.comparisons]
    return [("Seeds", Markup(escape.listed(shown, 20)))]


def _status(name: str, words: str, form: Form) -> Markup:
    """A status with its mark, then what is said of it."""
    return Markup(f"{MARKS[name]} **{name}**: ") + message(words, form)
