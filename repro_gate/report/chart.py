"""The Mermaid chart of the comment: how far two runs are apart by step, where that grows so much
that a sentence cannot say it.

Every word and number in the chart is ours. Mermaid's xychart reads plain decimals only (no
exponents), so the axis is logarithmic. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro_gate.compare.model import Comparison
from repro_gate.escape import for_mermaid

POINTS = 60  # at most so many points: what a chart in a comment can show
TELLING = 100  # largest over first gap from which on the chart says more than a sentence

Series = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class _Points:
    """What is drawn: the first step, the number of steps that one point stands for, the value of
    each point."""

    first: int
    width: int
    values: tuple[float, ...]


def chart(comparison: Comparison) -> str | None:
    """A Mermaid diagram, without its fence, of how far two runs are apart: their parameters, or
    where these were not measured their losses. None where the gap does not grow a hundredfold."""
    found = [
        (point.step, point.weight_l2)
        for point in sorted(comparison.growth, key=lambda point: point.step)
    ]
    parameters = tuple((step, gap) for step, gap in found if gap is not None and math.isfinite(gap))
    if found and len(parameters) == len(found):
        return _drawn(parameters, "Parameters of the two runs, L2 distance")
    gaps = loss_gaps(comparison.losses)
    largest = max((gap for _, gap in gaps if math.isfinite(gap)), default=0.0)
    return _drawn(
        tuple((step, gap if math.isfinite(gap) else largest) for step, gap in gaps), "Loss gap"
    )


def loss_gaps(losses: Sequence[tuple[int, float, float]]) -> Series:
    """(step, |difference|) of the losses, the largest of several of one step; infinite where only
    one of two is a number."""
    by_step: dict[int, float] = {}
    for step, one, other in losses:
        same = one == other or (math.isnan(one) and math.isnan(other))
        by_step[step] = max(by_step.get(step, 0.0), 0.0 if same else _magnitude(one - other))
    return tuple(sorted(by_step.items()))


def _magnitude(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)


def _points(series: Series) -> _Points:
    """The series in at most POINTS points, the maximum of each. A point without a value repeats the
    one before it."""
    first, last = series[0][0], series[-1][0]
    width = max(-(-(last - first + 1) // POINTS), 1)
    values: list[float | None] = [None] * max((last - first) // width + 1, 2)
    for step, value in series:
        index = (step - first) // width
        values[index] = max(values[index] or 0.0, value)
    filled: list[float] = []
    for entry in values:
        filled.append(filled[-1] if entry is None else entry)
    return _Points(first, width, tuple(filled))


def _drawn(series: Series, what: str) -> str | None:
    if len(series) < 2 or not any(value > 0 for _, value in series):
        return None
    points = _points(series)
    positive = [value for value in points.values if value > 0]
    if math.log10(max(positive)) - math.log10(positive[0]) < math.log10(TELLING):
        return None
    floor = math.floor(math.log10(min(positive))) - 1
    logs = tuple(math.log10(value) if value > 0 else float(floor) for value in points.values)
    title = f"{what} by step, log10" + (
        f" (none is drawn at {floor})" if 0.0 in points.values else ""
    )
    return _diagram(
        title,
        replace(points, values=logs),
        f"log10 of the {what[:1].lower()}{what[1:]}",
        (float(floor), float(math.ceil(max(logs)))),
    )


def _diagram(title: str, points: _Points, axis: str, bounds: tuple[float, float]) -> str:
    """`x-axis` spans a whole number of points, so that Mermaid, which adds up the width of one,
    meets the last."""
    low, high = bounds if bounds[0] < bounds[1] else (bounds[0], bounds[0] + 1)
    return "\n".join(
        (
            "xychart-beta",
            f'    title "{for_mermaid(title)}"',
            (
                f'    x-axis "step" {points.first} --> '
                f"{points.first + points.width * (len(points.values) - 1)}"
            ),
            f'    y-axis "{for_mermaid(axis)}" {_decimal(low)} --> {_decimal(high)}',
            f"    line [{', '.join(_decimal(value) for value in points.values)}]",
        )
    )


def _decimal(value: float) -> str:
    """A plain decimal with at most three places."""
    return f"{round(value, 3) + 0.0:.3f}".rstrip("0").rstrip(".")
