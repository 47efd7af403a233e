"""A looser bar passes what lies within it, and nothing that was not measured; the noise floor is what
two runs without the flags are apart, where that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from repro_gate.compare.model import Divergence, NoiseFloor
from repro_gate.compare.tolerance import noise_floor, outside_tolerance
from repro_gate.compare.traces import compare_runs
from repro_gate.spec.model import Tolerance
from repro_gate.trace.model import Trace
from tests.support.built_traces import apart, changed, flip, place_of, training, with_loss

BAR = Tolerance(loss=1e-3, weights=1e-2)
A = training()
PARTED = changed(A, place_of(A, 2, "parameter"), flip(0))


def outside(a: Trace | Sequence[Trace], b: Trace | Sequence[Trace]) -> tuple[str, ...]:
    """What lies outside the bar."""
    runs = ([item] if isinstance(item, Trace) else item for item in (a, b))
    return outside_tolerance(compare_runs(*runs), BAR)


def test_losses_are_judged_in_every_process_at_every_step() -> None:
    assert outside(A, with_loss(A, 1, 0.5 + 9e-4)) == ()
    assert outside(A, with_loss(with_loss(A, 1, 0.5 + 2e-3), 0, 1.0 + 2e-2)) == (
        "the loss differs by 0.02 at step 0, 0.001 is allowed",
    )
    for value, count in ((0.6, 1), (0.5 + 1e-4, 0)):
        assert len(outside(RANKS, [RANKS[0], with_loss(RANKS[1], 1, value)])) == count
    for value in (math.nan, math.inf):
        assert len(outside(A, with_loss(A, 1, value))) == 1
        assert outside(with_loss(A, 1, value), with_loss(A, 1, value)) == ()
    for a, b, said in (
        (A, with_loss(training(2), 0, 1.0 + 1e-4), "steps at step 2: "),
        (A, FEWER, "steps at step 2: "),
        (RANKS, RANKS[:1], "process rank1 at step -1: "),
    ):
        assert outside(a, b)[-1].startswith(said)
    artifact = Divergence(step=2, kind="artifact", name="out/m.pt: w")
    assert len(outside_tolerance(compare_runs([A], [A], [artifact], 4), BAR)) == 1
    assert outside_tolerance(compare_runs([A], [A], [], 4), BAR) == ()


def test_weights_are_judged_at_the_end_if_they_were_measured() -> None:
    assert outside(A, apart(PARTED, 1.0, 9e-3)) == ()
    said = "fc.weight differs by 0.02 at the end, 0.01 is allowed"
    assert outside(A, apart(PARTED, 1.0, 0.02)) == (said,)
    assert len(outside(A, apart(PARTED, None, None))) == 1
    # parameters that came together again
    assert outside(A, changed(A, place_of(A, 1, "parameter"), flip(0))) == ()
    state = changed(A, place_of(A, 2, "optimizer"), flip(0))
    assert outside(A, apart(state, 1.0, 5.0, name="fc.weight.exp_avg", kind="optimizer")) == ()
    for b in (PARTED, apart(PARTED, 1.0, 1e-3, name="fc.bias")):  # another one was
        assert len(outside(A, b)) == 1 and "could not be measured" in outside(A, b)[0]
    # `capture.every: 10`: digests of the parameters at step 10, the run ends at 11
    late = training(12)
    late.blocks = [item for item in late.blocks if item.kind == "loss" or item.step in (-1, 0, 10)]
    assert len(outside(late, changed(late, place_of(late, 10, "parameter"), flip(0)))) == 1


RANKS = [training(key="rank0"), training(key="rank1")]
FEWER = replace(A, steps=A.steps[:2])


def figures(floor: NoiseFloor) -> tuple[float | None, float | None, float | None, int | None]:
    return floor.loss_gap, floor.weight_l2, floor.weight_relative_l2, floor.first_step


OTHER = with_loss(training(), 1, 0.75)
SMALLER = apart(with_loss(OTHER, 2, 1 / 3 + 2**-12), 3.0, 1.0, norm=6.0)
NO_NUMBER = apart(apart(OTHER, 1.0, 1.0), None, None, name="fc.bias", norm=None)
STATE = apart(OTHER, 3.0, 1.0, name="fc.weight.exp_avg", kind="optimizer")


def test_runs_have_a_known_floor_and_a_difference_is_told_beside_it() -> None:
    for b, expected in (
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
    ):
        assert figures(noise_floor([A], [b])) == pytest.approx(expected)
    floor = noise_floor([A], [A])
    assert floor.identical and figures(floor) == (0.0, 0.0, 0.0, None)
    assert [step for step, _, _ in floor.losses] == [0, 1, 2]
    both = [with_loss(training(), 2, math.nan)]
    assert noise_floor(both, both).loss_gap == 0.0, "equal NaN"
    bare = replace(A, blocks=[item for item in A.blocks if item.kind != "loss"])
    for other in (bare, changed(bare, place_of(bare, 1, "batch"), flip(0))):
        assert noise_floor([bare], [other]).loss_gap is None
