"""Claims about what two config hashes are said to differ in, and how a config hash is shown."""

from __future__ import annotations

import re

import pytest
import rfc8785
from hypothesis import given

from repro_gate.baseline.config_hash import (
    ChangedInput,
    Inputs,
    InputValue,
    changed_inputs,
    diff_lines,
    hash_inputs,
    input_text,
    tree_lines,
)
from tests.support.config_hashes import LEAVES

SAMPLE = hash_inputs(
    {"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2}
)


def test_the_inputs_that_changed_are_named_with_both_values() -> None:
    after = hash_inputs(
        {"code": "sha256:cd", "seeds": [42], "data/x": {"sha256": "ff", "bytes": 1}},
        {"python": "3.12.1", "threads": 2},
    )
    assert changed_inputs(SAMPLE, after) == (
        ChangedInput("recipe", "code", "sha256:ab", "sha256:cd"),
        ChangedInput("recipe", "data/x", None, '{"bytes": 1, "sha256": "ff"}'),
        ChangedInput("recipe", "steps", "null", None),
        ChangedInput("platform", "python", "3.11.9", "3.12.1"),
    )
    lines = diff_lines(changed_inputs(SAMPLE, after))
    assert (
        len(lines) == 5
        and lines[0].startswith("4 inputs differ")
        and lines[3].split() == ["recipe", "steps", "null", "->", "(absent)"]
    )
    assert changed_inputs(SAMPLE, SAMPLE) == () and len(diff_lines(())) == 1


@given(LEAVES, LEAVES)
def test_an_input_is_named_exactly_if_the_hash_moves(one: Inputs, other: Inputs) -> None:
    a, b = hash_inputs(one, {}), hash_inputs(other, {})
    names = {move.name for move in changed_inputs(a, b)}
    left, right = (
        {name: rfc8785.dumps(value) for name, value in made.recipe_inputs.items()}
        for made in (a, b)
    )
    assert (a.recipe == b.recipe) == (not names)
    assert names == {name for name in left.keys() | right if left.get(name) != right.get(name)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, "1"),
        (1, True),
        (None, "null"),
        ("", None),
        ("a", "a "),
        ([1], [1.5]),
        (2**53, 2**53 + 1),
    ],
)
def test_values_that_move_never_look_the_same(before: InputValue, after: InputValue) -> None:
    (move,) = changed_inputs(hash_inputs({"x": before}, {}), hash_inputs({"x": after}, {}))
    assert move.before != move.after


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("python t.py", "python t.py"),
        ("42", '"42"'),
        ("(absent)", '"(absent)"'),
        ("a\nb", r'"a\nb"'),
        ("\udcff", r'"\udcff"'),
    ],
)
def test_text_is_quoted_only_where_it_would_read_as_something_else(value: str, text: str) -> None:
    assert input_text(value) == text


def test_the_tree_shows_each_hash_and_each_input() -> None:
    lines = tree_lines(SAMPLE)
    assert [re.findall(r"sha256:[0-9a-f]{64}", line) for line in lines] == [
        [SAMPLE.config_hash], [SAMPLE.recipe], [], [], [], [SAMPLE.platform], [], [],
    ]  # fmt: skip
    assert [lines[place].split() for place in (2, 3, 4, 6, 7)] == [
        ["code", "sha256:ab"], ["seeds", "[42]"], ["steps", "null"], ["python", "3.11.9"], ["threads", "2"],
    ]  # fmt: skip
