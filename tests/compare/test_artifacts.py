"""In which of their values two files differ."""

from __future__ import annotations

from repro_gate.compare.artifacts import Artifact, Leaf, compare_artifacts

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
    for a, b, what, values in (
        (ONE, TWO, "value", (1, 2)),
        (ONE, HALF, "dtype", (1, 0.5)),
        (TRUE, LONG, "dtype", (True, "9" * 30)),
        (ONE, TEXT, "kind", (1, "1")),
        (SMALL, LARGE, "shape", None),
    ):
        (found,) = compare_artifacts(file("a", x=a, y=ONE), file("b", x=b, y=ONE), "out/m.json")
        assert (found.name, found.what, found.values) == ("out/m.json: x", what, values)
        assert (found.dtype, found.shape) == (a.dtype, a.shape)
    for a, b, expected in (
        (file("a", x=ONE), file("a", x=TWO), []),  # the same bytes
        (file("a", x=ONE), file("b", x=ONE), []),
        (file("a", x=ONE), file("b", "other", x=ONE), [("(structure)", "structure")]),
        (file("a", x=ONE), file("b", "other", x=TWO), [("x", "value")]),
        (file("a", x=ONE), file("b", form="opaque"), [("(file)", "format")]),
        (file("a", x=ONE, y=ONE), file("b", z=ONE, y=ONE), [("x", "missing"), ("z", "missing")]),
    ):
        assert [(item.leaf, item.what) for item in compare_artifacts(a, b, "")] == expected
