"""In which of their values two files differ."""

from __future__ import annotations

import pytest

from repro_gate.compare.artifacts import Artifact, Leaf, compare_artifacts
from repro_gate.compare.model import Value
from tests.support.artifacts import differences, what

ONE = Leaf(kind="number", dtype="int", shape=None, digest="1", value="1")
TWO = Leaf(kind="number", dtype="int", shape=None, digest="2", value="2")
HALF = Leaf(kind="number", dtype="float", shape=None, digest="3", value="0.5")
TRUE = Leaf(kind="number", dtype="bool", shape=None, digest="4", value="True")
LONG = Leaf(kind="number", dtype="int", shape=None, digest="5", value="9" * 30)
TEXT = Leaf(kind="text", dtype="str", shape=None, digest="6", value="1")
SMALL = Leaf(kind="tensor", dtype="float32", shape=(2,), digest="7")
LARGE = Leaf(kind="tensor", dtype="float32", shape=(3,), digest="8")


def file(digest: str, structure: str = "s", form: str = "json", **leaves: Leaf) -> Artifact:
    return Artifact(format=form, digest=digest, leaves=leaves, structure=structure)


def test_a_leaf_that_differs_is_named_with_both_values_then_the_structure() -> None:
    for a, b, expected, values in (
        (ONE, TWO, "value", (1, 2)),
        (ONE, HALF, "dtype", (1, 0.5)),
        (TRUE, LONG, "dtype", (True, "9" * 30)),
        (ONE, TEXT, "kind", (1, "1")),
        (SMALL, LARGE, "shape", None),
    ):
        files = file("a", x=a, y=ONE), file("b", x=b, y=ONE)
        (found,) = compare_artifacts(*files, "out/m.json", 3)
        assert (found.name, found.step, found.values) == ("out/m.json: x", 3, values)
        assert what(found) == expected
        assert (found.dtype, found.shape) == (a.dtype, a.shape)
    for one, other, found_in in (
        (file("a", x=ONE), file("a", x=TWO), []),  # the same bytes
        (file("a", x=ONE), file("b", x=ONE), []),
        (file("a", x=ONE), file("b", "other", x=ONE), [("(structure)", "structure")]),
        (file("a", x=ONE), file("b", "other", x=TWO), [("x", "value")]),
        (file("a", x=ONE), file("b", form="opaque"), [("(file)", "json")]),  # the format
        (file("a", x=ONE, y=ONE), file("b", z=ONE, y=ONE), [("x", "missing"), ("z", "missing")]),
    ):
        assert [(item.name, what(item)) for item in differences(one, other)] == found_in


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ((0.5, 0.75), 0.25),
        ((12, 10), 2.0),
        ((12, "12"), None),
        (("abcdef12", "abcdee12"), None),
        ((True, False), None),
        ((float("nan"), 1.0), None),
    ],
)
def test_a_distance_is_given_for_numbers_alone(
    values: tuple[Value, Value], far: float | None
) -> None:
    a, b = (
        Leaf(
            kind="text" if isinstance(value, str) else "number",
            dtype=type(value).__name__,
            shape=None,
            digest=repr(value),
            value=str(value),
        )
        for value in values
    )
    (found,) = differences(file("a", x=a), file("b", x=b))
    assert (found.max_abs, str(found.values)) == (far, str(values))
