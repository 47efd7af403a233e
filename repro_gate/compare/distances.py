"""How far two runs are apart where they differ: the figures that the second run's probe measured,
and the gaps of their losses. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from repro_gate.compare.model import Distance, Divergence, Value
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured
from repro_gate.trace.model import Trace

Key = tuple[int, str, int]


def with_distance(
    divergence: Divergence, measured: Mapping[tuple[str, int, Any, str], Measured]
) -> Divergence:
    """Return the divergence with the distance of its two values, if it has them, else with the
    figures measured for it, if any were. An artifact's is known from reading it."""
    if divergence.measured or divergence.kind == "artifact":
        return divergence
    figures = measured.get((divergence.process, divergence.step, divergence.kind, divergence.name))
    if divergence.values is not None:
        distance = distance_of_values(*divergence.values, divergence.dtype)
    else:
        distance = distance_of(figures) if figures and differs(figures) else None
    return divergence if distance is None else replace(divergence, **vars(distance))


def differs(figures: Measured) -> bool:
    """Whether a measured tensor differs from its counterpart (a NaN on one side counts)."""
    return bool(figures.max_ulp) or figures.l2 is None or figures.l2 > 0


def distance_of(figures: Measured) -> Distance:
    """The report's figures for one measured tensor: relative_l2 is l2 over the first run's norm,
    None where that is zero."""
    relative = (
        figures.l2 / figures.reference_l2
        if figures.l2 is not None and figures.reference_l2
        else None
    )
    return Distance(figures.max_abs, figures.max_ulp, figures.l2, finite(relative))


def finite(value: float | None) -> float | None:
    """The value, None where it is too large for a float."""
    return value if value is not None and math.isfinite(value) else None


def key_of(block: Block) -> Key:
    """What pairs a block with its counterpart in another trace."""
    return block.step, block.kind, block.at


def losses_of(trace: Trace) -> dict[int, float]:
    """Step -> the loss of its last backward pass."""
    return {
        block.step: float.fromhex(block.values[0])
        for block in trace.blocks
        if block.kind == "loss" and block.values
    }


def loss_gaps(
    first: Mapping[str, Trace], second: Mapping[str, Trace]
) -> tuple[tuple[int, float], ...]:
    gaps: dict[int, float] = {}
    for label in first.keys() & second.keys():
        counterparts = {
            key_of(block): block.values for block in second[label].blocks if block.kind == "loss"
        }
        for block in first[label].blocks:
            for one, other in zip(block.values, counterparts.get(key_of(block), ()), strict=False):
                gaps[block.step] = max(
                    gaps.get(block.step, 0.0), gap(float.fromhex(one), float.fromhex(other))
                )
    return tuple(sorted(gaps.items()))


def gap(a: float, b: float) -> float:
    """|a - b|: zero for two NaNs or two equal infinities, infinite where one alone is NaN."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if not math.isnan(a - b) else math.inf


def weights(second: Mapping[str, Trace]) -> tuple[Divergence, ...]:
    """What was measured at the end and differs: parameters before optimizer state, farthest first
    (by relative L2, NaN before all)."""
    found = [
        Divergence(
            step=item.step,
            kind=item.kind,
            name=item.name,
            process=label,
            dtype=item.dtype,
            shape=item.shape,
            **vars(distance_of(item)),
        )
        for label, trace in second.items()
        for item in trace.distances
        if item.step == len(trace.steps) - 1
        and item.kind in ("parameter", "optimizer")
        and differs(item)
    ]

    def rank(item: Divergence) -> tuple[bool, float]:
        return item.kind != "parameter", -(
            math.inf if item.relative_l2 is None else item.relative_l2
        )

    return tuple(sorted(found, key=rank))


def distance_of_values(a: Value, b: Value, dtype: str | None) -> Distance | None:
    """Return |a - b| and the ULP of two finite numbers of one dtype; None for texts, truth values,
    NaN and infinities."""
    if not (_is_number(a) and _is_number(b)):
        return None
    packing = {"float32": "f", "float64": "d", "float": "d", "float16": "e"}.get(dtype or "")
    try:
        first, second, gap = float(a), float(b), float(abs(a - b))
    except OverflowError:  # an integer beyond any float
        return None
    if not (math.isfinite(first) and math.isfinite(second)):
        return None
    try:
        ulp = None if packing is None else abs(_place(first, packing) - _place(second, packing))
    except OverflowError:  # a trace that states a value which its dtype cannot hold
        ulp = None
    return Distance(finite(gap), ulp, finite(gap), finite(gap / abs(first)) if first else None)


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(value: float, packing: str) -> int:
    """The value's place among the representable values of its type: neighbours differ by 1. Raises
    OverflowError beyond its range."""
    content = struct.pack("<" + packing, value)
    bits = int.from_bytes(content, "little")
    top = 1 << (8 * len(content) - 1)
    return -(bits - top) if bits & top else bits
