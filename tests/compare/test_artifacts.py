"""In which of their values two files differ."""

from __future__ import annotations

import pytest

from repro_gate.compare.artifacts import Artifact, Leaf, compare_artifacts
from repro_gate.compare.model import Value

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


@pytest.mark.parametrize(
    ("a", "b", "what", "values"),
    [
        (ONE, TWO, "value", (1, 2)),
        (ONE, HALF, "dtype", (1, 0.5)),
        (TRUE, LONG, "dtype", (True, "9" * 30)),
        (ONE, TEXT, "kind", (1, "1")),
        (SMALL, LARGE, "shape", None),
    ],
)
def test_a_leaf_that_differs_is_named_with_both_values(
    a: Leaf, b: Leaf, what: str, values: tuple[Value, Value] | None
) -> None:
    (found,) = compare_artifacts(file("a", x=a, y=ONE), file("b", x=b, y=ONE), "out/m.json")
    assert (found.name, found.what, found.values) == ("out/m.json: x", what, values)
    assert (found.dtype, found.shape) == (a.dtype, a.shape)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (file("a", x=ONE), file("a", x=TWO), []),  # the same bytes
        (file("a", x=ONE), file("b", x=ONE), []),
        (file("a", x=ONE), file("b", "other", x=ONE), [("(structure)", "structure")]),
        (file("a", x=ONE), file("b", "other", x=TWO), [("x", "value")]),
        (file("a", x=ONE), file("b", form="opaque"), [("(file)", "format")]),
        (file("a", x=ONE, y=ONE), file("b", z=ONE, y=ONE), [("x", "missing"), ("z", "missing")]),
    ],
)
def test_files_differ_by_their_leaves_then_by_their_structure(
    a: Artifact, b: Artifact, expected: list[tuple[str, str]]
) -> None:
    assert [(item.leaf, item.what) for item in compare_artifacts(a, b, "")] == expected
