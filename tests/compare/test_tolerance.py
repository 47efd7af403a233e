"""A looser bar passes what lies within it, and nothing that was not measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from repro_gate.compare.model import Divergence
from repro_gate.compare.tolerance import outside_tolerance
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


def test_the_losses_of_every_process_are_judged_at_every_step() -> None:
    assert outside(A, with_loss(A, 1, 0.5 + 9e-4)) == ()
    assert outside(A, with_loss(with_loss(A, 1, 0.5 + 2e-3), 0, 1.0 + 2e-2)) == (
        "the loss differs by 0.02 at step 0, 0.001 is allowed",
    )
    a = [training(key="rank0"), training(key="rank1")]
    assert len(outside(a, [a[0], with_loss(a[1], 1, 0.6)])) == 1
    assert outside(a, [a[0], with_loss(a[1], 1, 0.5 + 1e-4)]) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_on_one_side_is_outside(value: float) -> None:
    assert len(outside(A, with_loss(A, 1, value))) == 1
    assert outside(with_loss(A, 1, value), with_loss(A, 1, value)) == ()


def test_weights_are_judged_at_the_end_and_optimizer_state_is_not() -> None:
    assert outside(A, apart(PARTED, 1.0, 9e-3)) == ()
    said = "fc.weight differs by 0.02 at the end, 0.01 is allowed"
    assert outside(A, apart(PARTED, 1.0, 0.02)) == (said,)
    assert len(outside(A, apart(PARTED, None, None))) == 1
    # parameters that came together again
    assert outside(A, changed(A, place_of(A, 1, "parameter"), flip(0))) == ()
    state = changed(A, place_of(A, 2, "optimizer"), flip(0))
    assert outside(A, apart(state, 1.0, 5.0, name="fc.weight.exp_avg", kind="optimizer")) == ()


def test_what_was_not_measured_cannot_pass() -> None:
    for b in (PARTED, apart(PARTED, 1.0, 1e-3, name="fc.bias")):  # another one was
        assert len(outside(A, b)) == 1 and "could not be measured" in outside(A, b)[0]
    # `capture.every: 10`: digests of the parameters at step 10, the run ends at 11
    late = training(12)
    late.blocks = [item for item in late.blocks if item.kind == "loss" or item.step in (-1, 0, 10)]
    assert len(outside(late, changed(late, place_of(late, 10, "parameter"), flip(0)))) == 1


def test_what_one_run_lacks_is_outside_also_where_another_difference_came_first() -> None:
    shorter = with_loss(training(2), 0, 1.0 + 1e-4)
    fewer = training()
    fewer.steps.pop()
    for b in (shorter, fewer):
        assert outside(A, b)[-1].startswith("steps at step 2: ")
    ranks = [training(key="rank0"), training(key="rank1")]
    assert outside(ranks, ranks[:1])[0].startswith("process rank1 at step -1: ")


def test_an_artifact_that_differs_is_outside() -> None:
    artifact = Divergence(step=2, kind="artifact", name="out/m.pt: w")
    assert len(outside_tolerance(compare_runs([A], [A], [artifact], 4), BAR)) == 1
    assert outside_tolerance(compare_runs([A], [A], [], 4), BAR) == ()
