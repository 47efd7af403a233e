"""How names, foreign sentences and shared phrases become Markdown.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from repro_gate import escape
from repro_gate.checks.pages import url
from repro_gate.report.wording import Phrase

MARKS: Mapping[str, str] = {
    "pass": "✅", "fail": "❌", "inconclusive": "❔", "warn": "⚠️", "skip": "⏭️", "waived": "📝",
    "unchanged": "✅", "no-op": "✅", "changed": "⚠️", "drift": "❌", "new-platform": "🆕",
}  # fmt: skip
GLANCE = 400  # characters of one text in the first table; what is folded has more
# a line, `src/train.py:41`: what is shown of it, and its address
Links = Mapping[str, tuple[str, str]]


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
