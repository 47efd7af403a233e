"""The heat map as a person sees it: how it is laid out in so many rows and columns (rows of one
beginning of a module's path together, steps that share a column, where the first divergence is).

`maps` draws it for the page: SVG, a rectangle for neighbours of one colour, what it says as its
title. `spread` says it in one sentence, for the comment and a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from repro_gate.compare.heat_map import (
    ABSENT,
    COLUMNS,
    LEVELS,
    PARTS,
    SAME,
    UNKNOWN,
    column_of,
    deepest_fitting,
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
from repro_gate.escape import and_more, for_terminal
from repro_gate.report.model import Report

_LABEL = 30  # characters of a row's name
_NEVER = 10**6  # a column behind all others

_Grouped = list[list[HeatRow]]
_ROWS = 24  # groups of modules that the sentence tells apart
_COLUMNS = 80  # of the page
_FEWEST = 8  # columns that it has at least, where distances were measured at few steps
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
_WIDTH = 760  # pixels of the cells
# powers of two: two orders of one sum are a few hundred ULP apart at most, other data many
# thousands
_ROUNDING = 8


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is drawn: names with their cells, of which the first is the state before the first step.
    `first` is the row and column of the first divergence, None where nothing differs or its row is
    not drawn; `each` says how many steps share a column."""

    rows: tuple[tuple[str, str], ...]
    more: int  # groups that are left out
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
    heat_map: HeatMap,
    first: Divergence | None,
    rows: int,
    columns: int,
) -> Layout:
    """Return the map in at most `rows` rows of `columns` columns, beside the initial state.
    `first` is the first divergence."""
    groups, more = _grouped(heat_map.rows, rows)
    lengths = [len(row.cells) for row in heat_map.rows]
    steps = max([1, *lengths]) - 1
    width = max(1, -(-steps // columns))
    place = _first(heat_map, groups, first)
    if place is not None and place[1]:  # a report may name any step
        number, column = place
        place = number, 1 + (min(column, steps) - 1) // width
    processes = len({row.process for row in heat_map.rows})
    return Layout(
        rows=tuple(
            (_label(group[0], processes), _cells(group, steps, width))
            for group in groups
        ),
        more=more,
        first=place,
        each=heat_map.width * width,
        steps=heat_map.steps,
    )


def _grouped(rows: tuple[HeatRow, ...], most: int) -> tuple[_Grouped, int]:
    """Return the rows, those of one kind and of one beginning of the module's path together, and
    how many groups are left out.

    Paths are cut as little as gives `most` groups. Where no cut does, those that differ first
    stay."""
    places = [
        (row.process, row.kind, *filter(None, row.module.split(".", PARTS)[:PARTS]))
        for row in rows
    ]
    depth = deepest_fitting(places, most)
    by_place: dict[tuple[str, ...], list[HeatRow]] = {}
    for row, place in zip(rows, places, strict=True):
        cut = place[: 2 + depth]
        shorter = replace(row, module=".".join(cut[2:]))
        by_place.setdefault(cut, []).append(shorter)
    groups = list(by_place.values())
    first = sorted(groups, key=_starts)[:most]
    return sorted(first, key=groups.index), len(groups) - len(first)


def _starts(group: list[HeatRow]) -> int:
    """Return the first column in which any row of the group differs."""
    cells = (at for row in group for at in _differing(row.cells))
    return min(cells, default=_NEVER)


def _differing(cells: str) -> list[int]:
    return [at for at, cell in enumerate(cells) if cell not in (SAME, ABSENT)]


def _label(row: HeatRow, processes: int) -> str:
    parts = (row.process if processes > 1 else "", row.kind, row.module)
    return for_terminal(" ".join(filter(None, parts)), _LABEL)


def _cells(group: list[HeatRow], steps: int, width: int) -> str:
    """Return the cells of several rows as those of one, `width` columns in each but the first."""
    every = [
        worst("".join(row.cells[at : at + 1] or ABSENT for row in group))
        for at in range(steps + 1)
    ]
    later = (
        worst("".join(every[at : at + width])) for at in range(1, steps + 1, width)
    )
    return "".join((*every[:1], *later))


def _first(
    heat_map: HeatMap, groups: _Grouped, first: Divergence | None
) -> tuple[int, int] | None:
    """Return group and column of the first divergence, if it is in the map."""
    if first is None:
        return None
    place = place_of((first.process, first.kind, first.name), heat_map.depth)
    rows = (number for number, group in enumerate(groups) if _holds(group, place))
    number = next(rows, None)
    return None if number is None else (number, column_of(first.step, heat_map))


def _holds(group: list[HeatRow], place: tuple[str, str, str]) -> bool:
    """Return whether a row of this place is in the group; the modules of one are cut alike."""
    head = group[0]
    path = head.module and f"{head.module}."
    is_below = f"{place[2]}.".startswith(path)
    return (head.process, head.kind) == place[:2] and is_below


def spread(heat_map: HeatMap, first: Divergence | None) -> str:
    """Return in one sentence where two runs begin to differ, and from which step on everything
    does: "first gradient blocks.3, then everything from step 44 on". Empty if nothing differs."""
    drawn = layout(heat_map, first, _ROWS, COLUMNS)
    starts = {name: at[0] for name, cells in drawn.rows if (at := _differing(cells))}
    if not starts:
        return ""
    begin = (
        drawn.rows[drawn.first[0]][0]
        if drawn.first
        else min(starts, key=starts.__getitem__)
    )
    last = max(len(cells) for _, cells in drawn.rows) - 1
    same = max(cells.rfind(SAME) for _, cells in drawn.rows)
    if same < last and not drawn.more:
        return (
            f"first {begin}, then everything from step {max(0, same) * drawn.each:,} on"
        )
    parts = f"{len(starts):,} of {len(drawn.rows) + drawn.more:,} parts of the training"
    return f"first {begin}, then {parts}"


def maps(report: Report, rows: int) -> list[dict[str, object]]:
    """Return the heat map of the deterministic pair; and of the default pair, if that diverges."""
    pair = report.determinism
    floor = report.noise_floor
    drawn: list[dict[str, object]] = []
    if pair is not None:
        note = "every cell is bitwise identical" if pair.identical else growth(pair)
        opened = not pair.identical or floor is None or floor.identical
        drawn += _map("With the flags", note, pair, rows, opened=opened)
    if floor is not None and not floor.identical:
        note = (
            "Two runs without the flags (`default`): how the training varies by itself. Distances "
            "are measured at the end only."
        )
        opened = pair is not None and pair.identical
        drawn += _map("Without the flags", note, floor, rows, opened=opened)
    return drawn


def _map(
    title: str, note: str, pair: Comparison | NoiseFloor, rows: int, *, opened: bool
) -> Iterator[dict[str, object]]:
    if pair.heat_map is None or not pair.heat_map.rows:
        return
    measured = len(pair.growth) if isinstance(pair, Comparison) else 0
    # as many that at least half of them have a distance
    most = max(_FEWEST, 2 * measured) if measured else _COLUMNS
    drawn = layout(pair.heat_map, pair.first_divergence, rows, min(most, _COLUMNS))
    notes = [note] if note else []
    if measured:
        notes.append(
            f"Distances were measured by two more runs, at {measured:,} of the steps."
        )
    if drawn.each > 1:
        notes.append(
            f"Each column stands for {drawn.each:,} steps and shows the farthest of them."
        )
    if drawn.more:
        notes.append(f"{and_more(drawn.more, 'rows')} are not drawn.")
    columns = max(len(cells) for _, cells in drawn.rows)
    cell = max(4.0, min(28.0, _WIDTH / max(columns, 1)))
    yield {
        "title": title,
        "layout": drawn,
        "columns": columns,
        "cell": cell,
        # columns from one number of the axis to the next
        "tick": max(1, round(60 / cell)),
        "runs": [
            (
                name,
                [*_neighbours(drawn, cells)],
            )
            for name, cells in drawn.rows
        ],
        "table": [_summary(drawn, name, cells) for name, cells in drawn.rows],
        "notes": notes,
        "open": opened,
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
