"""Claims about `probe.distance`: its figures are those of a plain reference in exact integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.probe import distance
from repro_gate.probe.distance import measure
from repro_gate.trace import ulp

FLOATS = {
    torch.float16: (torch.int16, 16),
    torch.bfloat16: (torch.int16, 16),
    torch.float32: (torch.int32, 32),
    torch.float64: (torch.int64, 64),
}
INF, NAN = math.inf, math.nan


def place(bits: int, width: int) -> int:
    """Where a float stands among all of its dtype, 0 being both zeros; `bits` is signed."""
    size = bits & ((1 << (width - 1)) - 1)
    return -size if bits < 0 else size


def plain(a: torch.Tensor, b: torch.Tensor) -> tuple[float, int]:
    """(max_abs, max_ulp) element by element, in Python's integers."""
    integer, width = FLOATS[a.dtype]
    places = [
        [place(bits, width) for bits in side.contiguous().view(integer).tolist()] for side in (a, b)
    ]
    return (
        max(abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)),
        min(max(abs(x - y) for x, y in zip(*places, strict=True)), (1 << 63) - 1),
    )


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_figures_are_those_of_the_plain_reference(dtype: torch.dtype, data: st.DataObject) -> None:
    integer, width = FLOATS[dtype]
    words = st.lists(
        st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1), min_size=4, max_size=4
    )
    a, b = (torch.tensor(data.draw(words), dtype=integer).view(dtype) for _ in range(2))
    if not (a.isfinite().all() and b.isfinite().all()):
        return
    max_abs, max_ulp, l2, norm, _ = measure(a, b)
    wide, other = a.to(torch.float64).numpy(), b.to(torch.float64).numpy()
    with np.errstate(over="ignore"):
        expected = np.sqrt(np.square(other - wide).sum()), np.sqrt(np.square(wide).sum())
    reference_abs, reference_ulp = plain(a, b)
    assert max_abs == (reference_abs if math.isfinite(reference_abs) else None)
    assert max_ulp == (reference_ulp if math.isfinite(expected[0]) else None)
    for figure, wanted in zip((l2, norm), expected, strict=True):
        assert figure == (pytest.approx(wanted, rel=1e-12) if math.isfinite(wanted) else None)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulps_are_counted_across_zero_and_through_subnormals(dtype: torch.dtype) -> None:
    tiny = torch.tensor([1], dtype=FLOATS[dtype][0]).view(dtype)
    assert measure(-tiny, tiny)[:2] == (2 * float(tiny), 2)
    assert measure(tiny * 0, -tiny * 0)[:2] == (0.0, 0)


def test_the_widest_gap_of_float64_does_not_wrap() -> None:
    most = torch.finfo(torch.float64).max
    a, b = (torch.tensor([most, -sign, sign], dtype=torch.float64) for sign in (1.0, -1.0))
    assert measure(a, b)[:2] == (2.0, 2 * 0x3FF0000000000000)
    assert ulp.largest(ulp.gaps(torch, a[:1], -a[:1])) == (1 << 63) - 1


def test_a_figure_that_does_not_exist_is_none_and_equal_infinities_are_no_distance() -> None:
    pairs = [([NAN, 1.0], [1.0, 1.0]), ([1.0, 1.0], [NAN, 1.0]), ([INF, 1.0], [-INF, 1.0])]
    for a, b in (*pairs, ([1.0, 5.0, 1.0], [2.0, 5.0, NAN])):
        assert measure(torch.tensor(a), torch.tensor(b))[:3] == (None, None, None)
    found = measure(torch.tensor([-INF, 1.0]), torch.tensor([-INF, 1.5]))
    assert found == (0.5, 1 << 22, 0.5, None, None)


def test_pieces_add_up_and_a_nan_in_one_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    b = a + torch.randn(1000, generator=torch.Generator().manual_seed(1)) * 1e-3
    whole = measure(a, b)
    monkeypatch.setattr(distance, "PIECE", 7)
    assert measure(a, b)[:2] == whole[:2]
    assert measure(a, b)[2:] == pytest.approx(whole[2:])
    for spot in (0, 500, 999):
        changed = b.clone()
        changed[spot] = NAN
        assert measure(a, changed)[0] is None


def test_complex_and_integer_tensors_have_their_figures_too() -> None:
    a = torch.tensor([1 + 1j, 2 + 2j])
    assert measure(a, torch.tensor([1 + 1j, 2 + 2.5j]))[0:3:2] == (0.5, 0.5)
    assert measure(a.conj(), a)[0] == 4.0
    found = measure(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 10]))
    assert found == (7.0, None, 7.0, pytest.approx(14**0.5), 3.0)
    assert measure(torch.tensor([True, False]), torch.tensor([True, True]))[:2] == (1.0, None)
    # equal ones are zero apart whatever they hold
    for tensor in (torch.randn(5), torch.tensor([NAN, INF]), torch.tensor(3), torch.zeros(0)):
        assert measure(tensor, tensor.clone())[0] == 0.0


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
@pytest.mark.parametrize("strided", [False, True])
def test_a_perturbed_tensor_differs_in_the_last_bit_of_about_half_of_its_elements(
    dtype: torch.dtype, strided: bool
) -> None:
    before = torch.randn(40, 30).to(dtype)
    before = before.t() if strided else before
    after = torch.nn.Parameter(before.clone(), requires_grad=False)
    distance.perturb([("w", after)], 0)
    assert after.stride() == before.stride()
    if dtype is torch.int64:
        assert torch.equal(before, after)
        return
    gaps = ulp.gaps(torch, before, after)
    assert gaps.max() == 1 and 0.4 < gaps.double().mean() < 0.6
    distance.perturb([("w", after)], 0)  # always the same elements
    assert torch.equal(before, after)


def test_where_operators_lose_bits_the_last_one_that_counts_is_changed() -> None:
    before = torch.randn(40, 30)
    after = before.clone()
    distance.perturb([("w", after)], 16)
    halves = ulp.gaps(torch, before.bfloat16(), after.bfloat16())
    assert halves.max() == 1 and 0.4 < halves.double().mean() < 0.6
