"""Computes how far apart two runs are: from the distances that the second run's probe measured, and
from their losses. Pure."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from repro_gate.compare.model import Distance, Divergence, GrowthPoint, Value
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured
from repro_gate.trace.model import Trace

Key = tuple[int, str, int]
Traces = Sequence[Trace]  # of a run
Processes = Mapping[str, Trace]  # of a run, by label
Figures = Mapping[tuple[str, int, str, str], Measured]  # process, step, kind, name
# bits
MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
_PACKING = {"float32": "f", "float64": "d", "float": "d", "float16": "e"}  # of `struct`


def with_distance(divergence: Divergence, measured: Figures) -> Divergence:
    """Return the divergence with the distance of its two values if it has them, else with the
    measured distance, if there is one. An artifact's distance is known from reading it."""
    if divergence.measured or divergence.kind == "artifact":
        return divergence
    figures = measured.get(
        (divergence.process, divergence.step, divergence.kind, divergence.name)
    )
    if divergence.values is not None:
        distance = distance_of_values(*divergence.values, divergence.dtype)
    else:
        distance = distance_of(figures) if figures and differs(figures) else None
    return divergence if distance is None else replace(divergence, **vars(distance))


def differs(figures: Measured) -> bool:
    """Return whether a measured tensor differs from its counterpart (a NaN on one side counts)."""
    return bool(figures.max_ulp) or figures.l2 is None or figures.l2 > 0


def distance_of(figures: Measured) -> Distance:
    """Return the report's figures for one measured tensor: relative_l2 is l2 over the first run's
    norm, None if that is zero."""
    relative = None
    if figures.l2 is not None and figures.reference_l2:
        relative = finite(figures.l2 / figures.reference_l2)
    return Distance(figures.max_abs, figures.max_ulp, figures.l2, relative)


def finite(value: float | None) -> float | None:
    """Return the value; None if it is too large for a float."""
    return value if value is not None and math.isfinite(value) else None


def key_of(block: Block) -> Key:
    """Return the key by which blocks of two traces are paired."""
    return block.step, block.kind, block.at


def losses_of(trace: Trace) -> dict[int, float]:
    """Return step -> the loss of its last backward pass."""
    return {
        block.step: float.fromhex(block.values[0])
        for block in trace.blocks
        if block.kind == "loss" and block.values
    }


def loss_gaps(first: Processes, second: Processes) -> tuple[tuple[int, float], ...]:
    """Return step and the largest gap of its losses, over all processes and backward passes."""
    gaps = defaultdict[int, float](float)
    for label in first.keys() & second.keys():
        theirs = {key_of(block): block for block in second[label].blocks}
        for block in first[label].blocks:
            twin = theirs.get(key_of(block))
            if block.kind == "loss" and twin:
                for values in zip(block.values, twin.values, strict=False):
                    found = gap(*map(float.fromhex, values))
                    gaps[block.step] = max(gaps[block.step], found)
    return tuple(sorted(gaps.items()))


def gap(a: float, b: float) -> float:
    """Return |a - b|: zero for two NaNs or equal infinities, infinite if only one is NaN."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if not math.isnan(a - b) else math.inf


def measurements(second: Processes) -> Iterator[tuple[str, Measured, bool]]:
    """Yield the measurements of the second run's probe: the process, the distance of one tensor,
    and whether it was measured at the end of the run."""
    for label, trace in second.items():
        for item in trace.distances:
            yield label, item, item.step == len(trace.steps) - 1


def measured_differences(second: Processes) -> Iterator[tuple[Divergence, bool]]:
    """Yield each measured tensor that differs, and whether it was measured at the end of the
    run."""
    for label, item, at_end in measurements(second):
        if differs(item):
            yield (
                Divergence(
                    step=item.step,
                    kind=item.kind,
                    name=item.name,
                    process=label,
                    dtype=item.dtype,
                    shape=item.shape,
                    **vars(distance_of(item)),
                ),
                at_end,
            )


def weights(second: Processes) -> tuple[Divergence, ...]:
    """Return the tensors that differ at the end: parameters before optimizer state, the farthest
    first (by relative L2, NaN first of all)."""
    found = [
        item
        for item, at_end in measured_differences(second)
        if at_end and item.kind in ("parameter", "optimizer")
    ]
    found.sort(
        key=lambda item: (
            item.kind != "parameter",
            -math.inf if item.relative_l2 is None else -item.relative_l2,
        )
    )
    return tuple(found)


def growth(second: Processes) -> tuple[GrowthPoint, ...]:
    """Return for each measured step ||a - b|| of all parameters as one vector, and the largest ULP
    of any tensor."""
    by_step = defaultdict(list)
    for _, item, _ in measurements(second):
        by_step[item.step].append(item)
    found = []
    for step, items in sorted(by_step.items()):
        whole = norm(item.l2 for item in items if item.kind == "parameter")
        ulps = [item.max_ulp for item in items if item.max_ulp is not None]
        found.append(
            GrowthPoint(step=step, weight_l2=whole, max_ulp=max(ulps, default=None))
        )
    return tuple(found)


def norm(parts: Iterable[float | None]) -> float | None:
    """Return the norm of a vector from the norms of its parts. None if there are no parts, if one
    is unknown, or if the norm is too large for a float. `hypot` avoids squares that are too
    large."""
    every = [*parts]
    known = [part for part in every if part is not None]
    return finite(math.hypot(*known)) if len(every) == len(known) > 0 else None


def distance_of_values(a: Value, b: Value, dtype: str | None) -> Distance | None:
    """Return |a - b| and the ULP of two finite numbers of one dtype; None for texts, truth values,
    NaN and infinities."""
    if isinstance(a, str | bool) or isinstance(b, str | bool):
        return None
    try:
        first = float(a)
        second = float(b)
        far = float(abs(a - b))
    except OverflowError:  # an integer too large for a float
        return None
    if not (math.isfinite(first) and math.isfinite(second)):
        return None
    ulp = None
    # The dtype is no float, or the trace states a value that it cannot represent.
    with suppress(KeyError, OverflowError):
        packing = _PACKING[dtype or ""]
        ulp = abs(_place(first, packing) - _place(second, packing))
    relative = finite(far / abs(first)) if first else None
    return Distance(finite(far), ulp, finite(far), relative)


def _place(value: float, packing: str) -> int:
    """Return the index of the value among the representable values of its type: neighbours differ
    by 1. Raises OverflowError outside of the type's range."""
    content = struct.pack("<" + packing, value)
    bits = int.from_bytes(content, "little", signed=True)
    top = 1 << (8 * len(content) - 1)
    return bits if bits >= 0 else -(bits + top)
