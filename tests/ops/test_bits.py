"""Results are compared by their bits, and their distance is counted in representable values."""

from __future__ import annotations

from typing import Any

from repro_gate.ops.worker import bits


def test_zeros_of_two_signs_differ_and_one_nan_equals_itself(torch: Any) -> None:
    zero, nan = torch.zeros(3), torch.tensor([float("nan")])
    assert not bits.equal(torch, [zero], [-zero]) and bits.equal(torch, [nan], [nan.clone()])
    assert not bits.equal(torch, [zero], [zero.int()]), "the same bits, read otherwise"
    assert bits.digest(torch, [zero]) != bits.digest(torch, [-zero])


def test_a_distance_that_does_not_fit_is_cut_and_nan_on_one_side_has_none(torch: Any) -> None:
    number = torch.tensor([1.5, 0.0])
    after = (number.view(torch.int32) + torch.tensor([3, 1], dtype=torch.int32)).view(torch.float32)
    assert bits.largest_ulp(torch, [number], [after]) == 3
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
