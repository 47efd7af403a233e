"""Claims about what two config hashes are said to differ in, and how a config hash is shown."""

from __future__ import annotations

import re

import pytest
import rfc8785
from hypothesis import given

from repro_gate.baseline.changes import changed_inputs, diff_lines, input_text, tree_lines
from repro_gate.baseline.config_hash import ChangedInput, Inputs, InputValue, hash_inputs, self_checked
from tests.support.config_hashes import LEAVES

SAMPLE = hash_inputs({"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2})


def test_the_inputs_that_changed_are_named_with_both_values() -> None:
    after = hash_inputs({"code": "sha256:cd", "seeds": [42], "data/x": {"sha256": "ff", "bytes": 1}}, {"python": "3.12.1", "threads": 2})
    assert changed_inputs(SAMPLE, after) == (
        ChangedInput("recipe", "code", "sha256:ab", "sha256:cd"),
        ChangedInput("recipe", "data/x", None, '{"bytes": 1, "sha256": "ff"}'),
        ChangedInput("recipe", "steps", "null", None),
        ChangedInput("platform", "python", "3.11.9", "3.12.1"),
    )
    assert diff_lines(changed_inputs(SAMPLE, after)) == (
        "4 inputs differ:",
        "  recipe    code  sha256:ab -> sha256:cd",
        '  recipe    data/x  (absent) -> {"bytes": 1, "sha256": "ff"}',
        "  recipe    steps  null -> (absent)",
        "  platform  python  3.11.9 -> 3.12.1",
    )


def test_the_same_config_hash_has_no_moves() -> None:
    assert changed_inputs(SAMPLE, SAMPLE) == () and diff_lines(()) == ("same config hash: no input differs",)


def unlike(one: InputValue, other: InputValue) -> bool:
    return rfc8785.dumps(one) != rfc8785.dumps(other)


@given(LEAVES, LEAVES)
def test_something_is_said_to_move_exactly_where_the_hash_does(one: Inputs, other: Inputs) -> None:
    a, b = hash_inputs(one, {}), hash_inputs(other, {})
    names = {move.name for move in changed_inputs(a, b)}
    assert (a.recipe == b.recipe) == (not names)
    left, right = a.recipe_inputs, b.recipe_inputs
    assert names == {
        name for name in left.keys() | right.keys() if name not in left or name not in right or unlike(left[name], right[name])
    }


@pytest.mark.parametrize(
    ("before", "after"), [(1, "1"), (1, True), (0, 1), (None, "null"), ("", None), ("a", "a "), ([1], [1.5]), (2**53, 2**53 + 1)]
)
def test_values_that_move_never_look_the_same(before: InputValue, after: InputValue) -> None:
    (move,) = changed_inputs(hash_inputs({"x": before}, {}), hash_inputs({"x": after}, {}))
    assert move.before != move.after


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("sha256:ab", "sha256:ab"),
        ("python t.py", "python t.py"),
        ("42", '"42"'),
        ("(absent)", '"(absent)"'),
        ("a\nb", r'"a\nb"'),
        ("\udcff", r'"\udcff"'),
    ],
)
def test_text_is_quoted_only_where_it_would_read_as_something_else(value: str, text: str) -> None:
    assert input_text(value) == text


def test_the_tree_shows_each_hash_each_input_and_the_proof() -> None:
    lines = tree_lines(self_checked(SAMPLE))
    assert [re.sub(r"sha256:[0-9a-f]{64}", "HASH", line) for line in lines] == [
        "HASH  config",
        "  HASH  recipe",
        "    code   sha256:ab",
        "    seeds  [42]",
        "    steps  null",
        "  HASH  platform",
        "    python   3.11.9",
        "    threads  2",
        "hashed twice: equal; 5 of 5 inputs affect it",
    ]
    assert lines[0].startswith(SAMPLE.config_hash) and SAMPLE.recipe in lines[1] and SAMPLE.platform in lines[5]
    assert tree_lines(SAMPLE) == lines[:-1]
