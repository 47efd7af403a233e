"""Claims about the form that leaves are hashed in: it loses nothing, folds nothing, and has one text."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.baseline.canonical import canonical, escape, from_form, to_form, unescape
from repro_gate.baseline.config_hash import InputValue
from tests.support.config_hashes import TEXT, VALUES, exactly


@given(VALUES)
def test_a_form_gives_its_value_back_also_through_a_json_text(value: InputValue) -> None:
    text = json.dumps(to_form(value), allow_nan=False)
    assert exactly(from_form(json.loads(text))) == exactly(value)


@given(VALUES, VALUES)
def test_two_values_have_one_text_only_if_they_are_the_same(a: InputValue, b: InputValue) -> None:
    assert (canonical(to_form(a)) == canonical(to_form(b))) == (exactly(a) == exactly(b))


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, "1", True, [1], {"int": "1"}, {"float": "0x1.0000000000000p+0"}),
        (0, 0.0, -0.0, False, None, "", [], {}),
        (2**53, 2**53 + 1, float(2**53), str(2**53)),
        (2**64, 2**64 + 1),
        (math.inf, -math.inf, math.nan, "inf", "nan", {"float": "nan"}),
        ("\u00e9", "e\u0301"),  # NFC and NFD
        ("\udcff", "\\udcff", "\\\\udcff", "\xff"),
        (["a", "b"], ["b", "a"], ["ab"]),
        ({"a": 1}, {"a": 1.0}, {"dict": {"a": 1}}),
        ("\r\n", "\n"),
    ],
    ids=lambda values: repr(values[0]),
)
def test_what_json_or_unicode_would_fold_stays_apart(values: tuple[InputValue, ...]) -> None:
    assert len({canonical(to_form(value)) for value in values}) == len(values)


def test_the_order_of_keys_does_not_count_and_is_by_utf_16() -> None:
    one, other = {"\ufb33": 1, "\U0001f600": 2, "a": 3}, {"a": 3, "\U0001f600": 2, "\ufb33": 1}
    assert canonical(to_form(one)) == canonical(to_form(other))
    text = canonical(to_form(one)).decode()
    assert text.index("a") < text.index("\U0001f600") < text.index("\ufb33")  # RFC 8785, 3.2.3: surrogates come before U+FB33


def test_every_nan_is_one() -> None:
    assert to_form(math.nan) == to_form(-math.nan) == {"float": "nan"}


@given(TEXT, TEXT)
def test_escaping_can_be_undone_and_gives_text_that_utf_8_can_hold(a: str, b: str) -> None:
    assert unescape(escape(a)) == a
    assert (escape(a) == escape(b)) == (a == b)
    escape(a).encode()


@pytest.mark.parametrize("text", ["\\", "\\x", "\\u0041", "\\uDCFF", "\\udc", "\ud800", "a\\\\\\"])
def test_text_that_escaping_never_gives_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="backslash"):
        unescape(text)


@pytest.mark.parametrize(
    "form",
    [
        1,
        1.5,
        {"int": 1},
        {"int": "01"},
        {"int": "1_0"},
        {"int": "+1"},
        {"int": " 1"},
        {"int": "٤"},
        {"int": "x"},
        {"int": "9" * 5_000},
        {"float": "1.5"},
        {"float": "0x1.8p0"},
        {"float": "-nan"},
        {"float": "1e999"},
        {"float": "0x1p99999"},
        {"dict": []},
        {"a": "b"},
        {},
        {"int": "1", "float": "nan"},
        {"dict": {"a": 1}},
        ["a", {"b": None}],
    ],
)
def test_a_form_that_is_written_otherwise_is_refused(form: object) -> None:
    with pytest.raises(ValueError, match=r"number|neither|invalid|Invalid"):
        from_form(form)


def test_a_form_nested_too_deep_is_refused_and_one_at_the_limit_is_read() -> None:
    deep: object = None
    for _ in range(15):
        deep = [deep]
    from_form(deep)
    with pytest.raises(ValueError, match="nested deeper than 16 levels"):
        from_form([deep])


@given(st.floats(allow_nan=False))
def test_floats_come_back_to_the_last_bit(value: float) -> None:
    back = from_form(to_form(value))
    assert isinstance(back, float) and back.hex() == value.hex()
