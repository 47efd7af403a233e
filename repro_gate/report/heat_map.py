"""The heat map as a person sees it. `maps` draws it for the page: SVG, a rectangle for neighbours
of one colour, what it says as its title. `spread` says it in one sentence, for every renderer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from repro_gate.compare.heat_map import (
    ABSENT,
    COLUMNS,
    LEVELS,
    SAME,
    UNKNOWN,
    column_of,
    place_of,
    worst,
)
from repro_gate.compare.model import (
    Comparison,
    Divergence,
    HeatMap,
    HeatRow,
    NoiseFloor,
)
from repro_gate.escape import counted, for_terminal
from repro_gate.report.model import Report

_LABEL = 30  # characters of a row's name
_FEWEST = 8  # columns at least, where distances were measured at few steps
# class of the stylesheet, colour and meaning: from rounding to another training
COLOURS = (
    ("s", "#d5dae0", "bitwise identical"),
    ("d0", "#ffe08a", "from 1 ULP"),
    ("d1", "#fdbb4d", "from 16 ULP"),
    ("d2", "#f98f35", "from 256 ULP"),
    ("d3", "#e8602c", "from 4,096 ULP"),
    ("d4", "#c8361f", "from 65,536 ULP"),
    ("d5", "#94170f", "from 1,048,576 ULP"),
    ("u", "#b39ddb", "differs, distance not measured"),
)
_BLANK = ("", "", "not recorded")
_BIN = 4  # powers of two that share a colour: the last holds what is 2^20 ULP and more apart
# powers of two: two orders of one sum are a few hundred ULP apart at most, other data many
# thousands
_ROUNDING = 8


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is drawn: names with their cells, of which the first is the state before the first step.
    `first` is the row and column of the first divergence, None where nothing differs or its row is
    not drawn; `each` says how many steps share a column."""

    rows: tuple[tuple[str, str], ...]
    more: int  # rows that are left out
    first: tuple[int, int] | None
    each: int
    steps: int

    def steps_of(self, first: int, last: int) -> str:
        """Return the steps of the columns `first` to `last`, in words."""
        if last == 0:
            return "before the first step"
        begin = max(0, (first - 1) * self.each)
        end = min(last * self.each, max(self.steps, 1)) - 1
        return f"step {begin:,}" if begin == end else f"steps {begin:,} to {end:,}"


def layout(
    heat_map: HeatMap, first: Divergence | None, rows: int, columns: int
) -> Layout:
    """Return the map in at most `rows` rows, those that differ first, of `columns` columns beside
    the initial state. `first` is the first divergence."""
    earliest = sorted(heat_map.rows, key=_start)[:rows]
    drawn = [row for row in heat_map.rows if row in earliest]
    last = max((len(row.cells) for row in drawn), default=1) - 1
    width = max(1, -(-last // columns))
    numbers = (at for at, row in enumerate(drawn) if _holds(row, first, heat_map))
    number = next(numbers, None)
    place = None
    if first is not None and number is not None:
        column = min(column_of(first.step, heat_map), last)  # it may name any step
        place = number, -(-column // width)
    return Layout(
        rows=tuple(
            (_label(row, heat_map), _coarser(row.cells, width)) for row in drawn
        ),
        more=len(heat_map.rows) - len(drawn),
        first=place,
        each=heat_map.width * width,
        steps=heat_map.steps,
    )


def _start(row: HeatRow) -> tuple[int, ...]:
    """Return a row's first column that differs; of a row without one what comes behind."""
    return tuple(_differing(row.cells)[:1]) or (len(row.cells),)


def _differing(cells: str) -> list[int]:
    return [at for at, cell in enumerate(cells) if cell not in (SAME, ABSENT)]


def _holds(row: HeatRow, first: Divergence | None, heat_map: HeatMap) -> bool:
    """Return whether the first divergence is in this row."""
    if first is None:
        return False
    place = place_of((first.process, first.kind, first.name), heat_map.depth)
    return place == (row.process, row.kind, row.module)


def _label(row: HeatRow, heat_map: HeatMap) -> str:
    processes = {item.process for item in heat_map.rows}
    parts = (row.process if len(processes) > 1 else "", row.kind, row.module)
    return for_terminal(" ".join(filter(None, parts)), _LABEL)


def _coarser(cells: str, width: int) -> str:
    """Return the cells, `width` columns in each but the first."""
    later = (worst(cells[at : at + width]) for at in range(1, len(cells), width))
    return "".join((cells[:1] or ABSENT, *later))


def spread(heat_map: HeatMap, first: Divergence | None) -> str:
    """Return in one sentence where two runs begin to differ, and from which step on everything
    does: "first gradient blocks.3, then everything from step 44 on". Empty if nothing differs."""
    rows = heat_map.rows
    differing = [row for row in rows if _differing(row.cells)]
    if not differing:
        return ""
    named = (row for row in differing if _holds(row, first, heat_map))
    begin = _label(next(named, min(differing, key=_start)), heat_map)
    last = max(len(row.cells) for row in rows) - 1
    same = max(row.cells.rfind(SAME) for row in rows)
    then = f"{len(differing):,} of {len(rows):,} parts of the training"
    if same < last:
        then = f"everything from step {max(0, same) * heat_map.width:,} on"
    return f"first {begin}, then {then}"


def maps(report: Report, rows: int) -> list[dict[str, object]]:
    """Return the heat map of the deterministic pair; and of the default pair, if that diverges."""
    pair = report.determinism
    floor = report.noise_floor
    drawn: list[dict[str, object]] = []
    if pair is not None:
        note = "every cell is bitwise identical" if pair.identical else growth(pair)
        drawn += _map("With the flags", note, pair, rows, len(pair.growth))
    if floor is not None and not floor.identical:
        note = (
            "Two runs without the flags (`default`): how the training varies by itself. Distances "
            "are measured at the end only."
        )
        drawn += _map("Without the flags", note, floor, rows, 0)
    return drawn


def _map(
    title: str, note: str, pair: Comparison | NoiseFloor, rows: int, measured: int
) -> Iterator[dict[str, object]]:
    if pair.heat_map is None or not pair.heat_map.rows:
        return
    # as many columns that at least half of them have a distance
    most = max(_FEWEST, 2 * measured) if measured else COLUMNS
    drawn = layout(pair.heat_map, pair.first_divergence, rows, most)
    yield {
        "title": title,
        "note": note,
        "measured": measured,
        "left_out": drawn.more and counted(drawn.more, "row", "are"),
        "layout": drawn,
        "columns": max(len(cells) for _, cells in drawn.rows),
        "runs": [(name, [*_neighbours(drawn, cells)]) for name, cells in drawn.rows],
        "table": [_summary(drawn, name, cells) for name, cells in drawn.rows],
        "open": not pair.identical,
    }


def _summary(drawn: Layout, name: str, cells: str) -> tuple[str, ...]:
    """Return a row of the table that says the same as the drawing."""
    differing = _differing(cells)
    begin = drawn.steps_of(differing[0], differing[0]) if differing else ""
    recorded = len(cells) - cells.count(ABSENT)
    return name, begin, f"{len(differing):,} of {recorded:,}", _far(worst(cells))


def growth(pair: Comparison) -> str:
    """Return whether two runs begin a rounding apart, or are another training at once; empty where
    the map does not show it."""
    rows = () if pair.heat_map is None else pair.heat_map.rows
    columns = zip(*(row.cells for row in rows), strict=False)
    cells = [worst("".join(column)) for column in columns]
    differing = [cells[at] for at in _differing("".join(cells))]
    if not differing or differing[0] == UNKNOWN:
        return ""
    first = LEVELS.index(differing[0])
    last = max(LEVELS.index(cell) for cell in differing if cell != UNKNOWN)
    if first > _ROUNDING:
        return (
            f"Where the runs first diverge they are about 2^{first} ULP apart: that is no "
            "rounding, but another training."
        )
    grows = ", and stays there" if last <= _ROUNDING else ""
    if last > first + 2:
        grows = f", and grows to 2^{last}"
    return f"The divergence begins as rounding, about 2^{first} ULP apart{grows}."


def _neighbours(drawn: Layout, cells: str) -> Iterator[dict[str, object]]:
    """Return neighbours of one colour, each group as one rectangle."""
    at = 0
    for (kind, colour, *_), run in groupby(cells, key=_look):
        group = "".join(run)
        end = at + len(group)
        if kind:
            yield {
                "at": at,
                "count": len(group),
                "kind": kind,
                "colour": colour,
                "steps": drawn.steps_of(at, end - 1),
                "far": _far(worst(group)),
            }
        at = end


def _look(cell: str) -> tuple[str, str, str]:
    """Return class, colour and meaning of a cell."""
    if cell in LEVELS:
        return COLOURS[1 + min(LEVELS.index(cell) // _BIN, len(COLOURS) - 3)]
    return {SAME: COLOURS[0], UNKNOWN: COLOURS[-1]}.get(cell, _BLANK)


def _far(cell: str) -> str:
    if cell not in LEVELS:
        return _look(cell)[-1]
    power = LEVELS.index(cell)
    distance = f"{2**power:,}" if power < 20 else f"2^{power}"
    return f"about {distance} ULP apart"
