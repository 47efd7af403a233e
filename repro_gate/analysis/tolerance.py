"""The looser bar, where a spec asks for one: losses and final weights within absolute tolerances. Pure."""
from __future__ import annotations

from repro_gate.analysis.model import Comparison
from repro_gate.spec.model import Tolerance


def outside_tolerance(comparison: Comparison, tolerance: Tolerance) -> tuple[str, ...]:
    """What lies outside the tolerance, as sentences; empty where everything compared is within it.

    Losses are held against `loss` at every step, final parameters' max_abs against `weights`. NaN on one side, a loss or a tensor that one
    run lacks, and an artifact that differs are outside any tolerance. State that was not measured cannot pass, and the sentence says so.
    """
    found = []
    gaps = [(abs(first - second), step) for step, first, second in comparison.losses if not (first == second or (first != first and second != second))]
    bad = [(gap, step) for gap, step in gaps if not gap <= tolerance.loss]
    if bad:
        gap, step = max(bad)
        found.append(f"the loss differs by {gap:.3g} at step {step}, {tolerance.loss:g} is allowed")
    parameters = [item for item in comparison.weights if item.kind == "parameter"]
    if comparison.by_kind.get("parameter") and comparison.by_kind["parameter"].differing and not parameters and not _only_early(comparison):
        found.append("parameters differ, and how far could not be measured")
    for item in parameters:
        if item.distance is None or item.distance.max_abs is None or not item.distance.max_abs <= tolerance.weights:
            far = "an amount that is no number" if item.distance is None or item.distance.max_abs is None else f"{item.distance.max_abs:.3g}"
            found.append(f"{item.name} differs by {far} at the end, {tolerance.weights:g} is allowed")
    first = comparison.first_divergence
    if first is not None and first.detail:
        found.append(f"{first.name} at step {first.step}: {first.detail}")
    artifact = comparison.by_kind.get("artifact")
    if artifact and artifact.differing:
        found.append(f"{artifact.differing} of {artifact.tensors} leaves of artifacts differ")
    return tuple(found)


def _only_early(comparison: Comparison) -> bool:
    """Whether the runs had come together again by the last step."""
    return bool(comparison.by_step) and comparison.by_step[-1][0] < comparison.steps - 1
