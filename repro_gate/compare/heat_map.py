"""Makes the map of where two runs differ over the whole training: modules by steps, with distances
where they were measured. Pure.

A cell is one character: blank where nothing was recorded, `.` bitwise identical, `?` different by a
distance that is not known, else the place in LEVELS of floor(log2(ULP)): of the cell's tensors the
largest, as ||a - b|| / ||a|| over the dtype's epsilon. The largest ULP of any element says less:
one that crosses zero is 2^31 values away.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from repro_gate.compare.distances import (
    MANTISSA,
    Processes,
    measured_differences,
    with_distance,
)
from repro_gate.compare.model import KINDS, Divergence, HeatMap, HeatRow, Tally
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Row
from repro_gate.trace.model import Trace

# one for each power of two of a 64-bit ULP
LEVELS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"
ABSENT = " "
SAME = "."
UNKNOWN = "?"
_FARTHEST_LAST = ABSENT + SAME + UNKNOWN + LEVELS  # of cells
COLUMNS, ROWS = 100, 40  # at most, beside the column of the initial state
PARTS = 16  # of a module's path: names are untrusted
# dtype -> that of its parts
_PARTS = {"float": "float64", "complex128": "float64", "complex64": "float32"}
# kind, in the order in which a step records them -> parts of a name behind the module's path; None:
# it belongs to no module
_PARTS_BEHIND = {
    "rng": 0,
    "batch": None,
    "loss": None,
    "gradient": 1,
    "parameter": 1,
    "optimizer": 2,
    "buffer": 1,
}
ORDER = tuple(_PARTS_BEHIND)

Key = tuple[str, Any, str]  # process, kind, name
Place = tuple[str, Any, str]  # process, kind, module


class Marks:
    """Counts what was recorded and what differed, without visiting each row of equal blocks. Each
    column of the map is a bit."""

    def __init__(self, steps: int) -> None:
        # as few steps for each column as give at most COLUMNS columns
        self.steps = steps
        self.width = max(1, -(-steps // COLUMNS))
        # table of rows -> its columns; the rows are held, so that no other has their id
        self._tables = dict[tuple[str, str, int], tuple[tuple[Row, ...], int]]()
        self.differing = Counter[Key]()
        # of each number and column the values that are farthest apart
        self.numbers = dict[tuple[Key, int], Divergence]()
        self.by_step = Counter[int]()
        # process and name of parameters that differ where they were last recorded
        self.parameters_at_end = set[tuple[str, str]]()
        self.unmatched: Divergence | None = None

    def saw(self, label: str, block: Block) -> None:
        """Count a block of the first run."""
        key = (label, block.kind, id(block.rows))
        _, columns = self._tables.get(key, ((), 0))
        columns |= 1 << column_of(block.step, self)
        self._tables[key] = block.rows, columns
        if self.parameters_at_end and block.kind == "parameter":
            self.parameters_at_end -= {(label, row[0]) for row in block.rows}

    def differs(self, item: Divergence) -> None:
        """Count a row that differs."""
        key = (item.process, item.kind, item.name)
        column = column_of(item.step, self)
        self.differing[key] |= 1 << column
        self.by_step[item.step] += 1
        if item.kind == "parameter":
            self.parameters_at_end.add((item.process, item.name))
        if item.detail:
            self.unmatched = self.unmatched or item
        if item.values is not None:  # a loss, or another number
            number = with_distance(item, {})
            farthest = self.numbers.get((key, column), number)
            self.numbers[key, column] = max(farthest, number, key=_ulps)

    def recorded(self) -> dict[Key, int]:
        """Return the columns of each quantity; quantities of only the second run come last."""
        columns_of = Counter[Key]()
        for (label, kind, _), (rows, columns) in self._tables.items():
            for row in rows:
                columns_of[label, kind, row[0]] |= columns
        for key, columns in self.differing.items():
            columns_of[key] |= columns
        return columns_of

    def by_kind(self) -> dict[str, Tally]:
        """Return how many distinct quantities of each kind there are, and how many differ."""
        counts = Counter(kind for _, kind, _ in self.recorded())
        differing = Counter(kind for _, kind, _ in self.differing)
        return {
            kind: Tally(counts[kind], differing[kind]) for kind in KINDS if counts[kind]
        }


def column_of(step: int, columns: Marks | HeatMap) -> int:
    """Return the column of a step: 0 is the state before the first step; a state after the last
    step belongs to its column."""
    return 0 if step < 0 else 1 + min(step, max(columns.steps - 1, 0)) // columns.width


def worst(cells: str) -> str:
    """Return the cell that summarizes several: the largest distance, else an unknown difference,
    else identical."""
    return max(cells, key=_FARTHEST_LAST.index)


def heat_map(marks: Marks) -> HeatMap:
    """Return the map: rows in order of execution, with module paths cut so that there are at most
    ROWS rows. A difference in generators alone counts neither as different nor as identical."""
    recorded = marks.recorded()
    if marks.differing and not marks.by_step:
        recorded = {key: recorded[key] for key in recorded if key[1] != "rng"}
    modules = {(label, kind, *_module(kind, name)) for label, kind, name in recorded}
    fitting = (
        parts
        for parts in range(max(map(len, modules), default=2) - 2, 0, -1)
        if len({module[: parts + 2] for module in modules}) <= ROWS
    )
    depth = next(fitting, 0)
    counts = Counter[Place]()
    any_recorded = Counter[Place]()  # columns in which one was recorded
    any_differs = Counter[Place]()
    for key, columns in recorded.items():
        place = place_of(key, depth)
        counts[place] += 1
        any_recorded[place] |= columns
        any_differs[place] |= marks.differing[key]
    labels = list(dict.fromkeys(label for label, _, _ in counts))
    width = column_of(marks.steps, marks) + 1 if marks.steps else 1
    rows = []
    for place in sorted(
        counts, key=lambda it: (labels.index(it[0]), ORDER.index(it[1]))
    ):
        cells = ""
        for column in range(width):
            same = SAME if any_recorded[place] >> column & 1 else ABSENT
            cells += UNKNOWN if any_differs[place] >> column & 1 else same
        rows.append(HeatRow(*place, counts[place], cells))
    drawn = HeatMap(steps=marks.steps, width=marks.width, depth=depth, rows=tuple(rows))
    return _with_levels(drawn, marks.numbers.values())


def coloured(drawn: HeatMap, second: Processes) -> HeatMap:
    """Return the map with the distances that its second run measured."""
    return _with_levels(drawn, (item for item, _ in measured_differences(second)))


def _with_levels(drawn: HeatMap, items: Iterable[Divergence]) -> HeatMap:
    """Return the map with the largest of these ULP in each cell that differs; other cells are
    unchanged."""
    cells = {(row.process, row.kind, row.module): list(row.cells) for row in drawn.rows}
    for item in items:
        place = place_of((item.process, item.kind, item.name), drawn.depth)
        line = cells.get(place, [])
        column = column_of(item.step, drawn)
        ulps = _ulps(item)
        if ulps and column < len(line) and line[column] not in (SAME, ABSENT):
            level = LEVELS[min(ulps.bit_length() - 1, len(LEVELS) - 1)]
            line[column] = worst(line[column] + level)
    rows = (
        replace(row, cells="".join(line))
        for row, line in zip(drawn.rows, cells.values(), strict=True)
    )
    return replace(drawn, rows=tuple(rows))


def state_size(traces: Iterable[Trace], kinds: Collection[str]) -> tuple[int, int]:
    """Return the largest number of tensors of these kinds that a step records, and their bytes."""
    sizes = {}
    for number, trace in enumerate(traces):
        for kind, rows in trace.tables:
            for name, dtype, shape in rows if kind in kinds else ():
                bits = re.search("[0-9]{1,3}", dtype)
                item = max(1, int(bits[0]) // 8) if bits else 1
                sizes[number, kind, name] = math.prod(shape) * item
    return len(sizes), sum(sizes.values())


def place_of(key: Key, depth: int) -> Place:
    """Return the row of a quantity if module paths have at most `depth` parts."""
    label, kind, name = key
    return label, kind, ".".join(_module(kind, name)[:depth])


def _module(kind: str, name: str) -> list[str]:
    behind = _PARTS_BEHIND.get(kind)  # of no module: an artifact too
    if behind is None:
        return []
    parts = name.split(".")
    count = len(parts) - behind
    if parts[0] == "param_groups":
        count = 1
    return parts[: max(count, 1)][:PARTS]


def _ulps(item: Divergence) -> int:
    """Return how far apart two tensors are, in ULP of their own scale and at least 1; 0 if that is
    unknown."""
    dtype = item.dtype or ""
    bits = MANTISSA.get(_PARTS.get(dtype, dtype))
    if bits is None or item.relative_l2 is None:
        return item.max_ulp or 0
    return max(1, round(min(item.relative_l2 * 2.0**bits, 2.0**63)))
