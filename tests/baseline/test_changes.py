"""Claims about what two config hashes are said to differ in, and how a config hash is shown."""

from __future__ import annotations

import json
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
    recipe: Inputs = {"code": "sha256:cd", "seeds": [42], "data/x": {"sha256": "ff", "bytes": 1}}
    after = hash_inputs(recipe, {"python": "3.12.1", "threads": 2})
    moves = changed_inputs(SAMPLE, after)
    assert moves == (
        ChangedInput("recipe", "code", "sha256:ab", "sha256:cd"),
        ChangedInput("recipe", "data/x", None, '{"bytes": 1, "sha256": "ff"}'),
        ChangedInput("recipe", "steps", "null", None),
        ChangedInput("platform", "python", "3.11.9", "3.12.1"),
    )
    lines = diff_lines(moves)
    assert len(lines) == 5 and lines[0].startswith("4 inputs differ")
    assert lines[3].split() == ["recipe", "steps", "null", "->", "(absent)"]
    assert changed_inputs(SAMPLE, SAMPLE) == () and len(diff_lines(())) == 1


@given(LEAVES, LEAVES)
def test_an_input_is_named_exactly_if_the_hash_moves(one: Inputs, other: Inputs) -> None:
    a, b = hash_inputs(one, {}), hash_inputs(other, {})
    names = {move.name for move in changed_inputs(a, b)}
    left = {name: rfc8785.dumps(value) for name, value in a.recipe_inputs.items()}
    right = {name: rfc8785.dumps(value) for name, value in b.recipe_inputs.items()}
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


@pytest.mark.parametrize("text", ["(absent)", "a\nb", "1", "null", "[1]", "", " a"])
def test_text_that_would_read_as_something_else_is_quoted(text: str) -> None:
    assert input_text(text) == json.dumps(text)
    assert input_text("python t.py") == "python t.py"


def test_the_tree_shows_each_hash_and_each_input() -> None:
    lines = tree_lines(SAMPLE)
    shown = [re.findall(r"sha256:[0-9a-f]{64}", line) for line in lines]
    whole, recipe, platform = [SAMPLE.config_hash], [SAMPLE.recipe], [SAMPLE.platform]
    assert shown == [whole, recipe, [], [], [], platform, [], []]
    inputs = [line.split() for line, hashes in zip(lines, shown, strict=True) if not hashes]
    assert inputs[:3] == [["code", "sha256:ab"], ["seeds", "[42]"], ["steps", "null"]]
    assert inputs[3:] == [["python", "3.11.9"], ["threads", "2"]]
