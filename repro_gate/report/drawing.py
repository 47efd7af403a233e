"""The elements of the page's drawings, as SVG without scripts and as Markup; and two drawings of
figures: how far two runs are apart by step beside the noise floor, and the cost with its interval.

Plain SVG and no drawing library: rectangles and lines, which have to work where a content security
policy refuses styles (Jenkins). So geometry and colours are attributes; the page's stylesheet gives
the classes other colours in the dark. Texts from outside come through `shown` and are escaped by
markupsafe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape

from repro_gate.compare.distances import gap
from repro_gate.compare.model import Cost
from repro_gate.escape import for_terminal
from repro_gate.report import numbers
from repro_gate.report.model import Report

_POINTS = 100  # of one line
_LEFT, _TOP, _WIDTH, _BOTTOM = 74, 24, 640, 154  # pixels
_LINE, _GRID = "#0b62c4", "#d0d7de"


def shown(text: object, limit: int = 300) -> str:
    """Text from outside on one line with nothing hidden in it; whoever prints it escapes it."""
    return for_terminal(str(text), limit)


def prose(text: object, limit: int = 4_000) -> Markup:
    """A sentence from outside; what its author set between `backticks` is code."""
    parts = re.split("`([^`]+)`", shown(text, limit))
    return Markup("").join(
        tag("code", part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def tag(name: str, content: object = "", **attributes: object) -> Markup:
    """One element. `content` is escaped unless it is Markup; `_` in an attribute's name is `-`,
    `class_` is `class`."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    return (
        Markup("<{}{}/>").format(name, given)
        if content == ""
        else Markup("<{0}{1}>{2}</{0}>").format(name, given, content)
    )


def drawing(width: float, height: float, label: str, parts: Iterable[Markup]) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return tag(
        "svg",
        Markup("").join(parts),
        viewBox=box,
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_label=label,
    )


def words(text: str, x: float, y: float, **more: object) -> Markup:
    return tag(
        "text",
        text,
        **{
            "x": f"{x:g}",
            "y": f"{y:g}",
            "class_": "w",
            "fill": "#57606a",
            "font_size": "11",
            **more,
        },
    )


def swatch(kind: str, colour: str, words: str) -> Markup:
    square = tag(
        "svg",
        tag("rect", width=12, height=12, class_=kind, fill=colour),
        width=12,
        height=12,
        aria_hidden="true",
    )
    return square + Markup(" ") + escape(words)


def growth(report: Report) -> tuple[list[Markup], list[tuple[str, ...]]]:
    """Return the drawings and the rows of the table: step, loss gap with the flags and without,
    weight distance."""
    pair, floor = report.determinism, report.noise_floor
    losses, noise = (
        [(step, gap(one, other)) for step, one, other in item.losses]
        if item is not None and not item.identical
        else []
        for item in (pair, floor)
    )
    points = pair.growth if pair is not None else ()
    weights = [(item.step, item.weight_l2) for item in points if item.weight_l2 is not None]
    last = max([0, *(step for step, _ in (*losses, *noise, *weights))])
    columns = [_by_step(series, last // _POINTS + 1) for series in (losses, noise, weights)]
    end = floor.weight_l2 if floor is not None and weights else None  # measured at the end alone
    drawings = (
        _grown("Loss gap", columns[0], columns[1], last),
        _grown("Weight distance (L2)", columns[2], {0: end, last: end} if end else {}, last),
    )
    table = [
        (f"{step:,}", *(numbers.small(item[step]) if step in item else "" for item in columns))
        for step in sorted({step for item in columns for step in item})
    ]
    return [item for item in drawings if item is not None], table


def _by_step(series: Iterable[tuple[int, float]], each: int) -> dict[int, float]:
    """Return the largest of each `each` steps; what is no number is left out."""
    found: dict[int, float] = {}
    for step, value in series:
        if math.isfinite(value):
            at = max(step // each * each, -1)
            found[at] = max(found.get(at, 0.0), value)
    return found


def _grown(
    title: str, series: Mapping[int, float], floor: Mapping[int, float], last: int
) -> Markup | None:
    """Return a quantity by step as a line on a logarithmic axis, the noise floor as a band; None if
    nothing is above zero."""
    powers = [math.log10(value) for value in (*series.values(), *floor.values()) if value > 0]
    if not powers:
        return None
    low, high = math.floor(min(powers)), math.floor(max(powers)) + 1

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

    parts = [words(title, _LEFT, 14, font_weight="bold")]
    for power in range(low, high + 1, max(1, (high - low) // 4)):
        parts.append(
            tag("path", d=f"M{_LEFT} {y(power):.1f}h{_WIDTH}", class_="grid", stroke=_GRID)
        )
        parts.append(words(f"1e{power}", _LEFT - 6, y(power) + 4, text_anchor="end"))
    parts += [
        words(name, x(step), _BOTTOM + 16, text_anchor="end")
        for step, name in ((-1, "step"), (last, f"{last:,}"))
    ]
    if above := line(floor):
        begin, end = f"{x(min(floor)):.1f}", f"{x(max(floor)):.1f}"
        d = f"M{begin} {_BOTTOM} L{above} L{end} {_BOTTOM}Z"
        parts.append(tag("path", d=d, class_="band", fill="#f6d9c4", stroke="#b3541e"))
    if curve := line(series):
        parts.append(_stroke(f"M{curve}h0", 2))
    label = f"{title} by step, logarithmic; the table below says the same"
    return drawing(_LEFT + _WIDTH + 12, _BOTTOM + 22, label, parts)


def _stroke(d: str, width: int) -> Markup:
    """Return a line; one of a single point is a dot."""
    return tag(
        "path",
        d=d,
        class_="line",
        fill="none",
        stroke=_LINE,
        stroke_width=width,
        stroke_linecap="round",
    )


def cost(price: Cost) -> Markup:
    """Return the cost in percent with its interval on a line, zero and the budget marked."""
    low, high = price.ci95
    marks = {0.0: "0%"}
    if price.max_percent is not None:
        marks[price.max_percent] = f"budget {numbers.budget(price.max_percent)}"
    begin, end = min(low, *marks), max(high, *marks)

    def x(value: float) -> float:
        return _LEFT + (value - begin) / (end - begin or 1.0) * _WIDTH

    parts = [
        words(numbers.percent(value), x(value), 14, text_anchor="middle") for value in price.ci95
    ]
    for value, name in marks.items():
        parts.append(tag("path", d=f"M{x(value):.1f} 18v24", class_="grid", stroke=_GRID))
        parts.append(words(name, x(value), 56, text_anchor="middle"))
    parts.append(_stroke(f"M{x(low):.1f} 30H{x(high):.1f}", 5))
    parts.append(_stroke(f"M{x(price.determinism_cost_pct):.1f} 30h0", 14))
    label = "the determinism cost with its 95 % interval; the sentence above says the same"
    return drawing(_LEFT * 2 + _WIDTH, 62, label, parts)
