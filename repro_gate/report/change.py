"""Draws what a change did: the losses of both sides over the steps, all seeds and their means, and
the intervals of the effects; in SVG for the page, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from repro_gate.compare.change import Change
from repro_gate.escape import for_terminal
from repro_gate.report.numbers import small

_COLUMNS = 60  # of a line of text
_BARS = "▁▂▃▄▅▆▇█"
_LARGEST = 1e100  # loss that is drawn
_NAME = 20  # characters of a metric

Curve = Mapping[int, float]  # step -> loss
# name, low, middle and high, in [-1, 1]
Effects = Sequence[tuple[str, float, float, float]]


def picture(change: Change | None) -> str:
    """Return the mean losses of both sides and the intervals as text; empty if no seeds were
    run."""
    lines = []
    if change is not None and (means := _means(change)):
        low, high = _range(means)
        head = f"mean loss of {len(change.losses)} seeds, {small(low)} to {small(high)}"
        lines.append(head)
        for name, curve in zip(("before", "after"), means, strict=True):
            values = [curve[step] for step in sorted(curve)]
            places = range(min(_COLUMNS, len(values)))
            shown = [values[at * len(values) // len(places)] for at in places]
            bars = "".join(_BARS[round(7 * (it - low) / (high - low))] for it in shown)
            lines.append(f"{name:<{_NAME}} {bars}")
    for name, *ends in _effects(change):
        low, middle, high = (round((end + 1) * _COLUMNS / 2) for end in ends)
        row = [" "] * (_COLUMNS + 1)
        row[low : high + 1] = "─" * (high + 1 - low)
        row[_COLUMNS // 2] = "0"
        row[middle] = "●"
        lines.append(f"{for_terminal(name, _NAME):<{_NAME}} {''.join(row)}".rstrip())
    return "\n".join(lines)


def drawing(change: Change | None) -> dict[str, object] | None:
    """Return what the template draws, points as shares of width and height; None if no seeds were
    run."""
    means = _means(change) if change else ()
    if change is None or not means:
        return None
    low, high = _range(means)
    last = max(1, *(step for curve in means for step in curve))

    def line(curve: Curve) -> list[tuple[float, float]]:
        return [
            (step / last, min(max((high - loss) / (high - low), 0), 1))
            for step, loss in sorted(curve.items())
        ]

    return {
        "high": small(high),
        "low": small(low),
        "last": f"{last:,}",
        "thin": [[line(it) for it in side] for side in _curves(change)],
        "thick": [*map(line, means)],
        "rows": _effects(change),
        "table": [
            (f"{step:,}", small(means[0][step]), small(loss))
            for step, loss in sorted(means[1].items())
        ],
    }


def _curves(change: Change) -> tuple[list[Curve], list[Curve]]:
    """Return the losses of each seed, of both sides, without what is no number."""
    sides: tuple[list[Curve], list[Curve]] = ([], [])
    for _, rows in change.losses:
        finite = [row for row in rows if all(abs(loss) < _LARGEST for loss in row[1:])]
        for number, side in enumerate(sides, 1):
            side.append({row[0]: row[number] for row in finite})
    return sides


def _means(change: Change) -> tuple[Curve, ...]:
    """Return the mean losses of both sides at the steps that all seeds have; nothing if there are
    none."""
    sides = _curves(change)
    steps = set.intersection(*map(set, sides[0])) if sides[0] else set()
    if not steps:
        return ()
    return tuple(
        {step: fmean(it[step] for it in side) for step in steps} for side in sides
    )


def _range(means: Sequence[Curve]) -> tuple[float, float]:
    """Return the smallest and the largest of all losses, never the same."""
    losses = [loss for curve in means for loss in curve.values()]
    low, high = min(losses), max(losses)
    return low, high if high > low else low + (abs(low) or 1.0)


def _effects(change: Change | None) -> Effects:
    """Return each interval, as shares of what is farthest from zero in it."""
    found = []
    for item in change.effects if change else ():
        if item.ci95 is not None and item.difference is not None:
            low, high = item.ci95
            most = max(abs(low), abs(high)) or 1.0
            found.append((item.metric, low / most, item.difference / most, high / most))
    return found
