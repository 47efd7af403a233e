"""The Markdown of what this gate run is compared with: the baseline, another ref, the base, and the config hash with its inputs.
 Names, values, refs and
messages come out of checkouts and baselines, and leave here as Markup only through `markdown_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from markupsafe import Markup

from repro_gate.baseline.changes import input_text
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, InputValue
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.report import comparisons, numbers
from repro_gate.report.markdown_parts import MARKS, Form, code, message, prose
from repro_gate.report.model import BaseFinding, Report
from repro_gate.report.wording import Phrase

_SEEN = 5  # weakenings that a comment shows without a click


def context(report: Report, form: Form) -> dict[str, object]:
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


def asks_less(base: BaseFinding | None) -> str:
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
