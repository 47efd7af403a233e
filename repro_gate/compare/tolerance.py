"""The looser bar, where a spec asks for one: losses and final weights within absolute tolerances.
Pure."""

from __future__ import annotations

import math

from repro_gate.compare.model import Comparison
from repro_gate.spec.model import Tolerance


def alike(comparison: Comparison, tolerance: Tolerance | None) -> bool:
    """Return whether two runs are the same, as the spec asks for it: bitwise identical, or within
    its tolerance if it has one."""
    return comparison.identical or (
        tolerance is not None and not outside_tolerance(comparison, tolerance)
    )


def outside_tolerance(comparison: Comparison, tolerance: Tolerance) -> tuple[str, ...]:
    """What lies outside the tolerance, as sentences; empty where everything compared is within it.

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
            f"{comparison.unmeasured} parameters differ at the end, how far could not be measured"
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
        found.append(f"{artifact.differing} of {artifact.tensors} leaves of artifacts differ")
    return tuple(found)


def _amount(gap: float | None) -> str:
    return f"{gap:.3g}" if gap is not None and gap < math.inf else "an amount that is not a number"
