"""Distances exist for numbers only: whatever two values are, nothing is made up and nothing is
raised."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.compare.distances import distance_of_values
from repro_gate.compare.model import Value

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=20))


@pytest.mark.parametrize(
    ("a", "b", "dtype", "max_abs", "ulp"),
    [
        (0.5, 0.75, "float", 0.25, 2**51),
        (12, 10, "int", 2.0, None),
        (2**53 + 1, 2**53, "int", 1.0, None),
        (1, 1.5, "int", 0.5, None),
        ("abcdef12", "abcdee12", "str", None, None),
        ("0.5", "0.75", "str", None, None),
        (True, False, "str", None, None),
        (True, 3, "str", None, None),
        ("1", 1, "str", None, None),
    ],
)
def test_numbers_have_the_distance_of_their_values_and_texts_and_truth_values_none(
    a: Value, b: Value, dtype: str, max_abs: float | None, ulp: int | None
) -> None:
    found = distance_of_values(a, b, dtype)
    assert (found and (found.max_abs, found.max_ulp)) == (max_abs and (max_abs, ulp))


@given(
    VALUES, VALUES, st.sampled_from([None, "float", "float16", "float32", "float64", "int", "str"])
)
def test_whatever_the_values_are_there_is_a_finite_distance_or_none(
    a: Value, b: Value, dtype: str | None
) -> None:
    found = distance_of_values(a, b, dtype)
    if found is not None:
        assert not {type(a), type(b)} & {str, bool}
        figures = (found.max_abs, found.l2, found.relative_l2)
        assert all(math.isfinite(value) and value >= 0 for value in figures if value is not None)
