"""The Report as GitHub Markdown: the comment of a pull request, at most 65,536 characters, and the summary of a job. The layout is
`templates/report.md.j2`; what it prints passes `escape.for_markdown` unless it is Markup: a forgotten filter is never a live mention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate import escape
from repro_gate.baseline.changes import input_text
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, InputValue
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CheckResult
from repro_gate.checks.pages import url
from repro_gate.compare.model import Divergence
from repro_gate.report import chart, comparisons, markdown_table, numbers, wording
from repro_gate.report.markdown_table import MARKS, Form, Links, ample, code, forms, message, prose
from repro_gate.report.model import BaseFinding, Reason, Report, RunSummary
from repro_gate.report.wording import Phrase

LIMIT = 65_536  # characters (code points) of a comment on GitHub
SUMMARY_LIMIT = 1_000_000  # bytes: GitHub takes 1 MiB from one step, and the step may have more to say


def to_markdown(report: Report, limit: int = LIMIT, links: Links | None = None) -> str:
    """The longest form of the report that fits into `limit` characters. The verdict is in each of them."""
    return _fitting(report, forms(), lambda text: len(text) <= limit, links or Links()) or report.verdict[:limit]


def to_summary(report: Report, limit_bytes: int = SUMMARY_LIMIT, links: Links | None = None) -> str:
    """The report for a page of its own, in at most `limit_bytes` bytes of UTF-8: more rows than the comment, less of it folded."""
    found = _fitting(report, (ample(), *forms()), lambda text: len(text.encode()) <= limit_bytes, links or Links())
    return found or report.verdict[:limit_bytes]


def _fitting(report: Report, longest_first: Sequence[Form], fits: Callable[[str], bool], links: Links) -> str:
    """The first form that fits, or a few lines; empty where not even these do."""
    for form in longest_first:
        text = _rendered(report, form, links, shortened=form != longest_first[0])
        if fits(text):
            return text
    heading = f"## {MARKS[report.verdict]} Repro Gate: {report.verdict}\n"
    rest = "\nThe report is too long for this place: see the JSON report.\n"
    less = _weakened_line(report.base)
    return next((text for text in (f"{heading}{less}{rest}", f"{heading}{less}", f"{heading}{rest}") if fits(text)), "")


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
    environment.globals.update(marks=MARKS)
    return environment


def _finalized(value: object) -> str:
    """What the template engine does to everything that is printed: text that nobody has made safe yet is made safe."""
    return value if isinstance(value, Markup) else escape.for_markdown(str(value))


def _rendered(report: Report, form: Form, links: Links, *, shortened: bool) -> str:
    found = report.determinism
    skipped = [item for item in report.checklist if item.status == "skip" and not wording.is_undeclared(item)]
    context: dict[str, object] = {
        "verdict": report.verdict,
        "headline": prose(wording.headline(report), form),
        "rows": markdown_table.rows(report, form, links),
        "fold": Markup("<details open>" if form.open else "<details>"),
        "cost_details": _cost_details(report, form),
        **_compared_with(report, form),
        "differs": None if found is None or found.comparison.identical else _differs(report, form),
        "noise_chart": _noise_chart(report, form),
        "reasons": _reasons(report.reasons, form.reasons, form),
        "notes": _reasons(report.notes, form.notes, form),
        "more_reasons": max(len(report.reasons) - form.reasons, 0),
        "checks": _checks(report.checklist, form),
        "skipped": [code(item.id, form) for item in skipped[: form.checks]],
        "undeclared": Markup(wording.undeclared(report.checklist)),
        "runs": [(code(run.name, form), run, wording.ended_badly(run), wording.outcome(run)[:60]) for run in report.runs[: form.runs]],
        "logs": _logs(report.runs, form),
        "settings": _pairs(dict(sorted(report.settings.items())), form.settings, form),
        "environment": _pairs(_facts(report), form.environment, form),
        "reproduce": _reproduce(report, form),
        "tool_version": code(report.tool_version, form),
        "started": code(report.started, form),
        "seconds": report.seconds,
        "shortened": shortened,
        "links": markdown_table.footer(links),
    }
    return _environment().get_template("report.md.j2").render(context)


def _cost_details(report: Report, form: Form) -> list[Markup]:
    price = report.cost
    if price is None:
        return []
    lines = [Markup(wording.step_times(price))]
    if price.steps_needed is not None:
        lines.append(Markup(f"too few steps for a figure: 95% interval {numbers.interval(price.ci95)}"))
    if wording.memory(price):
        lines.append(Markup(wording.memory(price)))
    if price.suspicious is not None:
        lines.append(Markup(f"{MARKS['warn']} **suspicious:** ") + message(price.suspicious, form))
    return lines


def _differs(report: Report, form: Form) -> dict[str, object]:
    """What the section on the difference shows."""
    assert report.determinism is not None  # the caller asked
    pair = report.determinism.comparison
    first = pair.first_divergence
    diagram = chart.chart(pair) if form.chart else None
    return {
        "where": "" if first is None else prose(wording.where(first), form),
        "how_far": "" if first is None else prose(wording.how_far(first), form),
        "spread": prose(wording.spread(pair), form),
        "kinds": wording.kinds(pair),
        "weights": [_weight(item, form) for item in pair.weights[: form.tensors]],
        "more_weights": max(len(pair.weights) - form.tensors, 0),
        "chart": None if diagram is None else Markup(escape.for_code_block(diagram, "mermaid")),
    }


def _noise_chart(report: Report, form: Form) -> Markup | None:
    """The drift without the flags, where the report has no drift with them to show."""
    found = report.determinism
    if not form.chart or (found is not None and not found.comparison.identical):
        return None
    diagram = chart.noise_chart(report.noise_floor)
    return None if diagram is None else Markup(escape.for_code_block(diagram, "mermaid"))


def _weight(item: Divergence, form: Form) -> dict[str, object]:
    far = item.distance
    return {
        "name": code(item.name, form),
        "type": code(f"{item.dtype or '?'} {numbers.shape(item.shape or ())}", form),
        "max_abs": "" if far is None or far.max_abs is None else numbers.small(far.max_abs),
        "max_ulp": "" if far is None or far.max_ulp is None else numbers.ulps(far.max_ulp),
        "relative": "" if far is None or far.relative_l2 is None else numbers.small(far.relative_l2),
    }


def _named(identifier: str, form: Form) -> Markup:
    """An id, as a link to its documentation where it is one of ours."""
    where = url(identifier)
    return code(identifier, form) if where is None else Markup(f"[{code(identifier, form)}]({where})")


def _reasons(reasons: Sequence[Reason], most: int, form: Form) -> list[dict[str, Markup]]:
    return [
        {"id": _named(item.id, form), "message": message(item.message, form), "remedy": message(item.remedy, form)}
        for item in reasons[:most]
    ]


def _checks(checklist: Sequence[CheckResult], form: Form) -> list[dict[str, object]]:
    return [
        {
            "id": code(item.id, form),
            "status": item.status,
            "message": message(item.message, form),
            "remedy": message(item.remedy, form),
            "evidence": [code(text, form) for text in item.evidence[: form.evidence]],
        }
        for item in [item for item in wording.worst_first(checklist) if item.status != "skip"][: form.checks]
    ]


def _logs(runs: Sequence[RunSummary], form: Form) -> list[tuple[Markup, Markup]]:
    if not form.log_lines:
        return []
    kept = [run for run in runs if run.log_tail and wording.ended_badly(run)][:5]
    lines = {run.name: "\n".join(escape.clip(line, form.name) for line in run.log_tail[-form.log_lines :]) for run in kept}
    return [(code(name, form), Markup(escape.for_code_block(text, "text"))) for name, text in lines.items()]


def _pairs(values: Mapping[str, object], most: int, form: Form) -> list[tuple[Markup, Markup]]:
    return [(code(name, form), code(value, form)) for name, value in list(values.items())[:most]]


def _facts(report: Report) -> dict[str, object]:
    """What was gated, and on what. Names of ours are not taken over by what the training reported."""
    subject = report.subject
    changed = ", ".join(subject.uncommitted[:10]) + (", …" if len(subject.uncommitted) > 10 else "")
    own = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        **({"uncommitted changes": changed} if changed else {}),
        "isolation": subject.isolation,
    }
    return {**own, **{name: value for name, value in sorted(subject.versions.items()) if name not in own}}


def _reproduce(report: Report, form: Form) -> Markup | None:
    """The command whole or not at all: half a command is none."""
    if not report.reproduce or len(report.reproduce) > form.reproduce:
        return None
    return Markup(escape.for_code_block(report.reproduce, "sh"))


_SEEN = 5  # weakenings that a comment shows without a click


def _compared_with(report: Report, form: Form) -> dict[str, object]:
    """What the templates show below the first screen's table: what is weakened, what is behind a status, and the config hash."""
    baseline, against, base = report.baseline, report.against, report.base
    weakened = [] if base is None else _weakened(base, form)
    seen = len(weakened) if form.open else _SEEN
    return {
        "baseline": None if baseline is None else _baseline(baseline, form),
        "against": None if against is None else _against(against, form),
        "weakened": weakened[:seen],
        "weakened_besides": weakened[seen:],
        "more_weakened": 0 if base is None else max(len(base.weakened) - form.weakened, 0),
        "judge": None if base is None else prose(comparisons.base_policy(base), form),
        "config_hash": None if report.config_hash is None else _config_hash(report.config_hash, form),
    }


def _weakened_line(base: BaseFinding | None) -> str:
    """One line for where nothing else fits; empty where nothing is weakened."""
    if base is None or not base.weakened:
        return ""
    return f"\n{MARKS['warn']} **{comparisons.WEAKENED_TITLE}:** {numbers.count(len(base.weakened), 'weakened check')}.\n"


def _baseline(found: BaselineFinding, form: Form) -> dict[str, object]:
    return {"lines": _lines(comparisons.baseline_lines(found, form.changed_inputs), form), "remedy": message(found.remedy, form)}


def _against(found: AgainstFinding, form: Form) -> dict[str, object]:
    return {"lines": _lines(comparisons.against_lines(found, form.changed_inputs), form), "remedy": Markup("")}


def _lines(phrases: Sequence[Phrase], form: Form) -> list[Markup]:
    """Nothing at all in the form that has no room for what is behind a status."""
    return [prose(phrase, form) for phrase in phrases] if form.changed_inputs else []


def _weakened(base: BaseFinding, form: Form) -> list[tuple[Markup, Markup]]:
    return [(prose(comparisons.weakening(item), form), message(item.message, form)) for item in base.weakened[: form.weakened]]


def _config_hash(found: ConfigHash, form: Form) -> dict[str, object]:
    roots = (("config hash", found.config_hash), (RECIPE, found.recipe), (PLATFORM, found.platform))
    total = len(found.recipe_inputs) + len(found.platform_inputs)
    return {
        "roots": [(name, code(root, Form())) for name, root in roots],
        "self_check": comparisons.self_check(found.self_check),
        "complete": found.self_check is None or found.self_check.complete,
        "inputs": [(root, code(name, form), code(_value(value), form)) for root, name, value in islice(_inputs(found), form.inputs)],
        "more": max(total - form.inputs, 0),
    }


def _inputs(found: ConfigHash) -> Iterator[tuple[str, str, InputValue]]:
    """By root and name: a report that was read back has them in that order."""
    recipe = ((RECIPE, name, value) for name, value in sorted(found.recipe_inputs.items()))
    return chain(recipe, ((PLATFORM, name, value) for name, value in sorted(found.platform_inputs.items())))


def _value(value: InputValue) -> str:
    try:
        return input_text(value)
    except (ValueError, TypeError, RecursionError):  # an integer of thousands of digits, a bottomless list
        return "too large to show"
