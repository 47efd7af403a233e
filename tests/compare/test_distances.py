"""Distances exist for numbers only: nothing is made up and nothing is raised."""

from __future__ import annotations

import math

import pytest

from repro_gate.compare.distances import distance_of_values
from repro_gate.compare.model import Value


@pytest.mark.parametrize(
    ("a", "b", "dtype", "far"),
    [
        (0.5, 0.75, "float", (0.25, 2**51)),
        (12, 10, "int", (2.0, None)),
        (2**53 + 1, 2**53, "int", (1.0, None)),
        (1, 1.5, "int", (0.5, None)),
        (-1.7e308, 1.7e308, "float", (None, 0xFFDC85A260EE76EC)),  # a gap that is no float
        (math.nan, 1.0, "float", None),
        (10**400, 1, "int", None),
        ("abcdef12", "abcdee12", "str", None),
        ("0.5", "0.75", "str", None),
        (True, False, "str", None),
        (True, 3, "str", None),
        ("1", 1, "str", None),
    ],
)
def test_numbers_have_the_distance_of_their_values_and_texts_and_truth_values_none(
    a: Value, b: Value, dtype: str, far: tuple[float | None, int | None] | None
) -> None:
    found = distance_of_values(a, b, dtype)
    assert (found and (found.max_abs, found.max_ulp)) == far
