"""InputValue values in a form that has one text: every value JSON can hold, and the ones it would fold, told apart.

Called by `tree` (which hashes the form) and `document` (which writes and reads it, so that what stands in report.json is what is hashed).
RFC 8785 folds `1` and `1.0` and ends at 2**53, so numbers are objects of one key that names the type, and mappings are such objects too: no
mapping can be taken for a number. JSON has no lone surrogates, which is how paths that are no UTF-8 come: they are spelled out, and a
backslash is doubled so that no other text is spelled the same.
"""

from __future__ import annotations

import re

import rfc8785

from repro_gate.baseline.config_hash import InputValue

Form = None | bool | str | list["Form"] | dict[str, "Form"]  # what JSON holds of an input: no numbers

MAX_DEPTH = 16
MAX_DIGITS = 1_000  # of a whole number that is read
_TO_ESCAPE = re.compile("[\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|u(d[89a-f][0-9a-f]{2}))")


def to_form(value: InputValue) -> Form:
    """`{"int": "42"}`, `{"float": "0x1.8p+0"}` (`nan` for every NaN, `inf`, `-inf`), `{"dict": {…}}`; the rest as it is, text escaped."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [to_form(item) for item in value]
    return {"dict": {escape(name): to_form(item) for name, item in value.items()}}


def from_form(form: object, depth: int = MAX_DEPTH) -> InputValue:
    """The value of a form that somebody else wrote. Raises ValueError for what `to_form` never gives."""
    if depth == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if form is None or isinstance(form, bool):
        return form
    if isinstance(form, str):
        return unescape(form)
    if isinstance(form, list):
        return [from_form(item, depth - 1) for item in form]
    if isinstance(form, dict) and len(form) == 1:
        ((tag, content),) = form.items()
        if tag == "dict" and isinstance(content, dict):
            return {unescape(name): from_form(item, depth - 1) for name, item in content.items()}
        if tag in ("int", "float") and isinstance(content, str):
            return _number(tag, content)
    raise ValueError('neither text, null, true, false, a list nor one of {"int": …}, {"float": …} and {"dict": …}')


def canonical(form: Form) -> bytes:
    """The one text of a form: RFC 8785, in UTF-8."""
    return rfc8785.dumps(form)


def escape(text: str) -> str:
    """Text without lone surrogates: each as `\\udcff`, and each backslash doubled. No two texts come out the same."""
    return _TO_ESCAPE.sub(lambda found: "\\\\" if found.group() == "\\" else f"\\u{ord(found.group()):04x}", text)


def unescape(text: str) -> str:
    """What `escape` was given. Raises ValueError for text that it never gives."""
    plain = _ESCAPED.sub(lambda found: "\\" if found.group(1) == "\\" else chr(int(found.group(2), 16)), text)
    if escape(plain) != text:
        raise ValueError("a backslash that is not doubled, or half a surrogate pair")
    return plain


def _number(tag: str, text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters, {MAX_DIGITS} at most")
    try:
        value: int | float = int(text) if tag == "int" else float.fromhex(text)
    except OverflowError:
        raise ValueError("a number that is larger than any float") from None
    if to_form(value) != {tag: text}:
        raise ValueError("a number that is not written in the one way there is")
    return value
