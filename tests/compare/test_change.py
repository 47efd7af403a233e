"""Claims about `compare.change`: how far rounding carries a tensor, what is beyond it, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.compare.change import (
    Change,
    change_of,
    distance,
    half_ulp,
    rounding_of,
    steps_to_keep,
    unmatched,
)
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured
from repro_gate.trace.model import Trace
from tests.support.built_traces import block, changed, flip, place_of, training, with_loss

STEPS = 3
REFERENCE = training(STEPS)


def measured(
    *rows: tuple[int, str, float | None],
    shape: tuple[int, ...] = (4, 4),
    norm: float = 1.0,
    most: float = 0.0,
) -> list[Measured]:
    """Distances of one tensor: step, kind, their L2 norm."""
    return [
        Measured(
            kind=kind,
            name="fc.weight",
            dtype="float32",
            shape=shape,
            max_abs=None if far is None else most,
            max_ulp=None,
            l2=far,
            reference_l2=norm,
            largest=1.0,
            step=step,
        )
        for step, kind, far in rows
    ]


def trace(distances: Sequence[Measured] = (), base: Trace = REFERENCE) -> Trace:
    return replace(base, distances=list(distances))


ROUNDED = measured((0, "gradient", 1e-6), (0, "parameter", 1e-6), (1, "parameter", 4e-6))


def compared(other: Trace, rounded: Sequence[Measured] = ROUNDED) -> Change:
    return change_of([REFERENCE], [other], [trace(rounded)])


@pytest.mark.parametrize(
    ("steps", "every", "most", "kept"),
    [
        (10, 1, 100, (0, 1, 2, 4, 8, 9)),
        (10, 2, 100, (0, 2, 4, 8)),
        (1, 1, 100, (0,)),
        (100, 1, 3, (0, 1, 99)),
        (100, 1, 1, (0,)),
        (100, 1, 0, (0,)),
        (9, 4, 9, (0, 4, 8)),
    ],
)
def test_powers_of_two_and_the_last_step_are_kept(
    steps: int, every: int, most: int, kept: tuple[int, ...]
) -> None:
    assert steps_to_keep(steps, every, most) == kept


@given(
    st.floats(
        width=32, allow_nan=False, allow_infinity=False, min_value=2.0**-100, max_value=2.0**100
    )
)
def test_half_an_ulp_is_numpy_s(value: float) -> None:
    assert half_ulp("float32", value) == float(np.spacing(np.float32(value))) / 2


def test_half_an_ulp_of_other_types() -> None:
    assert half_ulp("bfloat16", 1.0) == 2.0**-8 and half_ulp("float16", 1.5) == 2.0**-11
    for dtype, value in (("int64", 7.0), ("float32", 0.0), ("float32", None)):
        assert half_ulp(dtype, value) == 0.0


def test_a_tolerance_is_half_an_ulp_at_least_and_never_shrinks() -> None:
    rows = measured((0, "parameter", 0.0), (1, "parameter", 1e-3), (2, "parameter", 1e-6))
    found = rounding_of([trace(rows)])
    # of 16 elements
    expected = [2.0**-22, 1e-3, 1e-3]
    assert [found.distances[step, "parameter", "fc.weight"] for step in range(3)] == expected


def test_a_tensor_of_few_elements_has_the_median_at_least() -> None:
    small = measured((0, "parameter", 0.0), shape=(1,), norm=2.0)
    small = [replace_name(item, "scale") for item in small]
    wide = [replace_name(item, name) for item in measured((0, "parameter", 1e-4)) for name in "ab"]
    found = rounding_of([trace([*small, *wide])])
    assert found.distances[0, "parameter", "scale"] == pytest.approx(2e-4)


def test_a_few_elements_that_rounding_turned_around_do_not_count() -> None:
    for count, far in ((4, 0.0), (8, 2.0), (16, 12**0.5)):
        (item,) = measured((0, "parameter", count**0.5), shape=(32,), most=1.0)
        assert distance(item) == pytest.approx(far)
    (item,) = measured((0, "gradient", 2.0), shape=(32,), most=1.0)
    assert distance(item) == 2.0


@pytest.mark.parametrize(("grown", "until"), [(99e-6, STEPS), (101e-6, 1)])
def test_where_training_has_amplified_rounding_nothing_is_compared(
    grown: float, until: int
) -> None:
    rounded = measured((0, "gradient", 1e-6), (0, "parameter", 1e-6), (1, "parameter", grown))
    found = compared(trace(measured((0, "parameter", 0.0), (1, "parameter", 1.0))), rounded)
    assert found.steps == until and (found.size != "different") == (until == 1)
    # and none is where rounding moves a thirtieth from the first step on
    wide = measured((0, "gradient", 0.1), (0, "parameter", 0.1))
    assert compared(trace(measured((0, "parameter", 1.0))), wide).steps == 0


def replace_name(item: Measured, name: str) -> Measured:
    return Measured(**{field: getattr(item, field) for field in item.__struct_fields__} | {"name": name})  # fmt: skip


@pytest.mark.parametrize(("far", "equivalent"), [(29e-6, True), (31e-6, False), (None, False)])
def test_thirty_roundings_are_the_same(far: float | None, equivalent: bool) -> None:
    found = compared(trace(measured((0, "gradient", far), (0, "parameter", 1e-6))))
    assert (found.size != "different") == equivalent
    assert found.worst is not None and found.worst.kind == "gradient"
    if not equivalent:
        assert found.first is not None and (found.first.step, found.first.kind) == (0, "gradient")


def test_the_first_gradient_comes_before_a_parameter_that_is_farther() -> None:
    found = compared(trace(measured((1, "parameter", 1.0), (0, "parameter", 1.0), (0, "gradient", 1e-3))))  # fmt: skip
    assert found.first is not None and found.first.kind == "gradient"
    assert found.worst is not None and found.worst.roundings == pytest.approx(1e6)


def test_what_a_run_ends_with_is_no_step_that_it_took() -> None:
    late = measured((STEPS, "parameter", 1.0))
    assert (
        compared(trace(late), [*ROUNDED, *measured((STEPS, "parameter", 1e-6))]).size != "different"
    )


def test_another_number_of_steps_is_a_difference() -> None:
    found = compared(trace((), training(STEPS - 1)))
    assert found.size == "different" and "2 steps, the reference 3" in found.detail
    assert "window" in found.likely


def test_initial_parameters_are_compared_bit_for_bit() -> None:
    other = changed(REFERENCE, place_of(REFERENCE, -1, "parameter"), flip(0))
    found = compared(other)
    assert found.first is not None and found.first.step == -1 and "other numbers" in found.likely


def test_initial_parameters_may_be_rounded_otherwise_where_all_that_follows_is_near() -> None:
    """As those that another torch draws."""
    start = changed(REFERENCE, place_of(REFERENCE, -1, "parameter"), flip(0))
    near = measured((0, "gradient", 1e-6), (0, "parameter", 2e-6))
    assert compared(trace(near, start)).size == "rounding"
    far = measured((0, "gradient", 1e-6), (0, "parameter", 40e-6))
    found = compared(trace(far, start))
    assert found.size == "different" and found.first is not None and found.first.step == -1


def in_parts(values: Sequence[float], step: int = 1) -> Trace:
    """The reference with these losses of one step, in microbatches."""
    place = place_of(REFERENCE, step, "loss")
    own = [block(step, "loss", at=at, values=(value,)) for at, value in enumerate(values)]
    blocks: list[Block] = [*REFERENCE.blocks[:place], *own, *REFERENCE.blocks[place + 1 :]]
    return replace(REFERENCE, blocks=blocks)


def test_losses_of_microbatches_count_by_mean_or_sum() -> None:
    loss = float.fromhex(REFERENCE.blocks[place_of(REFERENCE, 1, "loss")].values[0])
    assert compared(in_parts([loss * 0.5, loss * 1.5])).size != "different"
    assert compared(in_parts([loss * 0.25, loss * 0.75])).size != "different"
    found = compared(in_parts([loss * 0.5, loss * 0.6]))
    assert found.first is not None and (found.first.step, found.first.kind) == (1, "loss")


def test_a_loss_that_is_not_finite_is_a_difference() -> None:
    assert compared(with_loss(REFERENCE, 1, math.nan)).size == "different"
    assert compared(with_loss(REFERENCE, 2, math.inf)).size == "different"


@pytest.mark.parametrize("losses", [(math.inf, -math.inf), (1e308, 1e308)])
def test_losses_without_a_sum_are_a_difference(losses: Sequence[float]) -> None:
    found = compared(in_parts(losses))
    assert found.first is not None and (found.first.step, found.first.kind) == (1, "loss")


def test_figures_beyond_any_float_are_a_difference() -> None:
    for norm, shape in ((1.0, (4, 4)), (1e-300, (4, 4)), (1.0, (1 << 53,) * 64)):
        far = measured((0, "gradient", 1e200), (0, "parameter", 1e200), norm=norm, shape=shape)
        assert compared(trace(far)).size == "different"
        assert rounding_of([trace(far)]).distances[0, "parameter", "fc.weight"] >= 1e200


@pytest.mark.parametrize(
    ("share", "micro", "likely"),
    [
        (3.0, 4, "4 times the reference's: it is summed over the 4 microbatches"),
        (0.75, 4, "1/4 of the reference's: it is divided by the 4 microbatches twice"),
        (0.5, 1, "1/2 of the reference's"),
        (0.3, 4, ""),
    ],
)
def test_one_factor_of_all_gradients_is_named(share: float, micro: int, likely: str) -> None:
    own = [block(0, "loss", at=at, values=(0.5,)) for at in range(micro)]
    place = place_of(REFERENCE, 0, "loss")
    blocks = [*REFERENCE.blocks[:place], *own, *REFERENCE.blocks[place + 1 :]]
    found = compared(trace(measured((0, "gradient", share)), replace(REFERENCE, blocks=blocks)))
    assert (
        found.size == "different" and likely in found.likely and bool(found.likely) == bool(likely)
    )


def test_ranks_with_the_same_batches_are_named() -> None:
    far = measured((0, "gradient", 0.3))
    ranks = [trace(far, training(STEPS, key=f"rank{number}")) for number in (0, 1)]
    found = change_of([REFERENCE], ranks, [trace(ROUNDED)])
    assert "every rank" in found.likely


def test_bit_for_bit_the_first_difference_is_named() -> None:
    assert change_of([REFERENCE], [REFERENCE]).size == "none"
    other = changed(REFERENCE, place_of(REFERENCE, 1, "parameter"), flip(0))
    found = change_of([REFERENCE], [other])
    assert found.first is not None and (found.first.step, found.first.kind) == (1, "parameter")
    assert found.first.roundings is None and found.worst is None


def test_names_are_matched_through_wrappers_and_shapes_are_not() -> None:
    def named(name: str, shape: tuple[int, ...] = (2, 2)) -> list[Trace]:
        return [replace(REFERENCE, tables=[("parameter", ((name, "float32", shape),))])]

    for wrapped in ("module.fc.weight", "_orig_mod.module.fc.weight"):
        assert unmatched(named("fc.weight"), named(wrapped)) == []
        assert unmatched(named(wrapped), named("fc.weight")) == []
    assert unmatched(named("fc.weight"), named("fc.weight", (4,))) == ["fc.weight"]


@pytest.mark.parametrize(
    ("step", "far", "equivalent"), [(31, 31e-6, False), (32, 299e-6, True), (32, 301e-6, False)]
)
def test_a_late_difference_without_a_jump_is_drift(step: int, far: float, equivalent: bool) -> None:
    long = training(step + 2)
    rounded = measured((0, "gradient", 1e-6), (0, "parameter", 1e-6), (step, "parameter", 1e-6))
    other = trace(measured((0, "parameter", 1e-6), (step, "parameter", far)), long)
    found = change_of([long], [other], [trace(rounded, long)])
    assert (found.size != "different") == equivalent
    # where nothing was rounded otherwise before, it is no chance
    sudden = trace(measured((0, "parameter", 0.0), (step, "parameter", far)), long)
    assert change_of([long], [sudden], [trace(rounded, long)]).size == "different"
    assert found.steps == (step if equivalent else step + 2)
