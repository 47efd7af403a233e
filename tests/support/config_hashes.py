"""Inputs of every kind for property-based tests: text with lone surrogates, numbers that JSON
folds, values inside values."""

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
