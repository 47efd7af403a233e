"""What the catalog of this machine (`repro-gate ops`) says of the operators that a training asks
for: evidence for the noise floor, for the cost and for the checklist. The control noted them; the
catalog is a file of this machine's user, and is read as untrusted all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from repro_gate.diagnosis.model import Diagnosis
from repro_gate.errors import UsageError
from repro_gate.escape import listed
from repro_gate.ops.catalog import Catalog, Row, cached_path, platform_of, read
from repro_gate.report.model import Reason
from repro_gate.trace.model import Trace

_FEW = 5  # operators that a note names
_WORST = ("differs", "raises")  # outcomes that count before all others


class Known(NamedTuple):
    """The row of an operator that a training asks for, the most telling of several. `mixed`: others
    of the same operator came to something else, and the training's own may be any of them."""

    row: Row
    mixed: bool

    @property
    def name(self) -> str:
        row = self.row
        return f"{row.operator} ({row.dtype}, {row.direction}){' in some forms' * self.mixed}"

    def __str__(self) -> str:
        row = self.row
        cost = f", {row.price} times the time" if row.price else ""
        return f"{self.name}: {row.off} without the flags; {row.on} with them{cost}"


# what a note is about, whichever form of the operator the training has
_GROUPS: dict[str, Callable[[Known], bool]] = {
    "operators of this training that differ on this machine without the flags": lambda item: (
        item.row.off.outcome == "differs"
    ),
    "without a deterministic form": lambda item: (
        not item.mixed and item.row.on.outcome == "raises" != item.row.off.outcome
    ),
    "slower with the flags": lambda item: item.row.dear and not item.mixed,
}


class Lookup(NamedTuple):
    """What was found: lines for the check of the operators, and notes for the report."""

    catalog: Catalog | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[Reason, ...] = ()


def look_up(
    traces: Iterable[Trace], machine: Mapping[str, str], environment: Mapping[str, str]
) -> Lookup:
    """Look up what the control's traces noted; nothing is found if it noted no operator, or this
    platform has no catalog."""
    noted = [trace for trace in traces if trace.dispatched]
    if not noted:
        return Lookup()
    path = cached_path(environment, platform_of(noted[0].facts, machine))
    if path is None or not path.is_file():
        return Lookup()
    try:
        catalog = read(path)
    except UsageError as error:
        return Lookup(notes=(Reason("ops/unreadable", str(error), error.remedy),))
    operators = dict.fromkeys(item[:4] for trace in noted for item in trace.dispatched)
    known = []
    for name, dtype, phase, form in operators:
        rows = rows_of(catalog, name, dtype, phase)
        # All of them if the catalog has none of this form.
        if rows := [row for row in rows if row.form == form] or rows:
            known.append(_most_telling(rows))
    lines = dict[str, None]()
    parts = []
    for words, fits in _GROUPS.items():
        if items := list(filter(fits, known)):
            lines |= dict.fromkeys(map(str, items))
            names = list(dict.fromkeys(item.name for item in items))
            parts.append(f"{words}: {listed(names, _FEW)}")
    looked_up = (
        f"{len(known)} of {len(operators)} operators by dtype, pass and form are in this machine's "
        f"catalog of {catalog.date[:10]}"
    )
    remedy = "`random-state/operators` has a line for each; `repro-gate ops` measures them again"
    notes = (Reason("ops/known", "; ".join(parts), remedy),) if parts else ()
    return Lookup(catalog, (*lines, looked_up), notes)


def cited(diagnosis: Diagnosis | None, lookup: Lookup) -> Diagnosis | None:
    """Return the diagnosis with the catalog's row of the operator that it names."""
    if diagnosis is None or lookup.catalog is None or not diagnosis.op:
        return diagnosis
    name = diagnosis.op.replace("::", ".")
    rows = rows_of(lookup.catalog, name)
    if not rows:
        return diagnosis
    line = f"this machine's catalog: {_most_telling(rows)}"
    return replace(diagnosis, evidence=(*diagnosis.evidence, line))


def rows_of(
    catalog: Catalog, kernel: str, dtype: str = "", direction: str = ""
) -> list[Row]:
    """Return the rows about one dispatched operator: `aten.index_put_.default`, or without its
    overload. In place or not is one kernel. No dtype, or no direction: any."""
    operator = _in_place_or_not(kernel)
    found = []
    for row in catalog.rows:
        own = _in_place_or_not(row.kernel)
        is_it = row.kernel and operator in (own, own.rpartition(".")[0])
        if is_it and dtype in ("", row.dtype) and direction in ("", row.direction):
            found.append(row)
    return found


@cache
def _in_place_or_not(kernel: str) -> str:
    """Return `aten.index_put.default` for `aten.index_put_.default`."""
    return re.sub(r"_(?=\.|$)", "", kernel)


def _most_telling(rows: Sequence[Row]) -> Known:
    def weight(row: Row) -> tuple[bool, bool, float]:
        off, on = (outcome in _WORST for outcome in row.outcomes)
        return off, on, row.ratio

    return Known(max(rows, key=weight), len({row.outcomes for row in rows}) > 1)
