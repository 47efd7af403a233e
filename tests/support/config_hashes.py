"""Inputs of every kind for property-based tests: text with lone surrogates, numbers that JSON folds, values inside values."""

from __future__ import annotations

from hypothesis import strategies as st

from repro_gate.baseline.config_hash import InputValue

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates included
VALUES: st.SearchStrategy[InputValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
LEAVES = st.dictionaries(TEXT, VALUES, min_size=1, max_size=6)


def exactly(value: InputValue) -> object:
    """A value as something that Python compares by type and bits: 1, 1.0 and True differ, as do 0.0 and -0.0, and every NaN is one."""
    if isinstance(value, list):
        return ("list", tuple(exactly(item) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((name, exactly(item)) for name, item in value.items()))
    return (type(value).__name__, value.hex() if isinstance(value, float) else value)
