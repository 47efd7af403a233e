"""Two drawings of the page, as the figures that its template puts into SVG: how far two runs are
apart by step beside the noise floor, and the cost with its interval. Sizes are pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from repro_gate.compare.distances import gap
from repro_gate.compare.model import Cost
from repro_gate.report import numbers
from repro_gate.report.model import Report

_POINTS = 100  # of one line
_LEFT = 74
_TOP = 24
_WIDTH = 640
_BOTTOM = 154


def growth(report: Report) -> dict[str, object]:
    """Return the curves, and the rows of the table: step, loss gap with the flags and without,
    weight distance."""
    pair = report.determinism
    floor = report.noise_floor
    losses, noise = (
        [(step, gap(one, other)) for step, one, other in item.losses]
        if item is not None and not item.identical
        else []
        for item in (pair, floor)
    )
    points = pair.growth if pair is not None else ()
    weights = [
        (item.step, item.weight_l2) for item in points if item.weight_l2 is not None
    ]
    last = max([0, *(step for step, _ in (*losses, *noise, *weights))])
    columns = [
        _by_step(series, last // _POINTS + 1) for series in (losses, noise, weights)
    ]
    # measured at the end alone
    end = floor.weight_l2 if floor is not None and weights else None
    curves = (
        _curve("Loss gap", columns[0], columns[1], last),
        _curve(
            "Weight distance (L2)", columns[2], {0: end, last: end} if end else {}, last
        ),
    )
    table = [
        (
            f"{step:,}",
            *(numbers.small(item[step]) if step in item else "" for item in columns),
        )
        for step in sorted({step for item in columns for step in item})
    ]
    return {"curves": [item for item in curves if item is not None], "table": table}


def _by_step(series: Iterable[tuple[int, float]], each: int) -> dict[int, float]:
    """Return the largest of each `each` steps; what is no number is left out."""
    largest: dict[int, float] = {}
    for step, value in series:
        if math.isfinite(value):
            at = max(step // each * each, -1)
            largest[at] = max(largest.get(at, 0.0), value)
    return largest


def _curve(
    title: str, series: Mapping[int, float], floor: Mapping[int, float], last: int
) -> dict[str, object] | None:
    """Return a quantity by step as a line on a logarithmic axis, the noise floor as a band; None if
    nothing is above zero."""
    powers = [
        math.log10(value) for value in (*series.values(), *floor.values()) if value > 0
    ]
    if not powers:
        return None
    low = math.floor(min(powers))
    high = math.floor(max(powers)) + 1

    def x(step: int) -> float:
        return _LEFT + (step + 1) / (last + 1) * _WIDTH

    def y(power: float) -> float:
        return _TOP + (high - power) / (high - low) * (_BOTTOM - _TOP)

    def line(points: Mapping[int, float]) -> str:
        return " L".join(
            f"{x(step):.1f} {y(math.log10(value)):.1f}"
            for step, value in sorted(points.items())
            if value > 0
        )

    ticks = range(low, high + 1, max(1, (high - low) // 4))
    band = ""
    if edge := line(floor):
        begin = f"{x(min(floor)):.1f}"
        end = f"{x(max(floor)):.1f}"
        band = f"M{begin} {_BOTTOM} L{edge} L{end} {_BOTTOM}Z"
    return {
        "title": title,
        "left": _LEFT,
        "width": _WIDTH,
        "bottom": _BOTTOM,
        "powers": [(y(power), power) for power in ticks],
        "steps": [(x(-1), "step"), (x(last), f"{last:,}")],
        "band": band,
        "line": line(series),
    }


def cost(price: Cost | None) -> dict[str, object] | None:
    """Return the cost in percent with its interval on a line, zero and the budget marked."""
    if price is None:
        return None
    marks = {0.0: "0%"}
    if price.max_percent is not None:
        marks[price.max_percent] = f"budget {numbers.budget(price.max_percent)}"
    begin = min(price.ci95[0], *marks)
    end = max(price.ci95[1], *marks)

    def x(value: float) -> float:
        return _LEFT + (value - begin) / (end - begin or 1.0) * _WIDTH

    return {
        "width": _LEFT * 2 + _WIDTH,
        "interval": [(x(value), numbers.percent(value)) for value in price.ci95],
        "marks": [(x(value), name) for value, name in marks.items()],
        "cost": x(price.determinism_cost_pct),
    }
