"""The noise floor: how far two `default` runs with one seed drift apart. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from repro_gate.compare.distances import finite
from repro_gate.compare.model import Comparison, Divergence, NoiseFloor
from repro_gate.compare.traces import compare_runs, measured_alike, processes
from repro_gate.trace.model import Trace


def noise_floor(a: Sequence[Trace], b: Sequence[Trace]) -> NoiseFloor:
    """The drift between two runs. `weight_l2` is None where final parameters were not kept or hold
    NaN, `loss_gap` without a loss."""
    comparison = compare_runs(a, b)
    losses = comparison.losses
    gaps = [gap for _, gap in comparison.loss_gaps if math.isfinite(gap)]
    l2, relative = _weight_l2(measured_alike(processes(a), processes(b)))
    first = comparison.first_divergence
    if comparison.identical:
        gaps, l2, relative = [0.0] if losses else [], 0.0, 0.0
    return NoiseFloor(
        identical=comparison.identical,
        loss_gap=max(gaps, default=None),
        weight_l2=l2,
        weight_relative_l2=relative,
        first_step=first.step if first else None,
        first_divergence=first,
        losses=losses,
        heat_map=comparison.heat_map,
    )


def beside_noise(comparison: Comparison, floor: NoiseFloor | None) -> tuple[str, float | None]:
    """What a difference is beside a noise floor: `identical`, `within-noise` or `beyond-noise`, and
    how many times the floor's loss gap its own is (None where that is no number). The first is
    empty where there is no floor, or no loss to compare."""
    if comparison.identical:
        return "identical", None
    gap = max((gap for _, gap in comparison.loss_gaps), default=None)
    if floor is None or floor.loss_gap is None or gap is None:
        return "", None
    times = gap / floor.loss_gap if floor.loss_gap else None
    return "within-noise" if gap <= floor.loss_gap else "beyond-noise", finite(
        times
    ) if times is not None else None


def recorded(run: Sequence[Trace], item: Divergence) -> list[bytes]:
    """The digests that a run recorded of the quantity that diverged, in the step in which it
    did."""
    trace = processes(run).get(item.process)
    return [
        block.digest(place)
        for block in (trace.blocks if trace is not None else ())
        if (block.step, block.kind) == (item.step, item.kind)
        for place, row in enumerate(block.rows)
        if row[0] == item.name
    ]


def _weight_l2(second: Mapping[str, Trace]) -> tuple[float | None, float | None]:
    """||a - b|| and ||a - b|| / ||a|| over all final parameters of all processes, taken as one
    vector."""
    pairs = [
        (item.l2, item.reference_l2)
        for trace in second.values()
        for item in trace.distances
        if item.kind == "parameter" and item.step == len(trace.steps) - 1
    ]
    gaps = [gap for gap, norm in pairs if gap is not None and norm is not None]
    if not gaps or len(gaps) < len(pairs):
        return None, None
    # hypot: a square may be no float
    l2, norm = (
        math.hypot(*gaps),
        math.hypot(*(norm for _, norm in pairs if norm is not None)),
    )
    return finite(l2), finite(l2 / norm) if norm else None
