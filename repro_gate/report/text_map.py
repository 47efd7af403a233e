"""The heat map as text, modules by steps: for the job's summary, the comment and a terminal.

GitHub takes inline SVG and images in `data:` addresses out of summaries and comments, so there the
map can only be text. Block characters are as wide as letters in every monospaced font, which
coloured squares are not.
"""

from __future__ import annotations

from repro_gate.compare.heat_map import ABSENT, LEVELS, SAME, UNKNOWN
from repro_gate.compare.model import Divergence, HeatMap
from repro_gate.escape import and_more
from repro_gate.report.map_layout import layout

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
