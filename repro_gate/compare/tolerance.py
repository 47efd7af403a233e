"""How far two runs may be apart: the noise floor, which two `default` runs with one seed show, and
the tolerance, the looser bar where a spec asks for one. Pure.
"""

from __future__ import annotations

import math

from repro_gate.compare.distances import Traces, finite, measurements, norm
from repro_gate.compare.model import Comparison, NoiseFloor
from repro_gate.compare.traces import compare_runs, processes, with_valid_distances
from repro_gate.escape import counted
from repro_gate.spec.model import Tolerance


def is_same(comparison: Comparison, tolerance: Tolerance | None) -> bool:
    """Return whether two runs are the same, as the spec asks for it: bitwise identical, or within
    its tolerance if it has one."""
    return comparison.identical or (
        tolerance is not None and not outside_tolerance(comparison, tolerance)
    )


def outside_tolerance(comparison: Comparison, tolerance: Tolerance) -> tuple[str, ...]:
    """Return what lies outside the tolerance, as sentences; empty if all is within it.

    Losses of every process are compared with `loss` at every step, final parameters' max_abs with
    `weights`. NaN on one side, a loss or a tensor that one run lacks, and an artifact that differs
    are outside any tolerance. State that was not measured cannot pass, and the sentence says so.
    """
    found = []
    bad = [(gap, step) for step, gap in comparison.loss_gaps if gap > tolerance.loss]
    if bad:
        gap, step = max(bad)
        found.append(
            f"the loss differs by {_amount(gap)} at step {step}, {tolerance.loss:g} is allowed"
        )
    if comparison.unmeasured:
        found.append(
            f"{counted(comparison.unmeasured, 'parameter', 'differ')} at the end, how far could "
            "not be measured"
        )
    for item in comparison.weights:
        far = item.max_abs
        if item.kind == "parameter" and (far is None or not far <= tolerance.weights):
            found.append(
                f"{item.name} differs by {_amount(far)} at the end, {tolerance.weights:g} is "
                "allowed"
            )
    missing = comparison.unmatched
    if missing is not None:
        found.append(f"{missing.name} at step {missing.step}: {missing.detail}")
    artifact = comparison.by_kind.get("artifact")
    if artifact and artifact.differing:
        found.append(
            f"{artifact.differing} of {counted(artifact.tensors, 'value')} of artifacts differ"
        )
    return tuple(found)


def _amount(gap: float | None) -> str:
    is_number = gap is not None and gap < math.inf
    return f"{gap:.3g}" if is_number else "an amount that is not a number"


def noise_floor(a: Traces, b: Traces) -> NoiseFloor:
    """Return the drift between two runs. `weight_l2` is None if final parameters were not kept
    or hold NaN, `loss_gap` without a loss."""
    comparison = compare_runs(a, b)
    gaps = [gap for _, gap in comparison.loss_gaps if math.isfinite(gap)]
    # all final parameters of all processes, taken as one vector
    weights = [
        item
        for _, item, at_end in measurements(
            with_valid_distances(processes(a), processes(b))
        )
        if at_end and item.kind == "parameter"
    ]
    l2 = norm(item.l2 for item in weights)
    reference = norm(item.reference_l2 for item in weights)
    relative = finite(l2 / reference) if l2 is not None and reference else None
    first = comparison.first_divergence
    if comparison.identical:
        gaps = [0.0] if comparison.losses else []
        l2 = relative = 0.0
    return NoiseFloor(
        identical=comparison.identical,
        loss_gap=max(gaps, default=None),
        weight_l2=l2,
        weight_relative_l2=relative,
        first_step=first.step if first else None,
        first_divergence=first,
        losses=comparison.losses,
        heat_map=comparison.heat_map,
    )
