"""How much of a report a comment shows (Form), and how names, foreign sentences and shared phrases
become Markdown.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from markupsafe import Markup

from repro_gate import escape
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
    """How much is shown: characters of one text, entries of one list. 0 leaves the part out."""

    table: int = 6  # rows of the first table
    name: int = 200
    message: int = 1_000
    rows: int = 10  # of each list but these:
    changed_inputs: int = 10
    log_lines: int = 10
    reproduce: int = 4_000
    map_rows: int = 0  # of the heat map
    figures: bool = True  # the cause's line with those around it, checks
    # all that a page of its own holds too: evidence, tensors, inputs, runs, flags, environment,
    # notes
    whole: bool = False
    # whether what is folded is shown unfolded: where there is room for more than a glance
    open: bool = False
    shortened: bool = False  # whether the reader is told that there is more


_WHOLE = Form(map_rows=16)
_NO_MAP = replace(_WHOLE, map_rows=0)
_BRIEF = replace(_NO_MAP, name=160, message=500, rows=8, shortened=True)
_CORE = replace(_BRIEF, rows=5, changed_inputs=3, message=300, name=100, log_lines=5)
_LEAST = replace(
    _CORE, figures=False, rows=3, changed_inputs=0, log_lines=0, message=100, name=60, reproduce=500
)
FORMS = (_WHOLE, _NO_MAP, _BRIEF, _CORE, _LEAST)  # from the whole story to its core
LINE = Form(table=0, changed_inputs=0, log_lines=0, reproduce=0, figures=False)
# a page of its own
AMPLE = Form(
    table=20,
    name=500,
    message=2_000,
    rows=200,
    changed_inputs=200,
    log_lines=200,
    reproduce=8_000,
    map_rows=24,
    whole=True,
    open=True,
)


def code(text: object, form: Form) -> Markup:
    """A name or a value as inline code."""
    return Markup(escape.for_code_span(escape.clip(str(text), form.name)))


def message(text: str, form: Form) -> Markup:
    """A foreign sentence as inert prose."""
    return Markup(escape.for_markdown(escape.clip(text, form.message)))


def prose(phrase: Phrase, form: Form, links: Links | None = None) -> Markup:
    """A shared sentence: names as code, figures bold, foreign messages made inert, our own words as
    they are. `links` has, for each name that is a line of the checkout, what is shown of it and its
    address."""

    def part(role: str, words: str) -> str:
        if role == "name":
            return _linked(words, form, links or {})
        if role == "message":
            return _message_linked(words, form, links or {})
        return f"**{words}**" if role == "figure" and words else words

    return Markup("".join(part(role, words) for role, words in phrase))


def _linked(words: str, form: Form, links: Links) -> Markup:
    if words not in links:
        return code(words, form)
    shown, address = links[words]
    return Markup("[") + code(shown, form) + Markup(f"](<{address}>)")


def _message_linked(text: str, form: Form, links: Links) -> Markup:
    """A foreign sentence whose first mention of a line is a link; not inside its author's own
    `code`."""
    text = escape.clip(text, form.message)
    for words in links:
        found = re.search(rf"(?:^|(?<=[ (])){re.escape(words)}(?=$|[ ,;:.)])", text)
        if found and text[: found.start()].count("`") % 2 == 0:
            before, after = text[: found.start()], text[found.end() :]
            space = " " * before.endswith(" "), " " * after.startswith(" ")
            return (
                message(before, form)
                + Markup(space[0])
                + _linked(words, form, links)
                + Markup(space[1])
                + message(after, form)
            )
    return message(text, form)


def status(name: str, words: str, form: Form) -> Markup:
    """A status with its mark, then what is said of it."""
    return Markup(f"{MARKS[name]} **{name}**: ") + message(words, form)
