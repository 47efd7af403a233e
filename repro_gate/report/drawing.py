"""The elements of the page's drawings, as SVG without scripts and as Markup.

Plain SVG and no drawing library: rectangles and lines, which have to work where a content security
policy refuses styles (Jenkins). So geometry and colours are attributes; the page's stylesheet gives
the classes other colours in the dark. Texts from outside come through `shown` and are escaped by
markupsafe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from repro_gate.escape import for_terminal


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
