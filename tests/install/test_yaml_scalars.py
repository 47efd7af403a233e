"""YAML read as events: every scalar has its path and line, and no text can make it large or deep."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.install.yaml_scalars import MAX_DEPTH, YamlFault, scalars


def read(text: str) -> list[tuple[object, ...]]:
    return [(item.path, item.line, item.value) for item in scalars(text)]


def test_values_have_their_path_and_line() -> None:
    text = "a: 1\nb:\n  - x\n  - c: 'y'\n    d: {e: [z]}\n? [p, q]\n: w\nf: |\n  long\n"
    assert read(text) == [
        (("a",), 1, "1"),
        (("b", 0), 3, "x"),
        (("b", 1, "c"), 4, "y"),
        (("b", 1, "d", "e", 0), 5, "z"),
        (("?", 0), 6, "p"),
        (("?", 1), 6, "q"),
        (("?",), 7, "w"),
        (("f",), 8, "long\n"),
    ]
    assert read("") == [] and read("only") == [((), 1, "only")]


def test_an_alias_of_a_scalar_stands_for_it() -> None:
    assert read("a: &x v\nb: *x\n*x : c\nd: *e\n") == [(("a",), 1, "v"), (("b",), 2, "v"), (("v",), 3, "c")]


def test_aliases_cannot_grow() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20))
    assert len(read(bomb)) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", 1),
        ("a: 1\nb: 'x\n", 2),
        ("a:\n\t- b\n", 2),
        ("a: b: c\n", 1),
        ("a: \0\n", 1),
        ("a: 1\n" + "[" * 1000, 2),
        ("- " * 200 + "x", 1),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlFault) as fault:
        read(text)
    assert abs(fault.value.line - line) <= 1 and str(fault.value)


def test_depth_has_a_limit() -> None:
    assert len(read("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH)) == 1
    with pytest.raises(YamlFault, match="nested deeper"):
        read("[" * (MAX_DEPTH + 1) + "x" + "]" * (MAX_DEPTH + 1))


LEAVES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=5)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(LEAVES, inner, max_size=4), max_leaves=20)


@given(TREES)
def test_paths_lead_to_the_values_that_were_written(tree: object) -> None:
    found = {item.path: item.value for item in scalars(yaml.safe_dump(tree))}

    def walk(node: object, path: tuple[str | int, ...]) -> int:
        if isinstance(node, str):
            assert found[path] == node
            return 1
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return sum(walk(value, (*path, key)) for key, value in pairs)

    assert walk(tree, ()) == len(found)
