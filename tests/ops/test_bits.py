"""Results are compared by their bits, and their distance is counted in representable values."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from repro_gate.ops.worker import bits  # noqa: E402


def test_zeros_of_two_signs_differ_and_one_nan_equals_itself() -> None:
    zero, nan = torch.zeros(3), torch.tensor([float("nan")])
    assert not bits.equal([zero], [-zero]) and bits.equal([nan], [nan.clone()])
    assert not bits.equal([zero], [zero.int()]), "the same bits, read otherwise"
    assert bits.digest([zero]) != bits.digest([-zero])


def test_a_distance_that_does_not_fit_is_cut_and_nan_on_one_side_has_none() -> None:
    number = torch.tensor([1.5, 0.0])
    after = (number.view(torch.int32) + torch.tensor([3, 1], dtype=torch.int32)).view(torch.float32)
    assert bits.largest_ulp([number], [after]) == 3
    large = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert bits.largest_ulp([large], [-large]) == 1 << 62
    assert bits.largest_ulp([large], [large * float("nan")]) is None
    assert bits.largest_ulp([torch.tensor([1])], [torch.tensor([2])]) is None
    assert bits.largest_ulp([number], [number.double()]) is None, "of two dtypes"


def test_every_result_has_dense_leaves() -> None:
    places, values = torch.tensor([[0, 0, 2]]), torch.ones(3)
    sparse = torch.sparse_coo_tensor(places, values, (3,), check_invariants=True)
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    found = bits.leaves([sparse, {"a": [conjugate, 1.5], "b": torch.ones(2) > 0}])
    assert [list(leaf.shape) for leaf in found[:3] + found[4:]] == [[1, 2], [2], [2, 2], [2]]
    assert bytes(found[3].tolist()).decode() == (1.5).hex()
