"""How much of the report the Markdown shows (`Form`), and the ways in which text from outside reaches it.
Whatever is Markup has been made safe here or is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from markupsafe import Markup

from repro_gate import escape
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


@dataclass(frozen=True)
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
