"""The heat map as SVG, its colours and its words: modules by steps, a rectangle for neighbours of
one colour, what it says as its title."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup

from repro_gate.compare.heat_map import ABSENT, LEVELS, SAME, UNKNOWN, worst
from repro_gate.compare.model import Comparison, NoiseFloor
from repro_gate.escape import and_more
from repro_gate.report.drawing import drawing, swatch, tag, words
from repro_gate.report.map_layout import Layout, layout
from repro_gate.report.model import Report

_COLUMNS = 80
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
# powers of two: two orders of one sum are a few hundred ULP apart at most, other data many
# thousands
_ROUNDING = 8


def maps(report: Report, rows: int) -> list[dict[str, object]]:
    """Return the heat map of the deterministic pair; and of the default pair, if that diverges."""
    found, floor = report.determinism, report.noise_floor
    pair = found.comparison if found is not None else None
    drawn = []
    if pair is not None:
        said = "every cell is bitwise identical" if pair.identical else growth(pair)
        opened = not pair.identical or floor is None or floor.identical
        drawn.append(_map("With the flags", said, pair, rows, opened=opened))
    if floor is not None and not floor.identical:
        note = (
            "Two runs without the flags (`default`): how the training varies by itself. Distances "
            "are measured at the end only."
        )
        opened = pair is not None and pair.identical
        drawn.append(_map("Without the flags", note, floor, rows, opened=opened))
    return [item for item in drawn if item is not None]


def _map(
    title: str, note: str, pair: Comparison | NoiseFloor, rows: int, *, opened: bool
) -> dict[str, object] | None:
    if pair.heat_map is None or not pair.heat_map.rows:
        return None
    measured = len(pair.growth) if isinstance(pair, Comparison) else 0
    drawn = layout(pair.heat_map, pair.first_divergence, rows, _COLUMNS, measured=bool(measured))
    table = []
    for name, cells in drawn.rows:
        apart = [at for at, cell in enumerate(cells) if cell not in (ABSENT, SAME)]
        recorded = sum(cell != ABSENT for cell in cells)
        begin = drawn.steps_of(apart[0], apart[0]) if apart else ""
        far = _far(worst(cells)) if recorded else "not recorded"
        table.append((name, begin, f"{len(apart):,} of {recorded:,}", far))
    notes = [note] if note else []
    if measured:
        notes.append(f"Distances were measured by two more runs, at {measured:,} of the steps.")
    if drawn.each > 1:
        notes.append(f"Each column stands for {drawn.each:,} steps and shows the farthest of them.")
    if drawn.more:
        notes.append(f"{and_more(drawn.more, 'rows')} are not drawn.")
    label = f"heat map, {title.lower()}; the table below says the same"
    return {
        "title": title,
        "svg": _drawn(drawn, label),
        "table": table,
        "notes": notes,
        "open": opened,
    }


def growth(pair: Comparison) -> str:
    """Return whether two runs begin a rounding apart, or are another training at once; empty where
    the map does not show it."""
    rows = () if pair.heat_map is None else pair.heat_map.rows
    columns = (worst("".join(cells)) for cells in zip(*(row.cells for row in rows), strict=False))
    apart = [cell for cell in columns if cell not in (ABSENT, SAME)]
    if not apart or apart[0] == UNKNOWN:
        return ""
    first = LEVELS.index(apart[0])
    last = max(LEVELS.index(cell) for cell in apart if cell != UNKNOWN)
    if first > _ROUNDING:
        return (
            f"Where the runs first diverge they are about 2^{first} ULP apart: that is no "
            "rounding, but another training."
        )
    grows = ""
    if last > first + 2:
        grows = f", and grows to 2^{last}"
    elif last <= _ROUNDING:
        grows = ", and stays there"
    return f"The divergence begins as rounding, about 2^{first} ULP apart{grows}."


def _drawn(drawn: Layout, label: str) -> Markup:
    columns = max(len(cells) for _, cells in drawn.rows)
    wide = max(4.0, min(28.0, _WIDTH / max(columns, 1)))
    parts = [words("step", _GUTTER - 8, _TOP - 6, text_anchor="end")]
    parts += [
        words(f"{(column - 1) * drawn.each:,}", _GUTTER + column * wide, _TOP - 6)
        for column in range(1, columns, max(1, round(60 / wide)))
    ]
    for number, (name, cells) in enumerate(drawn.rows):
        y = _TOP + number * _ROW
        parts.append(words(name, _GUTTER - 8, y + 10, text_anchor="end"))
        parts += _rectangles(drawn, name, cells, y, wide)
    if drawn.first is not None:
        row, column = drawn.first
        ring = tag(
            "rect",
            x=f"{_GUTTER + column * wide - 2:g}",
            y=_TOP + row * _ROW - 2,
            width=f"{wide + 4:g}",
            height=_ROW + 4,
            fill="none",
            stroke="#0969da",
            stroke_width=2,
            class_="ring",
            rx=3,
        )
        parts.append(ring)
    height = _TOP + len(drawn.rows) * _ROW + 6
    return drawing(_GUTTER + columns * wide + 8, height, label, parts)


def _rectangles(drawn: Layout, name: str, cells: str, y: int, wide: float) -> Iterator[Markup]:
    """Return one rectangle for neighbours of one colour."""
    at = 0
    for (kind, colour), run in groupby(cells, key=_colour):
        neighbours = "".join(run)
        if kind:
            steps = drawn.steps_of(at, at + len(neighbours) - 1)
            yield tag(
                "rect",
                tag("title", f"{name}, {steps}: {_far(worst(neighbours))}"),
                x=f"{_GUTTER + at * wide:g}",
                y=y,
                width=f"{len(neighbours) * wide:g}",
                height=_ROW - 1,
                class_=kind,
                fill=colour,
            )
        at += len(neighbours)


def _colour(cell: str) -> tuple[str, str]:
    """Return class and colour of a cell; empty for what was not recorded."""
    if cell == ABSENT:
        return "", ""
    if cell in (SAME, UNKNOWN):
        return ("s", SAME_COLOUR) if cell == SAME else ("u", UNKNOWN_COLOUR)
    place = min(LEVELS.index(cell) // _BIN, len(COLOURS) - 1)
    return f"d{place}", COLOURS[place]


def _far(cell: str) -> str:
    if cell in (SAME, UNKNOWN):
        return "bitwise identical" if cell == SAME else "differs, distance not measured"
    power = LEVELS.index(cell)
    return f"about {2**power:,} ULP apart" if power < 20 else f"about 2^{power} ULP apart"


def legend() -> Markup:
    """Return what the colours mean, as a list."""
    entries = [("s", SAME_COLOUR, "bitwise identical")]
    for place, colour in enumerate(COLOURS):
        low = 2 ** (place * _BIN)
        entries.append((f"d{place}", colour, f"from {low:,} ULP"))
    entries.append(("u", UNKNOWN_COLOUR, "differs, distance not measured"))
    return tag(
        "ul", Markup("").join(tag("li", swatch(*entry)) for entry in entries), class_="legend"
    )
