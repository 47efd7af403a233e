"""The Markdown of what this gating is held against: the lock, another ref, the base, and the content address with its leaves.

Called by `report.markdown`, which lays it out with the templates `weakened`, `held` and `address`. Names, values, refs and
messages come out of checkouts and locks, and leave here as Markup only through `markdown_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from markupsafe import Markup

from repro_gate.baseline.changes import leaf_text
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ContentAddress, Leaf
from repro_gate.baseline.model import AgainstFinding, LockFinding
from repro_gate.report import comparisons, numbers
from repro_gate.report.markdown_parts import MARKS, Form, code, message, prose
from repro_gate.report.model import BaseFinding, Report
from repro_gate.report.wording import Phrase

_SEEN = 5  # weakenings that a comment shows without a click


def context(report: Report, form: Form) -> dict[str, object]:
    """What the templates show below the first screen's table: what is weakened, what is behind a standing, and the address."""
    lock, against, base = report.lock, report.against, report.base
    weakened = [] if base is None else _weakened(base, form)
    seen = len(weakened) if form.open else _SEEN
    return {
        "lock": None if lock is None else _lock(lock, form),
        "against": None if against is None else _against(against, form),
        "weakened": weakened[:seen],
        "weakened_besides": weakened[seen:],
        "more_weakened": 0 if base is None else max(len(base.weakened) - form.weakened, 0),
        "judge": None if base is None else prose(comparisons.judge(base), form),
        "address": None if report.content_address is None else _address(report.content_address, form),
    }


def asks_less(base: BaseFinding | None) -> str:
    """One line for where nothing else fits; empty where nothing is weakened."""
    if base is None or not base.weakened:
        return ""
    return f"\n{MARKS['warn']} **{comparisons.ASKS_LESS}:** {numbers.count(len(base.weakened), 'weakening')}.\n"


def _lock(found: LockFinding, form: Form) -> dict[str, object]:
    return {"lines": _lines(comparisons.lock_lines(found, form.moved), form), "remedy": message(found.remedy, form)}


def _against(found: AgainstFinding, form: Form) -> dict[str, object]:
    return {"lines": _lines(comparisons.against_lines(found, form.moved), form), "remedy": Markup("")}


def _lines(phrases: Sequence[Phrase], form: Form) -> list[Markup]:
    """Nothing at all in the form that has no room for what is behind a status."""
    return [prose(phrase, form) for phrase in phrases] if form.moved else []


def _weakened(base: BaseFinding, form: Form) -> list[tuple[Markup, Markup]]:
    return [(prose(comparisons.weakening(item), form), message(item.message, form)) for item in base.weakened[: form.weakened]]


def _address(found: ContentAddress, form: Form) -> dict[str, object]:
    roots = (("config hash", found.config_hash), (RECIPE, found.recipe), (PLATFORM, found.platform))
    total = len(found.recipe_leaves) + len(found.platform_leaves)
    return {
        "roots": [(name, code(root, Form())) for name, root in roots],
        "proof": comparisons.proof(found.proof),
        "holds": found.proof is None or found.proof.holds,
        "leaves": [(root, code(name, form), code(_value(value), form)) for root, name, value in islice(_leaves(found), form.leaves)],
        "more": max(total - form.leaves, 0),
    }


def _leaves(found: ContentAddress) -> Iterator[tuple[str, str, Leaf]]:
    """By root and name: a report that was read back has them in that order."""
    recipe = ((RECIPE, name, value) for name, value in sorted(found.recipe_leaves.items()))
    return chain(recipe, ((PLATFORM, name, value) for name, value in sorted(found.platform_leaves.items())))


def _value(value: Leaf) -> str:
    try:
        return leaf_text(value)
    except (ValueError, TypeError, RecursionError):  # an integer of thousands of digits, a bottomless list
        return "too large to show"
