"""Claims about what two addresses are said to differ in, and how an address is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from repro_gate.baseline.changes import diff_lines, leaf_text, moved, tree_lines
from repro_gate.baseline.config_hash import Leaf, LeafMove, Leaves
from repro_gate.baseline.self_check import prove
from repro_gate.baseline.tree import address
from tests.support.config_hashes import LEAVES, exactly

SAMPLE = address({"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2})


def test_the_leaves_that_moved_are_named_with_both_values() -> None:
    after = address({"code": "sha256:cd", "seeds": [42], "data/x": {"sha256": "ff", "bytes": 1}}, {"python": "3.12.1", "threads": 2})
    assert moved(SAMPLE, after) == (
        LeafMove("recipe", "code", "sha256:ab", "sha256:cd"),
        LeafMove("recipe", "data/x", None, '{"bytes": 1, "sha256": "ff"}'),
        LeafMove("recipe", "steps", "null", None),
        LeafMove("platform", "python", "3.11.9", "3.12.1"),
    )
    assert diff_lines(moved(SAMPLE, after)) == (
        "4 leaves differ:",
        "  recipe    code  sha256:ab -> sha256:cd",
        '  recipe    data/x  (absent) -> {"bytes": 1, "sha256": "ff"}',
        "  recipe    steps  null -> (absent)",
        "  platform  python  3.11.9 -> 3.12.1",
    )


def test_the_same_address_has_no_moves() -> None:
    assert moved(SAMPLE, SAMPLE) == () and diff_lines(()) == ("same address: no leaf differs",)


@given(LEAVES, LEAVES)
def test_something_is_said_to_move_exactly_where_the_hash_does(one: Leaves, other: Leaves) -> None:
    a, b = address(one, {}), address(other, {})
    names = {move.name for move in moved(a, b)}
    assert (a.recipe == b.recipe) == (not names)
    assert names == {
        name for name in one.keys() | other.keys() if name not in one or name not in other or exactly(one[name]) != exactly(other[name])
    }


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1.0), (1, "1"), (1, True), (0.0, -0.0), (None, "null"), ("", None), ("a", "a "), ([1], [1.0])]
)
def test_values_that_move_never_look_the_same(before: Leaf, after: Leaf) -> None:
    (move,) = moved(address({"x": before}, {}), address({"x": after}, {}))
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
    assert leaf_text(value) == text


def test_the_tree_shows_each_hash_each_leaf_and_the_proof() -> None:
    lines = tree_lines(prove(SAMPLE))
    assert [re.sub(r"sha256:[0-9a-f]{64}", "HASH", line) for line in lines] == [
        "HASH  config",
        "  HASH  recipe",
        "    code   sha256:ab",
        "    seeds  [42]",
        "    steps  null",
        "  HASH  platform",
        "    python   3.11.9",
        "    threads  2",
        "hashed twice: equal; 5 of 5 leaves move it when changed",
    ]
    assert lines[0].startswith(SAMPLE.config_hash) and SAMPLE.recipe in lines[1] and SAMPLE.platform in lines[5]
    assert tree_lines(SAMPLE) == lines[:-1]
