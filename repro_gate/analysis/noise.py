"""The noise floor: how far two `default` runs with one seed drift apart. Pure."""
from __future__ import annotations

import math
from collections.abc import Sequence

from repro_gate.analysis.compare import compare_runs, processes
from repro_gate.analysis.model import NoiseFloor
from repro_gate.trace.reader import Trace


def noise_floor(a: Sequence[Trace], b: Sequence[Trace]) -> NoiseFloor:
    """The drift between two runs. `weight_l2` is None where final parameters were not kept or hold NaN, `loss_gap` where no loss was seen."""
    comparison = compare_runs(a, b)
    gaps = [abs(first - second) for _, first, second in comparison.losses]
    finite = [gap for gap in gaps if math.isfinite(gap)]
    l2, relative = _weight_l2(b)
    first = comparison.first_divergence
    if comparison.identical:
        return NoiseFloor(True, 0.0 if gaps else None, 0.0, 0.0, None, None)
    return NoiseFloor(False, max(finite) if finite else None, l2, relative, first.step if first else None, first)


def _weight_l2(b: Sequence[Trace]) -> tuple[float | None, float | None]:
    """||a - b|| and ||a - b|| / ||a|| over all final parameters of all processes, taken as one vector."""
    squares, norms, counted = 0.0, 0.0, 0
    for trace in processes(b).values():
        for item in trace.distances:
            if item.kind == "parameter" and item.step == len(trace.steps) - 1:
                if item.l2 is None or item.reference_l2 is None:
                    return None, None
                squares, norms, counted = squares + item.l2 ** 2, norms + item.reference_l2 ** 2, counted + 1
    if not counted:
        return None, None
    return math.sqrt(squares), math.sqrt(squares / norms) if norms else None
