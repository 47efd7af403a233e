"""The heat map as text, modules by steps: for the job's summary, the comment and a terminal.

GitHub takes inline SVG and images in `data:` addresses out of summaries and comments, so there the
map can only be text. Block characters are as wide as letters in every monospaced font, which
coloured squares are not.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from repro_gate.compare.heat_map import (
    ABSENT,
    LEVELS,
    PARTS,
    SAME,
    UNKNOWN,
    column_of,
    deepest_fitting,
    place_of,
    worst,
)
from repro_gate.compare.model import Divergence, HeatMap, HeatRow
from repro_gate.escape import and_more, for_terminal

ROWS, COLUMNS = 24, 40
_LABEL = 30  # characters of a row's name
_QUIET = "·"
# below two to the power of that many ULP
_SHADES = (
    (6, "░"),
    (14, "▒"),
    (20, "▓"),
    (len(LEVELS), "█"),
)
_LEGEND = (
    "· identical   ░ below 64 ULP   ▒ below 16,384   ▓ below 1,048,576   █ more   ? by an unknown "
    "distance"
)

_Grouped = list[list[HeatRow]]


def text_map(
    heat_map: HeatMap, first: Divergence | None = None, *, rows: int = ROWS, columns: int = COLUMNS
) -> str:
    """The map in at most `rows` rows of `columns` columns, beside the initial state, with ruler and
    legend; empty where it has no rows.

    An arrow marks the row and the column of `first`; without it, of the first column that differs.
    Names are one line each, but they are untrusted text still: put it all into a code block.
    """
    groups, more = _grouped(heat_map.rows, rows)
    if not groups:
        return ""
    steps = max(0, *(len(row.cells) - 1 for row in heat_map.rows))
    width = max(1, -(-steps // columns))
    drawn = [
        (_label(group[0], len({row.process for row in heat_map.rows})), _cells(group, steps, width))
        for group in groups
    ]
    found = _first(heat_map, groups, first)
    indent = max(len(label) for label, _ in drawn) + 4
    lines = [
        f"{'→' if found is not None and number == found[0] else ' '} {label:<{indent - 4}}  {cells}"
        for number, (label, cells) in enumerate(drawn)
    ]
    if found is not None:
        # a report may name any step
        column = 0 if found[1] == 0 else 1 + (min(found[1], steps) - 1) // width
        lines.insert(0, " " * (indent + column) + "↓ first divergence")
    lines += [f"  {line}" for line in (and_more(more, "row" if more == 1 else "rows"),) if line]
    each = heat_map.width * width
    ruler = (
        "left column: before the first step; then steps 0 to "
        f"{max(heat_map.steps - 1, 0):,}" + (f", {each} a column" * (each > 1))
    )
    return "\n".join([*lines, "", ruler, _LEGEND])


def _grouped(rows: tuple[HeatRow, ...], most: int) -> tuple[_Grouped, int]:
    """The rows, those of one kind and of one beginning of the module's path together, and how many
    groups are left out.

    Paths are cut as little as gives `most` groups. Where no cut does, those that differ first stay.
    """
    places = [
        (row.process, row.kind, *(row.module.split(".", PARTS)[:PARTS] if row.module else ()))
        for row in rows
    ]
    depth = deepest_fitting(places, most) or 0
    found: dict[tuple[str, ...], list[HeatRow]] = {}
    for row, place in zip(rows, places, strict=True):
        cut = place[: 2 + depth]
        found.setdefault(cut, []).append(replace(row, module=".".join(cut[2:])))
    groups = list(found.values())
    shown = sorted(sorted(groups, key=_starts)[:most], key=groups.index)
    return shown, len(groups) - len(shown)


def _starts(group: list[HeatRow]) -> int:
    """The first column in which any row of the group differs; one behind all others where none
    does."""
    return min(
        (at for row in group for at, cell in enumerate(row.cells) if cell not in (SAME, ABSENT)),
        default=10**6,
    )


def _label(row: HeatRow, processes: int) -> str:
    whole = " ".join(
        part for part in (row.process if processes > 1 else "", row.kind, row.module) if part
    )
    return for_terminal(whole, _LABEL)


def _cells(group: list[HeatRow], steps: int, width: int) -> str:
    """The cells of several rows as those of one, `width` columns in each but the first."""
    each = [
        worst("".join(row.cells[at : at + 1] or ABSENT for row in group)) for at in range(steps + 1)
    ]
    columns = [
        *each[:1],
        *(worst("".join(each[at : at + width])) for at in range(1, steps + 1, width)),
    ]
    return "".join(_shade(cell) * len(list(run)) for cell, run in groupby(columns)).rstrip()


def _shade(cell: str) -> str:
    if cell in (ABSENT, UNKNOWN):
        return cell
    return (
        _QUIET
        if cell == SAME
        else next(shade for below, shade in _SHADES if LEVELS.index(cell) < below)
    )


def _first(heat_map: HeatMap, groups: _Grouped, first: Divergence | None) -> tuple[int, int] | None:
    """Group and column of the first divergence; None where nothing differs, or its row is not
    shown."""
    if first is not None:
        place = place_of((first.process, first.kind, first.name), heat_map.depth)
        column = column_of(first.step, heat_map.steps, heat_map.width)
        rows = (number for number, group in enumerate(groups) if _holds(group, place))
        return next(((number, column) for number in rows), None)
    starts = [(_starts(group), number) for number, group in enumerate(groups)]
    column, number = min(starts)
    return (number, column) if column < 10**6 else None


def _holds(group: list[HeatRow], place: tuple[str, str, str]) -> bool:
    """Whether a row of this place is in the group; the modules of one are cut alike."""
    head = group[0]
    return (head.process, head.kind) == place[:2] and (
        place[2] == head.module or place[2].startswith(f"{head.module}.") or not head.module
    )
