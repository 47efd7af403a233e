"""What the comment folds below its first table: reasons, differences, checks, inputs, runs and flags, as much of each as its Form allows.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from markupsafe import Markup

from repro_gate import escape
from repro_gate.baseline.changes import input_text
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, InputValue
from repro_gate.checks.pages import url
from repro_gate.compare.model import Comparison
from repro_gate.report import causes, chart, comparisons, costs, numbers, wording
from repro_gate.report.model import Reason, Report, RunSummary
from repro_gate.report.wording import Phrase

MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "warn": "⚠️", "skip": "⏭️", "waived": "📝",
    "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌", "new-platform": "🆕",
}  # fmt: skip
_SEEN = 5  # weakened checks that a comment shows without a click


@dataclass(frozen=True, kw_only=True)
class Form:
    """How much is shown: characters of one text, entries of one list. 0 leaves the part out."""

    name: int = 200
    message: int = 1_000
    rows: int = 25  # of each list but these:
    inputs: int = 100
    changed_inputs: int = 10
    evidence: int = 5
    log_lines: int = 30
    reproduce: int = 4_000
    setting: bool = True  # runs, flags, environment and inputs
    figures: bool = True  # charts, checks, notes and final tensors
    open: bool = False  # whether what is folded is shown unfolded: where there is room for more than a glance


_WHOLE = Form()
_SHORT = replace(_WHOLE, log_lines=5, inputs=25, evidence=2, rows=15)
_BRIEF = replace(_SHORT, setting=False, log_lines=0, evidence=0, name=160, message=600)
_CORE = replace(_BRIEF, rows=5, changed_inputs=3, message=300, name=100)
_LEAST = replace(_CORE, figures=False, rows=3, changed_inputs=0, message=100, name=60, reproduce=500)
FORMS = (_WHOLE, _SHORT, _BRIEF, _CORE, _LEAST)  # from the whole story to its core
AMPLE = Form(
    name=500, message=2_000, rows=200, inputs=1_000, changed_inputs=200, evidence=25, log_lines=200, reproduce=8_000, open=True
)  # a page of its own


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


def details(report: Report, form: Form) -> dict[str, object]:
    """What the template shows below the first table, by the template's names."""
    found, base = report.determinism, report.base
    differs = None if found is None or found.comparison.identical else found.comparison
    weakened = [] if base is None else base.weakened[: form.rows]
    lines = [(prose(comparisons.weakening(item), form), message(item.message, form)) for item in weakened]
    seen = len(lines) if form.open else _SEEN
    return {
        "fold": Markup("<details open>" if form.open else "<details>"),
        "weakened": lines[:seen],
        "weakened_besides": lines[seen:],
        "more_weakened": 0 if base is None else len(base.weakened) - form.rows,
        "judge": None if base is None else prose(comparisons.base_policy(base), form),
        "reasons": _reasons(report.reasons, form),
        "more_reasons": len(report.reasons) - form.rows,
        "background": _background(report, form),
        "differs": None if differs is None else _differs(differs, form),
        "reproduce": _block(report.reproduce, "sh") if 0 < len(report.reproduce) <= form.reproduce else None,  # half a command is none
        "compared": _compared(report, form),
        "config_hash": None if report.config_hash is None else _config_hash(report.config_hash, form),
        # The drift without the flags, where the report has no drift with them to show.
        "noise_chart": _block(chart.noise_chart(report.noise_floor), "mermaid") if form.figures and differs is None else None,
        "notes": _reasons(report.notes, form) if form.figures else [],
        "cost_details": _cost_details(report, form),
        "logs": _logs(report.runs, form),
        **_checks(report, form),
        **_setting(report, form),
        "tool_version": code(report.tool_version, form),
        "started": code(report.started, form),
        "seconds": report.seconds,
    }


def _block(text: str | None, language: str) -> Markup | None:
    return None if text is None else Markup(escape.for_code_block(text, language))


def _reasons(reasons: Sequence[Reason], form: Form) -> list[tuple[Markup, Markup, Markup]]:
    """Id (a link to its documentation where it is one of ours), message and remedy."""
    found = []
    for item in reasons[: form.rows]:
        page, name = url(item.id), code(item.id, form)
        found.append((name if page is None else Markup(f"[{name}]({page})"), message(item.message, form), message(item.remedy, form)))
    return found


def _background(report: Report, form: Form) -> list[Markup]:
    """How the cause was found."""
    return [prose(line, form) for line in causes.background(report.diagnosis)] if report.diagnosis is not None and form.evidence else []


def _differs(pair: Comparison, form: Form) -> dict[str, object]:
    """What the section on the difference shows."""
    first = pair.first_divergence
    weights = []
    for item in pair.weights[: form.rows if form.figures else 0]:
        max_abs, ulps, _, relative = wording.distances(item)
        kind = code(f"{item.dtype or '?'} {numbers.shape(item.shape or ())}", form)
        weights.append((code(item.name, form), kind, max_abs, ulps, relative))
    return {
        "where": "" if first is None else prose(wording.where(first), form),
        "how_far": "" if first is None else prose(wording.how_far(first), form),
        "spread": prose(wording.spread(pair), form),
        "kinds": wording.kinds(pair),
        "weights": weights,
        "more_weights": len(pair.weights) - len(weights),
        "chart": _block(chart.chart(pair), "mermaid") if form.figures else None,
    }


def _compared(report: Report, form: Form) -> list[tuple[str, list[Markup], Markup]]:
    """Title, lines and remedy of what is behind the baseline's and the other ref's status."""
    found = []
    if report.baseline is not None:
        lines = comparisons.baseline_lines(report.baseline, form.changed_inputs)
        found.append(("Against the baseline", lines, message(report.baseline.remedy, form)))
    if report.against is not None:
        found.append(("Against another ref", comparisons.against_lines(report.against, form.changed_inputs), Markup("")))
    shown = [(title, [prose(line, form) for line in lines] if form.changed_inputs else [], remedy) for title, lines, remedy in found]
    return [item for item in shown if item[1] or item[2]]


def _config_hash(found: ConfigHash, form: Form) -> dict[str, object]:
    roots = (("config hash", found.config_hash), (RECIPE, found.recipe), (PLATFORM, found.platform))
    halves = ((RECIPE, found.recipe_inputs), (PLATFORM, found.platform_inputs))
    inputs = chain.from_iterable(((root, name, value) for name, value in sorted(inputs.items())) for root, inputs in halves)
    rows = islice(inputs, form.inputs if form.setting else 0)
    return {
        "roots": [(name, code(root, _WHOLE)) for name, root in roots],
        "self_check": comparisons.self_check(found.self_check),
        "complete": found.self_check is None or found.self_check.complete,
        "inputs": [(root, code(name, form), code(_value(value), form)) for root, name, value in rows],
        "more": len(found.recipe_inputs) + len(found.platform_inputs) - form.inputs,
    }


def _value(value: InputValue) -> str:
    try:
        return input_text(value)
    except (ValueError, TypeError, RecursionError):  # an integer of thousands of digits, a bottomless list
        return "too large to show"


def _cost_details(report: Report, form: Form) -> list[Markup]:
    price = report.cost
    spent = costs.times_spent(report)
    time = [Markup(f"`{costs.time_bar(report)}` {spent}")] if spent else []
    if price is None:
        return time
    few = "" if price.told else f"too few runs for a figure: 95% interval {numbers.interval(price.ci95)}"
    lines = [Markup(line) for line in (costs.step_times(price), few, costs.memory(price)) if line]
    if price.suspicious is not None:
        lines.append(Markup(f"{MARKS['warn']} **suspicious:** ") + message(price.suspicious, form))
    return [*lines, *time]


def _checks(report: Report, form: Form) -> dict[str, object]:
    rows = form.rows if form.figures else 0
    made = [item for item in wording.worst_first(report.checklist) if item.status != "skip"]
    skipped = [item for item in report.checklist if item.status == "skip" and not wording.is_undeclared(item)]
    return {
        "checks": [
            {
                "id": code(item.id, form),
                "status": item.status,
                "message": message(item.message, form),
                "remedy": message(item.remedy, form) if item.status in ("warn", "fail") else Markup(""),
                "evidence": [code(text, form) for text in item.evidence[: form.evidence]],
            }
            for item in made[:rows]
        ],
        "skipped": Markup(", ").join(code(item.id, form) for item in skipped[:rows]),
        "undeclared": Markup(wording.undeclared(report.checklist)),
    }


def _logs(runs: Sequence[RunSummary], form: Form) -> list[tuple[Markup, Markup | None]]:
    found = []
    for run in [run for run in runs if run.log_tail and wording.ended_badly(run)][: 5 if form.log_lines else 0]:
        lines = "\n".join(escape.clip(line, form.name) for line in run.log_tail[-form.log_lines :])
        found.append((code(run.name, form), _block(lines, "text")))
    return found


def _setting(report: Report, form: Form) -> dict[str, object]:
    """The runs, the flags as read back, what was gated and on what. Names of ours are not taken over by what the training reported."""
    subject = report.subject
    facts: dict[str, object] = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        **({"uncommitted changes": escape.listed(subject.uncommitted, 10)} if subject.uncommitted else {}),
        "sandbox": subject.sandbox,
    }
    facts |= {name: value for name, value in sorted(subject.versions.items()) if name not in facts}
    rows = form.rows + 15 if form.setting else 0
    runs = report.runs[:rows]
    return {
        "runs": [(code(run.name, form), run, wording.ended_badly(run), wording.outcome(run)[:60]) for run in runs],
        "tables": [
            (title, [(code(name, form), code(value, form)) for name, value in islice(values.items(), rows)])
            for title, values in (("Flags as read back", dict(sorted(report.settings.items()))), ("Environment", facts))
            if rows and values
        ],
    }
