"""Results are compared by their bits, and their distance is counted in representable values."""

from __future__ import annotations

from typing import Any

import pytest

from repro_gate.ops.worker import bits


def test_zeros_of_two_signs_differ_and_one_nan_equals_itself(torch: Any) -> None:
    zero, nan = torch.zeros(3), torch.tensor([float("nan")])
    assert not bits.equal(torch, [zero], [-zero]) and bits.equal(torch, [nan], [nan.clone()])
    assert not bits.equal(torch, [zero], [zero.int()]), "the same bits, read otherwise"
    assert bits.digest(torch, [zero]) != bits.digest(torch, [-zero])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_next_number_is_one_ulp_away_on_both_sides_of_zero(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[
        torch.zeros((), dtype=kind).element_size()
    ]
    for value in (1.5, -1.5, 0.0):
        number = torch.tensor([value], dtype=kind)
        after = (number.view(whole) + 1).view(kind)
        assert bits.largest_ulp(torch, [number], [after]) == 1
    assert bits.largest_ulp(torch, [torch.zeros(1, dtype=kind)], [-torch.zeros(1, dtype=kind)]) == 0


def test_a_distance_that_does_not_fit_is_cut_and_nan_on_one_side_has_none(torch: Any) -> None:
    large = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert bits.largest_ulp(torch, [large], [-large]) == 1 << 62
    assert bits.largest_ulp(torch, [large], [large * float("nan")]) is None
    assert bits.largest_ulp(torch, [torch.tensor([1])], [torch.tensor([2])]) is None


def test_sparse_complex_and_nested_results_have_dense_leaves(torch: Any) -> None:
    places, values = torch.tensor([[0, 0, 2]]), torch.ones(3)
    sparse = torch.sparse_coo_tensor(places, values, (3,), check_invariants=True)
    assert [list(leaf.shape) for leaf in bits.leaves(torch, sparse)] == [[1, 2], [2]]
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    found = bits.leaves(torch, {"a": [conjugate, 1.5], "b": torch.ones(2) > 0})
    assert bits.equal(torch, found, found)
    assert found[1] == (1.5).hex() and list(found[0].shape) == [2, 2]
