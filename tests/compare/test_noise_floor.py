"""The noise floor is what two runs without the flags are apart: zero, a figure, or nothing where
none was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from repro_gate.compare.model import NoiseFloor
from repro_gate.compare.noise_floor import beside_noise, noise_floor
from repro_gate.compare.traces import compare_runs
from tests.support.built_traces import apart, changed, flip, place_of, training, with_loss


def test_equal_runs_have_a_floor_of_zero() -> None:
    floor = noise_floor([training()], [training()])
    assert (
        floor.identical,
        floor.loss_gap,
        floor.weight_l2,
        floor.weight_relative_l2,
        floor.first_step,
    ) == (True, 0.0, 0.0, 0.0, None)
    assert [step for step, _, _ in floor.losses] == [0, 1, 2]


def test_runs_that_part_have_the_largest_loss_gap_and_the_norm_of_all_weights() -> None:
    b = with_loss(with_loss(training(), 1, 0.5 + 2**-10), 2, 1 / 3 + 2**-12)
    floor = noise_floor(
        [training()], [apart(apart(b, 3.0, 1.0, norm=6.0), 4.0, 1.0, name="fc.bias", norm=8.0)]
    )
    assert not floor.identical
    assert floor.loss_gap == 2**-10
    assert (floor.weight_l2, floor.weight_relative_l2) == (5.0, 0.5)
    assert floor.first_step == 1
    assert floor.first_divergence is not None
    assert floor.first_divergence.kind == "loss"


def test_weights_that_were_not_kept_have_no_figure() -> None:
    b = changed(training(), place_of(training(), 1, "gradient"), flip(0))
    floor = noise_floor([training()], [b])
    assert (floor.loss_gap, floor.weight_l2, floor.weight_relative_l2, floor.first_step) == (
        0.0,
        None,
        None,
        1,
    )


def test_optimizer_state_and_earlier_steps_are_no_weights() -> None:
    b = apart(with_loss(training(), 1, 0.75), 3.0, 1.0, name="fc.weight.exp_avg", kind="optimizer")
    assert noise_floor([training()], [b]).weight_l2 is None


def test_weights_with_nan_have_no_figure() -> None:
    b = apart(
        apart(with_loss(training(), 1, 0.75), 1.0, 1.0), None, None, name="fc.bias", norm=None
    )
    assert noise_floor([training()], [b]).weight_l2 is None


def test_weights_from_zero_have_no_relative_figure() -> None:
    floor = noise_floor([training()], [apart(with_loss(training(), 1, 0.75), 1.0, 1.0, norm=0.0)])
    assert (floor.weight_l2, floor.weight_relative_l2) == (1.0, None)


def test_a_weight_whose_square_is_no_float_has_a_figure() -> None:
    floor = noise_floor(
        [training()], [apart(with_loss(training(), 1, 0.75), 1e200, 1e200, norm=2e200)]
    )
    assert floor.weight_l2 == pytest.approx(1e200)
    assert floor.weight_relative_l2 == pytest.approx(0.5)


def test_a_loss_that_is_nan_in_one_run_leaves_the_gaps_of_the_others() -> None:
    assert (
        noise_floor([training()], [with_loss(with_loss(training(), 1, 0.75), 2, math.nan)]).loss_gap
        == 0.25
    )
    both = [with_loss(training(), 2, math.nan)]
    assert noise_floor(both, both).loss_gap == 0.0


def test_without_losses_there_is_no_gap() -> None:
    a = replace(training(), blocks=[item for item in training().blocks if item.kind != "loss"])
    assert noise_floor([a], [a]).loss_gap is None
    assert noise_floor([a], [changed(a, place_of(a, 1, "batch"), flip(0))]).loss_gap is None


@pytest.mark.parametrize(
    ("floor", "relation", "times"),
    [
        (
            NoiseFloor(
                identical=False,
                loss_gap=2**-8,
                weight_l2=None,
                weight_relative_l2=None,
                first_step=0,
            ),
            "within-noise",
            0.25,
        ),
        (
            NoiseFloor(
                identical=False,
                loss_gap=2**-10,
                weight_l2=None,
                weight_relative_l2=None,
                first_step=0,
            ),
            "within-noise",
            1.0,
        ),
        (
            NoiseFloor(
                identical=False,
                loss_gap=2**-12,
                weight_l2=None,
                weight_relative_l2=None,
                first_step=0,
            ),
            "beyond-noise",
            4.0,
        ),
        (
            NoiseFloor(
                identical=True, loss_gap=0.0, weight_l2=0.0, weight_relative_l2=0.0, first_step=None
            ),
            "beyond-noise",
            None,
        ),
        (
            NoiseFloor(
                identical=False,
                loss_gap=None,
                weight_l2=None,
                weight_relative_l2=None,
                first_step=0,
            ),
            "",
            None,
        ),
        (None, "", None),
    ],
)
def test_a_difference_is_told_beside_the_noise_floor(
    floor: NoiseFloor | None, relation: str, times: float | None
) -> None:
    other = compare_runs([training()], [with_loss(training(), 1, 0.5 + 2**-10)])
    assert beside_noise(other, floor) == (relation, times)
    assert beside_noise(compare_runs([training()], [training()]), floor) == ("identical", None)
