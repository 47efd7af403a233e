"""The drawings of the page, as SVG without scripts: each is one function of figures that returns
Markup.

Plain SVG and no drawing library: drawings of rectangles and lines, which have to work where a
content security policy refuses styles (Jenkins). So geometry and colours are attributes; the page's
stylesheet gives the classes other colours in the dark. Texts from outside come through `shown` and
are escaped by markupsafe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup, escape

from repro_gate.escape import for_terminal
from repro_gate.report import numbers

ARMS = {"deterministic": ("a1", "#0b62c4"), "default": ("a2", "#b3541e")}  # class and colour
Series = Sequence[tuple[int, float]]


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


def growth(title: str, unit: str, series: Series, floor: Series, last: int) -> Markup | None:
    """One quantity by step on a logarithmic axis, the noise floor as a band below its own line;
    None where nothing is above zero."""
    above = [
        min(max(value, 1e-300), 1e300) for _, value in (*series, *floor) if 0 < value < math.inf
    ]
    if not above:
        return None
    low, high = math.floor(math.log10(min(above)) - 0.01), math.ceil(math.log10(max(above)) + 0.01)
    left, top, width, height = 74.0, 24.0, 640.0, 130.0

    def at(step: int, value: float) -> tuple[float, float]:
        share = (
            (math.log10(value) - low) / max(high - low, 1)
            if 0 < value < math.inf
            else 1.0
            if value
            else 0.0
        )
        return left + (step + 1) / max(last + 1, 1) * width, top + height * (1 - share)

    parts = [words(title, left, 14, font_weight="bold", font_size="12")]
    for power in range(low, high + 1, max(1, (high - low) // 4)):
        y = at(0, 10.0**power)[1]
        parts.append(
            tag(
                "line",
                x1=left,
                x2=left + width,
                y1=f"{y:g}",
                y2=f"{y:g}",
                class_="grid",
                stroke="#d0d7de",
            )
        )
        parts.append(
            words(
                f"{10.0**power:.0e}".replace("e-0", "e-").replace("e+0", "e+"),
                left - 6,
                y + 4,
                text_anchor="end",
            )
        )
    parts += [
        words(f"{step:,}", at(step, 0)[0], top + height + 14, text_anchor="middle")
        for step in sorted({0, last // 2, last})
    ]
    parts.append(words("step", left - 6, top + height + 14, text_anchor="end"))
    if floor:
        line = _path(floor, at)
        base = f"{top + height:g}"
        begin, end = (f"{at(step, 1)[0]:g}" for step in (floor[0][0], floor[-1][0]))
        parts.append(
            tag(
                "path",
                d=f"{line} L {end} {base} L {begin} {base} Z",
                class_="band",
                fill="#f6d9c4",
                fill_opacity="0.7",
            )
        )
        parts.append(
            tag(
                "path",
                d=line,
                class_="a2s",
                fill="none",
                stroke=ARMS["default"][1],
                stroke_dasharray="4 3",
            )
        )
    if series:
        parts.append(
            tag(
                "path",
                d=_path(series, at),
                class_="a1s",
                fill="none",
                stroke=ARMS["deterministic"][1],
                stroke_width=2,
            )
        )
        for step, value in _thinned(series, 60):
            x, y = at(step, value)
            told = tag("title", f"step {step:,}: {title.lower()} {numbers.small(value)}{unit}")
            parts.append(
                tag(
                    "circle",
                    told,
                    cx=f"{x:g}",
                    cy=f"{y:g}",
                    r=2.5,
                    class_="a1",
                    fill=ARMS["deterministic"][1],
                )
            )
    return drawing(
        left + width + 12,
        top + height + 22,
        f"{title} by step, logarithmic; the figures are in the table below",
        parts,
    )


def _path(series: Series, at: Callable[[int, float], tuple[float, float]]) -> str:
    points = (at(step, value) for step, value in _thinned(series, 300))
    return "M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _thinned(series: Series, most: int) -> Series:
    """The largest of each group of neighbours, and the last: at most so many and one more."""
    width = max(1, -(-len(series) // most))
    groups = [series[start : start + width] for start in range(0, len(series), width)]
    return [max(group, key=lambda item: item[1]) for group in groups]
