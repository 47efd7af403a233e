"""Where two runs differ over the whole training: modules by steps, and how far apart they are where
that was measured. Pure.

A cell is one character: blank where nothing was recorded, `.` bitwise identical, `?` different by a
distance that is not known, else the place in LEVELS of floor(log2(ULP)): of the cell's tensors the
largest, as ||a - b|| / ||a|| over the dtype's epsilon. The largest ULP of any element says less:
one that crosses zero is 2^31 values away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from repro_gate.compare.distances import differs, distance_of, finite, with_distance
from repro_gate.compare.model import Comparison, Distance, Divergence, GrowthPoint, HeatMap, HeatRow
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.model import Trace

# one for each power of two of a 64-bit ULP
LEVELS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"
ABSENT, SAME, UNKNOWN = " ", ".", "?"
_ORDER = ABSENT + SAME + UNKNOWN + LEVELS  # of cells, the farthest apart last
COLUMNS, ROWS = 100, 200  # at most, beside the column of the initial state
PARTS = 16  # of a module's path: names are untrusted
# in the order in which a step records them
KINDS = (
    "rng",
    "batch",
    "loss",
    "gradient",
    "parameter",
    "optimizer",
    "buffer",
)
_EPSILON = {
    "float64": 2.0**-52,
    "float": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
# kinds whose names are a module's path and the name of a tensor
_OF_PARAMETER = (
    "gradient",
    "parameter",
    "buffer",
)

Key = tuple[str, Any, str]  # process, kind, name
Place = tuple[str, Any, str]  # process, kind, module


class Marks:
    """Which quantities were recorded and which differed, by column: a bit for each."""

    def __init__(self, steps: int) -> None:
        # as few steps in a column as give at most COLUMNS
        self.steps, self.width = steps, max(1, -(-steps // COLUMNS))
        self.tables: dict[
            tuple[str, str, int], tuple[tuple[Row, ...], int]
        ] = {}  # the rows are held, so that no other has their id
        self.differing: dict[Key, int] = {}
        self.levels: dict[tuple[Key, int], int] = {}

    def saw(self, label: str, block: Block) -> None:
        key = (label, block.kind, id(block.rows))
        self.tables[key] = (
            block.rows,
            self.tables.get(key, ((), 0))[1] | 1 << self.column(block.step),
        )

    def differs(self, label: str, item: Divergence) -> None:
        key, column = (label, item.kind, item.name), self.column(item.step)
        self.differing[key] = self.differing.get(key, 0) | 1 << column
        # of a loss, and of other numbers
        if item.values is not None and (found := with_distance(item, {})).measured:
            self.levels[key, column] = max(
                self.levels.get((key, column), 0), _ulps(item.dtype, found)
            )

    def leave_out(self, kind: str) -> None:
        """Without this kind: what differs in it does not matter, and it is not identical either."""
        self.tables = {key: table for key, table in self.tables.items() if key[1] != kind}
        self.differing = {key: columns for key, columns in self.differing.items() if key[1] != kind}

    def column(self, step: int) -> int:
        return column_of(step, self.steps, self.width)


def column_of(step: int, steps: int, width: int) -> int:
    """The column of a step: 0 is the state before the first; what comes after the last counts as
    the last."""
    return 0 if step < 0 else 1 + min(step, max(steps - 1, 0)) // width


def worst(cells: str) -> str:
    """The cell that stands for several: the farthest apart, then what differs, then what is
    identical."""
    return max(cells, key=_ORDER.index)


def deepest_fitting(modules: Collection[tuple[str, ...]], most: int) -> int | None:
    """To how many parts the paths of modules, each behind its process and kind, are cut so that at
    most so many are left; None where even without them there are more."""
    deepest = max(map(len, modules), default=2) - 2
    return next(
        (
            parts
            for parts in range(deepest, -1, -1)
            if len({module[: parts + 2] for module in modules}) <= most
        ),
        None,
    )


def heat_map(marks: Marks) -> HeatMap:
    """The map: rows in order of execution, module names cut to as many parts as give at most ROWS
    rows."""
    seen: dict[Key, int] = {}
    for (label, kind, _), (rows, columns) in marks.tables.items():
        for row in rows:
            seen[label, kind, row[0]] = seen.get((label, kind, row[0]), 0) | columns
    for key, columns in marks.differing.items():  # recorded in the second run only
        seen[key] = seen.get(key, 0) | columns
    modules = {(label, kind, *_module(kind, name)) for label, kind, name in seen}
    depth = deepest_fitting(modules, ROWS) or 0
    count = column_of(marks.steps, marks.steps, marks.width) + 1 if marks.steps else 1
    found: dict[Place, tuple[int, int, int]] = {}
    for key, columns in seen.items():
        tensors, recorded, differing = found.get(place := place_of(key, depth), (0, 0, 0))
        found[place] = tensors + 1, recorded | columns, differing | marks.differing.get(key, 0)
    labels = list(dict.fromkeys(label for label, _, _ in found))
    drawn = tuple(
        HeatRow(*place, tensors, _cells(recorded, differing, count))
        for place, (tensors, recorded, differing) in sorted(
            found.items(), key=lambda item: (labels.index(item[0][0]), KINDS.index(item[0][1]))
        )
    )
    found_map = HeatMap(steps=marks.steps, width=marks.width, depth=depth, rows=drawn)
    return _coloured(found_map, ((key, column, ulp) for (key, column), ulp in marks.levels.items()))


def measured_over_steps(
    comparison: Comparison, second: Mapping[str, Trace], *, again: bool
) -> Comparison:
    """The comparison with what its second run measured beside the first in the map's colours; of a
    pair that was done `again` for it, the growth too."""
    drawn = comparison.heat_map
    if drawn is None:
        return comparison
    apart = [
        (label, item)
        for label, trace in second.items()
        for item in trace.distances
        if differs(item)
    ]
    colours = (
        (
            (label, item.kind, item.name),
            column_of(item.step, drawn.steps, drawn.width),
            _ulps(item.dtype, distance_of(item)),
        )
        for label, item in apart
    )
    return replace(
        comparison, heat_map=_coloured(drawn, colours), growth=_growth(second) if again else ()
    )


def _growth(second: Mapping[str, Trace]) -> tuple[GrowthPoint, ...]:
    """For each step that was measured: ||a - b|| of all parameters as one vector, and the largest
    ULP of anything."""
    by_step: dict[int, list[Measured]] = {}
    for trace in second.values():
        for item in trace.distances:
            by_step.setdefault(item.step, []).append(item)
    found = []
    for step, items in sorted(by_step.items()):
        gaps = [item.l2 for item in items if item.kind == "parameter"]
        norms = [gap for gap in gaps if gap is not None]
        ulps = [item.max_ulp for item in items if item.max_ulp is not None]
        whole = finite(math.hypot(*norms)) if norms and len(norms) == len(gaps) else None
        found.append(GrowthPoint(step=step, weight_l2=whole, max_ulp=max(ulps, default=None)))
    return tuple(found)


def state_size(traces: Iterable[Trace], kinds: Iterable[str]) -> tuple[int, int]:
    """How many tensors of these kinds one step records at most, and how many bytes they have."""
    wanted = frozenset(kinds)
    sizes = {
        (number, kind, name): math.prod(shape) * _item_bytes(dtype)
        for number, trace in enumerate(traces)
        for kind, rows in trace.tables
        if kind in wanted
        for name, dtype, shape in rows
    }
    return len(sizes), sum(sizes.values())


def place_of(key: Key, depth: int) -> Place:
    """The row of a quantity where module names have at most `depth` parts."""
    label, kind, name = key
    return label, kind, ".".join(_module(kind, name)[:depth])


def _module(kind: str, name: str) -> list[str]:
    if kind == "optimizer":
        return (
            ["param_groups"]
            if name.startswith("param_groups.")
            else name.split(".")[:-2][:PARTS] or [name.partition(".")[0]]
        )
    if kind in _OF_PARAMETER:
        return name.split(".")[:-1][:PARTS] or [name]
    return [name] if kind == "rng" else []


def _cells(recorded: int, differing: int, count: int) -> str:
    return "".join(
        UNKNOWN if differing >> at & 1 else SAME if recorded >> at & 1 else ABSENT
        for at in range(count)
    )


def _ulps(dtype: str | None, distance: Distance) -> int:
    """How far two tensors are apart in ULP of their own scale, at least 1; 0 where that is not
    known."""
    epsilon = _EPSILON.get(dtype or "")
    if epsilon is None or distance.relative_l2 is None:
        return distance.max_ulp or 0
    return max(1, round(min(distance.relative_l2 / epsilon, 2.0**63)))


def _coloured(drawn: HeatMap, found: Iterable[tuple[Key, int, int]]) -> HeatMap:
    """The map with the largest of these distances in each cell that differs; what does not differ
    keeps its place."""
    places = {(row.process, row.kind, row.module): number for number, row in enumerate(drawn.rows)}
    cells = [list(row.cells) for row in drawn.rows]
    for key, column, ulp in found:
        number = places.get(place_of(key, drawn.depth))
        if (
            number is None
            or not ulp
            or column >= len(cells[number])
            or (now := cells[number][column]) in (SAME, ABSENT)
        ):
            continue
        level = min(ulp.bit_length() - 1, len(LEVELS) - 1)
        cells[number][column] = LEVELS[max(level, LEVELS.index(now) if now != UNKNOWN else 0)]
    return replace(
        drawn,
        rows=tuple(
            replace(row, cells="".join(line)) for row, line in zip(drawn.rows, cells, strict=True)
        ),
    )


def _item_bytes(dtype: str) -> int:
    bits = re.search(r"[0-9]+", dtype)
    return max(1, int(bits[0]) // 8) if bits and len(bits[0]) < 4 else 1
