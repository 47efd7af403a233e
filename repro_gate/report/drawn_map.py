"""The heat map as SVG, its colours and its words: modules by steps, a rectangle for neighbours of
one colour, what it says as its title."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from markupsafe import Markup

from repro_gate.compare.heat_map import ABSENT, LEVELS, SAME, UNKNOWN, column_of, place_of, worst
from repro_gate.compare.model import Divergence, HeatMap, HeatRow
from repro_gate.escape import clip
from repro_gate.report.drawing import drawing, shown, swatch, tag, words

MAX_MAP = 400_000  # characters of one heat map; a larger one is drawn coarser
_FEWEST = 8  # columns that are left, at least
_RECTANGLE = 200  # characters of one, with its title, about
# of a distance, from rounding to another training
COLOURS = (
    "#ffe08a",
    "#fdbb4d",
    "#f98f35",
    "#e8602c",
    "#c8361f",
    "#94170f",
)
UNKNOWN_COLOUR, SAME_COLOUR = "#b39ddb", "#d5dae0"
_BIN = 4  # powers of two that share a colour: the last holds what is 2^20 ULP and more apart
_GUTTER, _ROW, _TOP = 230, 13, 18  # pixels: names of rows, the height of one, the axis above
_WIDTH = 760  # pixels of the cells


def level_class(cell: str) -> tuple[str, str]:
    """Class and colour of a cell."""
    if cell == SAME:
        return "s", SAME_COLOUR
    if cell == UNKNOWN:
        return "u", UNKNOWN_COLOUR
    place = min(LEVELS.index(cell) // _BIN, len(COLOURS) - 1)
    return f"d{place}", COLOURS[place]


def far(cell: str) -> str:
    """A cell in words."""
    if cell in (SAME, UNKNOWN):
        return "bitwise identical" if cell == SAME else "differs, distance not measured"
    power = LEVELS.index(cell)
    return f"about {2**power:,} ULP apart" if power < 20 else f"about 2^{power} ULP apart"


def steps_of(drawn: HeatMap, first: int, last: int) -> str:
    """The steps of the columns `first` to `last`, in words."""
    if last == 0:
        return "before the first step"
    begin, end = max(0, (first - 1) * drawn.width), min(last * drawn.width, max(drawn.steps, 1)) - 1
    return f"step {begin:,}" if begin == end else f"steps {begin:,} to {end:,}"


def row_name(row: HeatRow) -> str:
    """The row in words; what it is called is untrusted."""
    named = f"{shown(row.module, 80)} {row.kind}" if row.module else row.kind
    return named if row.process == "main" else f"{shown(row.process, 40)}: {named}"


def coarser(drawn: HeatMap) -> HeatMap:
    """The map with two columns in one; that of the initial state stays by itself."""
    rows = (
        replace(
            row,
            cells=row.cells[:1]
            + "".join(worst(row.cells[at : at + 2]) for at in range(1, len(row.cells), 2)),
        )
        for row in drawn.rows
    )
    return replace(drawn, width=2 * drawn.width, rows=tuple(rows))


def heat_map(
    drawn: HeatMap,
    first: Divergence | None,
    label: str,
    room: int = MAX_MAP,
    *,
    measured: bool = False,
) -> tuple[Markup, HeatMap]:
    """The map, in about `room` characters at most, and what was drawn: it may have become coarser.
    `first` is ringed. `measured`: distances were, over the steps."""
    while (
        _rectangles(drawn) * _RECTANGLE > room or (measured and _mostly_unknown(drawn))
    ) and drawn.width * _FEWEST < drawn.steps:
        drawn = coarser(drawn)
    return _heat_map(drawn, first, label), drawn


def _mostly_unknown(drawn: HeatMap) -> bool:
    """Whether distances were measured, at few of the steps that differ: then a column of more steps
    has one."""
    cells = "".join(row.cells for row in drawn.rows)
    unknown = cells.count(UNKNOWN)
    known = len(cells) - unknown - cells.count(SAME) - cells.count(ABSENT)
    return unknown > known > 0


def _rectangles(drawn: HeatMap) -> int:
    return sum(1 for row in drawn.rows for _ in groupby(row.cells, key=_colour))


def _heat_map(drawn: HeatMap, first: Divergence | None, label: str) -> Markup:
    columns = max((len(row.cells) for row in drawn.rows), default=1)
    wide = max(4.0, min(28.0, _WIDTH / max(columns, 1)))
    ringed = None
    if first is not None:
        process, kind, module = place_of((first.process, first.kind, first.name), drawn.depth)
        ringed = (process, kind, module), column_of(first.step, drawn.steps, drawn.width)
    parts, y, process = [*_axis(drawn, columns, wide)], float(_TOP), ""
    ring: list[Markup] = []
    for row in drawn.rows:
        if row.process != process and (row.process != "main" or process):
            parts.append(words(shown(row.process, 40), 0, y + 13, font_weight="bold"))
            y += 18
        process = row.process
        name = f"{shown(row.module, 60)} {row.kind}" if row.module else row.kind
        parts.append(words(clip(name, 36), _GUTTER - 8, y + 10, text_anchor="end"))
        parts.append(
            tag("g", Markup("").join(_cells(drawn, row, y, wide)) or Markup("<title>empty</title>"))
        )
        if (
            ringed == ((row.process, row.kind, row.module), ringed[1] if ringed else 0)
            and ringed is not None
        ):
            x = _GUTTER + ringed[1] * wide
            ring.append(
                tag(
                    "rect",
                    x=f"{x - 2:g}",
                    y=f"{y - 2:g}",
                    width=f"{wide + 4:g}",
                    height=_ROW + 4,
                    fill="none",
                    stroke="#0969da",
                    stroke_width=2,
                    class_="ring",
                    rx=3,
                )
            )
        y += _ROW
    return drawing(_GUTTER + columns * wide + 8, y + 6, label, [*parts, *ring])


def _cells(drawn: HeatMap, row: HeatRow, y: float, wide: float) -> Iterable[Markup]:
    """One rectangle for neighbours of one colour."""
    at, name = 0, row_name(row)
    for (kind, colour), run in groupby(row.cells, key=_colour):
        cells = "".join(run)
        if kind:
            told = tag(
                "title", f"{name}, {steps_of(drawn, at, at + len(cells) - 1)}: {far(worst(cells))}"
            )
            x, width = f"{_GUTTER + at * wide:g}", f"{len(cells) * wide:g}"
            yield tag(
                "rect",
                told,
                x=x,
                y=f"{y:g}",
                width=width,
                height=_ROW - 1,
                class_=kind,
                fill=colour,
            )
        at += len(cells)


def _colour(cell: str) -> tuple[str, str]:
    return ("", "") if cell == ABSENT else level_class(cell)


def _axis(drawn: HeatMap, columns: int, wide: float) -> Iterable[Markup]:
    every = max(1, round(60 / wide))
    for column in range(1, columns, every):
        yield words(f"{(column - 1) * drawn.width:,}", _GUTTER + column * wide, _TOP - 6)
    yield words("step", _GUTTER - 8, _TOP - 6, text_anchor="end")


def legend() -> Markup:
    """What the colours mean, as a list."""
    entries = [("s", SAME_COLOUR, "bitwise identical")]
    for place, colour in enumerate(COLOURS):
        low = 2 ** (place * _BIN)
        last = place == len(COLOURS) - 1
        entries.append(
            (
                f"d{place}",
                colour,
                f"2^{place * _BIN} ULP and more"
                if last
                else f"from {low:,} ULP"
                if low > 1
                else "1 ULP",
            )
        )
    entries.append(("u", UNKNOWN_COLOUR, "differs, distance not measured"))
    return tag(
        "ul", Markup("").join(tag("li", swatch(*entry)) for entry in entries), class_="legend"
    )
