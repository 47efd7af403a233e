"""How a heat map is laid out in so many rows and columns, whoever draws it: rows of one beginning
of a module's path together, steps that share a column, and where the first divergence is.

`text_map` draws it as text, for the job's summary, the comment and a terminal. GitHub takes inline
SVG and images in `data:` addresses out of summaries and comments, so there the map can only be
text. Block characters are as wide as letters in every monospaced font, which coloured squares are
not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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

_LABEL = 30  # characters of a row's name
_FEWEST = 8  # columns that are left, at least
_NEVER = 10**6  # a column behind all others

_Grouped = list[list[HeatRow]]
ROWS, COLUMNS = 24, 40
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
    *,
    measured: bool = False,
) -> Layout:
    """Return the map in at most `rows` rows of `columns` columns, beside the initial state.
    `first` is the first divergence; without it, it is the first column that differs. If distances
    were `measured` at few of the steps that differ, columns hold more steps, so that most of them
    have one."""
    groups, more = _grouped(heat_map.rows, rows)
    steps = max(0, *(len(row.cells) - 1 for row in heat_map.rows), 0)
    width = max(1, -(-steps // columns))
    drawn = [_cells(group, steps, width) for group in groups]
    while measured and _mostly_unknown("".join(drawn)) and width * _FEWEST < steps:
        width *= 2
        drawn = [_cells(group, steps, width) for group in groups]
    found = _first(heat_map, groups, first) if groups else None
    if found is not None:  # a report may name any step
        found = found[0], 0 if found[1] == 0 else 1 + (min(found[1], steps) - 1) // width
    processes = len({row.process for row in heat_map.rows})
    labels = [_label(group[0], processes) for group in groups]
    return Layout(
        rows=tuple(zip(labels, drawn, strict=True)),
        more=more,
        first=found,
        each=heat_map.width * width,
        steps=heat_map.steps,
    )


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
    """The first column in which any row of the group differs."""
    return min(
        (at for row in group for at, cell in enumerate(row.cells) if cell not in (SAME, ABSENT)),
        default=_NEVER,
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
    later = (worst("".join(each[at : at + width])) for at in range(1, steps + 1, width))
    return "".join((*each[:1], *later))


def _mostly_unknown(cells: str) -> bool:
    unknown = cells.count(UNKNOWN)
    return unknown > len(cells) - unknown - cells.count(SAME) - cells.count(ABSENT) > 0


def _first(heat_map: HeatMap, groups: _Grouped, first: Divergence | None) -> tuple[int, int] | None:
    """Group and column of the first divergence."""
    if first is not None:
        place = place_of((first.process, first.kind, first.name), heat_map.depth)
        column = column_of(first.step, heat_map.steps, heat_map.width)
        rows = (number for number, group in enumerate(groups) if _holds(group, place))
        return next(((number, column) for number in rows), None)
    column, number = min((_starts(group), number) for number, group in enumerate(groups))
    return (number, column) if column < _NEVER else None


def _holds(group: list[HeatRow], place: tuple[str, str, str]) -> bool:
    """Whether a row of this place is in the group; the modules of one are cut alike."""
    head = group[0]
    return (head.process, head.kind) == place[:2] and (
        place[2] == head.module or place[2].startswith(f"{head.module}.") or not head.module
    )


def text_map(heat_map: HeatMap, first: Divergence | None = None) -> str:
    """Return the map with ruler and legend; empty where it has no rows.

    An arrow marks the row and the column of `first`; without it, of the first column that differs.
    Names are one line each, but they are untrusted text still: put it all into a code block.
    """
    drawn = layout(heat_map, first, ROWS, COLUMNS)
    if not drawn.rows:
        return ""
    indent = max(len(name) for name, _ in drawn.rows)
    row, column = drawn.first or (-1, 0)
    lines = [
        f"{'→' if number == row else ' '} {name:<{indent}}  {''.join(map(_shade, cells))}".rstrip()
        for number, (name, cells) in enumerate(drawn.rows)
    ]
    if drawn.first is not None:
        lines.insert(0, " " * (indent + 4 + column) + "↓ first divergence")
    if drawn.more:
        lines.append(f"  {and_more(drawn.more, 'row' if drawn.more == 1 else 'rows')}")
    ruler = f"left column: before the first step; then steps 0 to {max(drawn.steps - 1, 0):,}" + (
        f", {drawn.each} a column" * (drawn.each > heat_map.width)
    )
    return "\n".join([*lines, "", ruler, _LEGEND])


def _shade(cell: str) -> str:
    if cell in (ABSENT, UNKNOWN):
        return cell
    return (
        _QUIET
        if cell == SAME
        else next(shade for below, shade in _SHADES if LEVELS.index(cell) < below)
    )
