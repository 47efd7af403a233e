"""The Report as GitHub Markdown: the comment of a pull request and the summary of a job. The first
table is made in `markdown_rows`, what comes below it in `markdown_details`; the layout is
`templates/report.md.j2`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate import escape
from repro_gate.escape import and_more
from repro_gate.report import comparisons, numbers, wording
from repro_gate.report.markdown_details import details
from repro_gate.report.markdown_rows import first_rows, footer, heading
from repro_gate.report.markdown_text import AMPLE, FORMS, LINE, MARKS, Form
from repro_gate.report.model import PLAIN, Report, View

LIMIT = 65_536  # characters (code points) of a comment on GitHub
SUMMARY_LIMIT = (
    1_000_000  # bytes: GitHub takes 1 MiB from one step, and the step may have more to say
)
ROOM = 8_000  # bytes that a comment takes where a shorter form can do it: more is not read


def comment(report: Report, view: View = PLAIN) -> str:
    """The longest form of the report that fits into ROOM, else into `view.limit` characters. The
    verdict is in each of them."""
    limit = LIMIT if view.limit is None else view.limit
    short = _first_fitting(
        report, view, FORMS, lambda text: len(text) <= limit and len(text.encode()) <= ROOM
    )
    return (
        short
        or _fitting(report, view, FORMS[-1:], lambda text: len(text) <= limit)
        or report.verdict[:limit]
    )


def line(
    report: Report,
    view: View = PLAIN,
    *,
    before: str = "",
    cost_before: tuple[float, float] | None = None,
) -> str:
    """A pass in one line, for a reviewer who knows the rest: what stayed, what changed, and every
    weakened check.

    `before` is the verdict of the comment that this one replaces, `cost_before` the interval of the
    cost there.
    """
    limit = LIMIT if view.limit is None else view.limit
    sentence = _one_line(report, before, cost_before)
    text = _rendered(report, view, LINE, sentence)
    return text if len(text) <= limit else comment(report, view)


def summary(report: Report, view: View = PLAIN) -> str:
    """The report for a page of its own, in at most `view.limit` bytes of UTF-8: more rows than the
    comment, and unfolded."""
    limit = SUMMARY_LIMIT if view.limit is None else view.limit
    return (
        _fitting(report, view, (AMPLE, *FORMS), lambda text: len(text.encode()) <= limit)
        or report.verdict[:limit]
    )


def _first_fitting(
    report: Report, view: View, longest_first: Sequence[Form], fits: Callable[[str], bool]
) -> str:
    """The first form that fits; empty where none does."""
    return next((text for form in longest_first if fits(text := _rendered(report, view, form))), "")


def _fitting(
    report: Report, view: View, longest_first: Sequence[Form], fits: Callable[[str], bool]
) -> str:
    """The first form that fits, or a few lines; empty where not even these do."""
    if text := _first_fitting(report, view, longest_first, fits):
        return text
    title = f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}\n"
    rest = "\nThe report is too long for this place: see the JSON report.\n"
    weakened = len(report.base.weakened) if report.base is not None else 0
    warning = (
        f"\n{MARKS['warn']} **{comparisons.WEAKENED_TITLE}:** "
        f"{numbers.count(weakened, 'weakened check')}.\n"
        if weakened
        else ""
    )
    return next(
        (
            text
            for text in (f"{title}{warning}{rest}", f"{title}{warning}", f"{title}{rest}")
            if fits(text)
        ),
        "",
    )


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
    """What the template engine does to everything that is printed: text that nobody has made safe
    yet is made safe."""
    return value if isinstance(value, Markup) else escape.for_markdown(str(value))


def _rendered(report: Report, view: View, form: Form, sentence: Markup | None = None) -> str:
    context: dict[str, object] = {
        "verdict": report.verdict,
        "sentence": sentence,
        "headline": heading(report, view, form),
        "rows": first_rows(report, view, form),
        "footer": footer(report, view, form),
        "shortened": form.shortened,
        "whole": form.whole,
        **details(report, form),
    }
    return _environment().get_template("report.md.j2").render(context)


def _one_line(report: Report, before: str, cost_before: tuple[float, float] | None) -> Markup:
    found, price = report.determinism, report.cost
    identical = found is None or found.comparison.identical
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
        f"; {MARKS['warn']} losses that are not finite: {wording.non_finite(report)}"
        if report.non_finite
        else ""
    )
    return Markup(said)
