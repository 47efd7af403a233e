"""The figures of the page and the tables behind them: heat maps and growth. As data for the
template, the drawings as Markup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from repro_gate.compare.distances import gap
from repro_gate.compare.heat_map import ABSENT, LEVELS, SAME, UNKNOWN, worst
from repro_gate.compare.model import Comparison, Divergence, HeatMap, NoiseFloor
from repro_gate.report import drawing, drawn_map, numbers
from repro_gate.report.model import Report

# powers of two: two orders of one sum are a few hundred ULP apart at most, other data many
# thousands
_ROUNDING = 8


def maps(report: Report, rows: int) -> list[dict[str, object]]:
    """The heat map of the deterministic pair; and of the default pair, where that diverges."""
    found, floor = report.determinism, report.noise_floor
    drawn, room = [], rows * 2_000  # characters of each
    if (
        found is not None
        and found.comparison.heat_map is not None
        and found.comparison.heat_map.rows
    ):
        pair = found.comparison
        title = (
            "With the flags: every cell is bitwise identical"
            if pair.identical
            else "With the flags"
        )
        opened = not pair.identical or floor is None or floor.identical
        drawn.append(
            _map(
                title,
                pair.heat_map,
                pair.first_divergence,
                rows,
                "",
                room,
                open_=opened,
                measured=bool(pair.growth),
            )
        )
    if floor is not None and floor.heat_map is not None and not floor.identical:
        same = (
            "Two runs without the flags (`default`): how the training varies by itself. Distances "
            "are measured at the end only."
        )
        opened = found is not None and found.comparison.identical
        drawn.append(
            _map(
                "Without the flags",
                floor.heat_map,
                floor.first_divergence,
                rows,
                same,
                room,
                open_=opened,
            )
        )
    return drawn


def _map(
    title: str,
    given: HeatMap | None,
    first: Divergence | None,
    rows: int,
    note: str,
    room: int,
    *,
    open_: bool,
    measured: bool = False,
) -> dict[str, object]:
    assert given is not None  # the callers ask
    label = f"heat map, {title.lower()}; the table below says the same"
    svg, drawn = drawn_map.heat_map(
        replace(given, rows=given.rows[: 3 * rows]), first, label, room, measured=measured
    )
    table = []
    for row in drawn.rows:
        apart = [at for at, cell in enumerate(row.cells) if cell not in (ABSENT, SAME)]
        begin = drawn_map.steps_of(drawn, apart[0], apart[0]) if apart else ""
        recorded = sum(cell != ABSENT for cell in row.cells)
        far = drawn_map.far(worst(row.cells)) if recorded else "not recorded"
        table.append(
            (
                row.process,
                row.kind,
                row.module,
                row.tensors,
                begin,
                f"{len(apart):,} of {recorded:,}",
                far,
            )
        )
    notes = [note] if note else []
    if drawn.width > 1:
        notes.append(
            f"Coarser than it was recorded: each column stands for {drawn.width:,} steps and shows "
            "the farthest of them."
        )
    if len(given.rows) > len(drawn.rows):
        notes.append(f"The first {len(drawn.rows):,} of {len(given.rows):,} rows are drawn.")
    return {
        "title": title,
        "svg": svg,
        "table": table,
        "notes": notes,
        "open": open_,
        "differs": any(row[4] for row in table),
    }


def growth(report: Report) -> dict[str, object] | None:
    """Loss gap, weight distance and largest ULP by step; None where neither arm ever differs."""
    found, floor = report.determinism, report.noise_floor
    pair = found.comparison if found is not None else None
    losses = _gaps(pair.losses) if pair is not None and not pair.identical else []
    points = pair.growth if pair is not None else ()
    default = _gaps(floor.losses) if floor is not None and not floor.identical else []
    last = (
        max(
            pair.steps if pair is not None else 0, *(step + 1 for step, _ in (*losses, *default)), 1
        )
        - 1
    )
    weights = [(item.step, item.weight_l2) for item in points if item.weight_l2 is not None]
    ulps = [(item.step, float(item.max_ulp)) for item in points if item.max_ulp is not None]
    band = _band(floor, last)
    drawings = (
        drawing.growth("Loss gap", "", losses, default, last),
        drawing.growth("Weight distance (L2)", "", weights, band if weights else (), last),
        drawing.growth("Largest ULP", " ULP", ulps, (), last),
    )
    kept = [item for item in drawings if item is not None]
    if not kept:
        return None
    by_step: dict[int, list[str]] = {}
    for column, series in enumerate((losses, weights, ulps, default)):
        for step, value in series:
            by_step.setdefault(step, [""] * 4)[column] = numbers.small(value)
    every = max(1, -(-len(by_step) // 60))
    return {
        "said": _said(pair),
        "drawings": kept,
        "table": sorted(by_step.items())[::every],
        "floor": bool(default),
        "measured": len(points),
    }


def _said(pair: Comparison | None) -> str:
    """Whether two runs begin a rounding apart, or are another training at once; empty where the map
    does not show it."""
    drawn = pair.heat_map if pair is not None else None
    columns = (
        [worst("".join(cells)) for cells in zip(*(row.cells for row in drawn.rows), strict=False)]
        if drawn is not None
        else []
    )
    apart = [cell for cell in columns if cell not in (ABSENT, SAME)]
    if not apart or apart[0] == UNKNOWN:
        return ""
    first, last = (
        LEVELS.index(apart[0]),
        max(LEVELS.index(cell) for cell in apart if cell != UNKNOWN),
    )
    if first <= _ROUNDING:
        grows = (
            f", and grows to 2^{last}"
            if last > first + 2
            else ", and stays there"
            if last <= _ROUNDING
            else ""
        )
        return f"The divergence begins as rounding, about 2^{first} ULP apart{grows}."
    return (
        f"Where the runs first diverge they are about 2^{first} ULP apart: that is no rounding, "
        "but another training."
    )


def _band(floor: NoiseFloor | None, last: int) -> list[tuple[int, float]]:
    """The default arm's weight distance, which is measured at the end alone, over all steps."""
    return (
        [(0, floor.weight_l2), (last, floor.weight_l2)]
        if floor is not None and floor.weight_l2
        else []
    )


def _gaps(losses: Sequence[tuple[int, float, float]]) -> list[tuple[int, float]]:
    """The gaps of the losses by step; what is no number is left out."""
    by_step: dict[int, float] = {}
    for step, one, other in losses:
        by_step[step] = max(by_step.get(step, 0.0), gap(one, other))
    return [(step, largest) for step, largest in sorted(by_step.items()) if math.isfinite(largest)]
