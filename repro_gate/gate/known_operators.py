"""What the catalog of this machine (`repro-gate ops`) says of the operators that a training asks
for: evidence for the noise floor, for the cost and for the checklist. The control noted them; the
catalog is a file of this machine's user, and is read as untrusted all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from repro_gate.diagnosis.model import Diagnosis
from repro_gate.errors import UsageError
from repro_gate.escape import and_more
from repro_gate.ops.catalog import Arm, Catalog, Row, cached, platform_of, read, rows_of
from repro_gate.report import numbers
from repro_gate.report.model import Reason
from repro_gate.report.operators import DEAR
from repro_gate.runs.launch import Run

_FEW = 5  # operators that a note names
_HEDGE = "; other forms of it came to something else"
# outcomes without the flags, and with them, that count before all others
_WORST = (
    "differs",
    "raises",
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The catalog's rows of what the training asks for, one for each operator, dtype, pass and
    form: the most telling. `asked` counts all of these, those that the catalog has no row of as
    well. A row is one of `mixed` where others of the same came to something else: the training's
    own may be any of them."""

    catalog: Catalog
    asked: int
    rows: tuple[Row, ...]
    mixed: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def differing(self) -> tuple[Row, ...]:
        """What differs without the flags."""
        return tuple(row for row in self.rows if row.off.outcome == "differs")

    @property
    def refused(self) -> tuple[Row, ...]:
        """What has no deterministic form, whatever form of it the training has."""
        return tuple(
            row
            for row in self.rows
            if row.on.outcome == "raises"
            and row.off.outcome != "raises"
            and _key(row) not in self.mixed
        )

    @property
    def dear(self) -> tuple[Row, ...]:
        """What the flags make slower in whatever form the training has it, the dearest first."""
        sure = [row for row in self.rows if _key(row) not in self.mixed]
        found = [
            (row.price.ratio, row) for row in sure if row.price is not None and row.price.low > DEAR
        ]
        return tuple(row for _, row in sorted(found, key=lambda item: -item[0]))


def known_operators(
    control: Run | None, machine: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Known | None, tuple[Reason, ...]]:
    """What is known, and notes for the report. None where the control noted no operator, or no
    catalog of this platform is there."""
    noted = () if control is None else control.traces
    asked = dict.fromkeys(
        (name, dtype, phase, form)
        for trace in noted
        for name, dtype, phase, form, _ in trace.dispatched
    )
    facts = next((trace.facts for trace in noted if trace.dispatched), None)
    path = None if facts is None else cached(environment, platform_of(facts, machine))
    if path is None:
        return None, ()
    try:
        catalog = read(path)
    except UsageError as error:
        return None, (Reason("ops/unreadable", str(error), error.remedy),)
    groups = [
        rows
        for name, dtype, phase, form in asked
        if (rows := _of_form(rows_of(catalog, name, dtype, phase), form))
    ]
    chosen = [max(rows, key=_telling) for rows in groups]
    mixed = frozenset(
        _key(row) for row, rows in zip(chosen, groups, strict=True) if _disagree(rows)
    )
    known = Known(catalog=catalog, asked=len(asked), rows=tuple(chosen), mixed=mixed)
    return known, tuple(_notes(known))


def lines_of(known: Known | None) -> tuple[str, ...]:
    """For the check of the operators: a line for each that differs, has no deterministic form or is
    dear, and how many were looked up."""
    if known is None:
        return ()
    rows = dict.fromkeys((*known.differing, *known.refused, *known.dear))
    looked_up = (
        f"{len(known.rows)} of {known.asked} operators by dtype, pass and form are in this "
        f"machine's catalog of {known.catalog.date[:10]}"
    )
    return (*(said(row) + _HEDGE * (_key(row) in known.mixed) for row in rows), looked_up)


def cited(diagnosis: Diagnosis | None, known: Known | None) -> Diagnosis | None:
    """The diagnosis with the catalog's row of the operator that it names."""
    if diagnosis is None or known is None or not diagnosis.op:
        return diagnosis
    name = diagnosis.op.replace("::", ".")
    phases = {
        item.phase
        for item in diagnosis.operators
        if item.name.startswith(name) and item.same_inputs and not item.same_outputs
    }
    direction = phases.pop() if phases in ({"forward"}, {"backward"}) else None
    rows = rows_of(known.catalog, diagnosis.op, direction=direction)
    if not rows:
        return diagnosis
    hedge = _HEDGE * _disagree(rows)
    return replace(
        diagnosis,
        evidence=(
            *diagnosis.evidence,
            f"this machine's catalog: {said(max(rows, key=_telling))}{hedge}",
        ),
    )


def _disagree(rows: Sequence[Row]) -> bool:
    """Whether rows came to more than one thing, so that what one of them says may not be so of
    another."""
    return len({(row.off.outcome, row.on.outcome) for row in rows}) > 1


def _of_form(rows: list[Row], form: str) -> list[Row]:
    """Those of the same form; all of them where the catalog has none of it."""
    return [row for row in rows if row.form == form] or rows


def said(row: Row) -> str:
    """`index_put_ (accumulate) (float32, backward): without the flags it differs in 6 of 20, up to
    3 ULP; with them it repeats`."""
    price = row.price
    cost = (
        ""
        if price is None
        else f", {price.ratio:.2f} times the time [{price.low:.2f}, {price.high:.2f}]"
    )
    return (
        f"{row.operator} ({row.dtype}, {row.direction}): without the flags it {_came_to(row.off)}; "
        f"with them it {_came_to(row.on)}{cost}"
    )


def _came_to(arm: Arm) -> str:
    if arm.outcome == "differs":
        far = "" if arm.max_ulp is None else f", up to {numbers.ulps(arm.max_ulp)}"
        return f"differs in {arm.differing:,} of {arm.runs:,}{far}"
    words = {
        "repeats": f"repeats in {arm.runs:,} of {arm.runs:,}",
        "raises": "is refused by torch",
        "uninitialised": "reads unwritten memory",
    }
    return words.get(arm.outcome, f"came to `{arm.outcome}`")


def _key(row: Row) -> tuple[str, str, str]:
    return row.case, row.dtype, row.direction


def _telling(row: Row) -> tuple[bool, bool, float]:
    return (
        row.off.outcome in _WORST,
        row.on.outcome in _WORST,
        row.price.ratio if row.price is not None else 0.0,
    )


def _notes(known: Known) -> Iterable[Reason]:
    """What differs and what costs, in one note; none where there is neither."""
    parts = []
    if known.differing:
        count, verb = (
            numbers.count(len(known.differing), "operator"),
            "differs" if len(known.differing) == 1 else "differ",
        )
        may = "may " * all(_key(row) in known.mixed for row in known.differing)
        verb = "differ" if may else verb
        parts.append(
            f"{count} of this training {may}{verb} on this machine without the flags: "
            f"{_named(known.differing)}"
        )
    if known.refused:
        parts.append(f"{len(known.refused)} without a deterministic form: {_named(known.refused)}")
    if known.dear:
        priced = [
            f"{row.operator} {row.price.ratio:.1f} times slower"
            for row in known.dear[:_FEW]
            if row.price is not None
        ]
        parts.append(f"deterministic forms that cost here: {', '.join(priced)}")
    if parts:
        yield Reason(
            "ops/known",
            "; ".join(parts),
            "`random-state/operators` has a line for each; `repro-gate ops` measures them again",
        )


def _named(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(f"{row.operator} ({row.dtype}, {row.direction})" for row in rows))
    return ", ".join(names[:_FEW]) + (
        f", {and_more(len(names) - _FEW)}" if len(names) > _FEW else ""
    )
