"""The noise floor is what two runs without the flags are apart, where that was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from repro_gate.compare.model import NoiseFloor
from repro_gate.compare.tolerance import beside_noise, noise_floor
from repro_gate.compare.traces import compare_runs
from repro_gate.trace.model import Trace
from tests.support.built_traces import apart, changed, flip, place_of, training, with_loss


def figures(floor: NoiseFloor) -> tuple[float | None, float | None, float | None, int | None]:
    return floor.loss_gap, floor.weight_l2, floor.weight_relative_l2, floor.first_step


A = training()
OTHER = with_loss(training(), 1, 0.75)
SMALLER = apart(with_loss(OTHER, 2, 1 / 3 + 2**-12), 3.0, 1.0, norm=6.0)
NO_NUMBER = apart(apart(OTHER, 1.0, 1.0), None, None, name="fc.bias", norm=None)
STATE = apart(OTHER, 3.0, 1.0, name="fc.weight.exp_avg", kind="optimizer")


def test_equal_runs_have_a_floor_of_zero_and_no_gap_without_losses() -> None:
    floor = noise_floor([A], [A])
    assert floor.identical and figures(floor) == (0.0, 0.0, 0.0, None)
    assert [step for step, _, _ in floor.losses] == [0, 1, 2]
    both = [with_loss(training(), 2, math.nan)]
    assert noise_floor(both, both).loss_gap == 0.0, "equal NaN"
    bare = replace(A, blocks=[item for item in A.blocks if item.kind != "loss"])
    for other in (bare, changed(bare, place_of(bare, 1, "batch"), flip(0))):
        assert noise_floor([bare], [other]).loss_gap is None


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        # the largest gap of losses, and the norm of all weights as one vector
        (apart(SMALLER, 4.0, 1.0, name="fc.bias", norm=8.0), (0.25, 5.0, 0.5, 1)),
        # weights that were not kept
        (changed(A, place_of(A, 1, "gradient"), flip(0)), (0.0, None, None, 1)),
        # state of the optimizer is no weight
        (STATE, (0.25, None, None, 1)),
        # NaN in one of them
        (NO_NUMBER, (0.25, None, None, 1)),
        (apart(OTHER, 1.0, 1.0, norm=0.0), (0.25, 1.0, None, 1)),
        # a square that is no float
        (apart(OTHER, 1e200, 1e200, norm=2e200), (0.25, 1e200, 0.5, 1)),
        # a loss that is NaN in one run leaves the gaps of the others
        (with_loss(OTHER, 2, math.nan), (0.25, None, None, 1)),
    ],
)
def test_runs_that_part_have_known_figures(b: Trace, expected: tuple[float | None, ...]) -> None:
    assert figures(noise_floor([A], [b])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gap", "relation", "times"),
    [
        (2**-8, "within-noise", 0.25),
        (2**-10, "within-noise", 1.0),
        (2**-12, "beyond-noise", 4.0),
        (0.0, "beyond-noise", None),
        (None, "", None),
    ],
)
def test_a_difference_is_told_beside_noise(
    gap: float | None, relation: str, times: float | None
) -> None:
    floor = replace(noise_floor([A], [OTHER]), loss_gap=gap)
    other = compare_runs([A], [with_loss(training(), 1, 0.5 + 2**-10)])
    assert beside_noise(other, floor) == (relation, times)
    assert beside_noise(compare_runs([A], [A]), floor) == ("identical", None)
    assert beside_noise(other, None) == ("", None)
