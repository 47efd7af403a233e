"""In which of their values two files differ."""

from __future__ import annotations

import pytest

from repro_gate.compare.artifacts import Artifact, Leaf, compare_artifacts, paired
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


GLOB = "runs/*/ck-*.pt"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        # one in each run belongs to the other's, whatever its name
        (["runs/9-59/ck-1.pt"], ["runs/10-00/ck-1.pt"], [GLOB]),
        (["runs/a/ck-1.pt"], ["runs/a/ck-1.pt"], ["runs/a/ck-1.pt"]),
        (["runs/a/ck-1.pt"], [], ["runs/a/ck-1.pt only first"]),
        # in the order of folders, then of files, as the wildcards matched
        (
            ["runs/a/ck-2.pt", "runs/a/ck-1.pt", "runs/a-b/ck-1.pt"],
            ["runs/b/ck-1.pt", "runs/b/ck-2.pt", "runs/b-b/ck-1.pt"],
            [
                f"{GLOB} (1): runs/a/ck-1.pt, runs/b/ck-1.pt",
                f"{GLOB} (2): runs/a/ck-2.pt, runs/b/ck-2.pt",
                f"{GLOB} (3): runs/a-b/ck-1.pt, runs/b-b/ck-1.pt",
            ],
        ),
        # those of one name first
        (["runs/a/ck-1.pt", "runs/x/ck-1.pt"], ["runs/b/ck-1.pt", "runs/x/ck-1.pt"], [GLOB, "runs/x/ck-1.pt"]),
        # as many in each run, or there is no order
        (
            ["runs/a/ck-1.pt"],
            ["runs/b/ck-1.pt", "runs/b/ck-2.pt"],
            ["runs/a/ck-1.pt only first", "runs/b/ck-1.pt only second", "runs/b/ck-2.pt only second"],
        ),
    ],
)  # fmt: skip
def test_what_the_time_names_belongs_to_what_the_same_glob_matched(
    ours: list[str], theirs: list[str], expected: list[str]
) -> None:
    found = []
    for name, first, second in paired(dict.fromkeys(ours, GLOB), dict.fromkeys(theirs, GLOB)):
        alone = " only first" * (not second) + " only second" * (not first)
        several = f": {first}, {second}" if "(" in name else ""
        found.append(name + alone + several)
    assert sorted(found) == sorted(expected)


def test_globs_do_not_share_what_they_matched() -> None:
    a, b = {"x/1": "x/*", "y/1": "y/*"}, {"x/2": "x/*", "z": "z"}
    assert paired(a, b) == [("x/*", "x/1", "x/2"), ("y/1", "y/1", ""), ("z", "", "z")]
