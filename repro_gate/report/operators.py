"""What a catalog of operators says, and what changed between two, as sections of plain cells.
`operator_pages` shows them.

The words here are ours; names, messages and sizes are the catalog's, untrusted, and are escaped
where they are shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro_gate.ops.catalog import Arm, Catalog, Platform, Row
from repro_gate.ops.changes import KINDS, Change, apart, changes, platform_changes
from repro_gate.report import numbers

_COMMONEST = 3
SMALL = 1_000  # elements of the largest input
DEAR = 1.25  # a price is told from here on, with the whole interval above
COLUMNS = (
    "case",
    "direction",
    "dtypes",
    "flags off",
    "flags on",
    "time on / off",
    "torch documents",
)
_OUTCOMES = ("repeats", "differs", "raises", "uninitialised", "crash", "timeout", "no-kernel")
_TITLES = {
    "differs": "Newly differing",
    "raises": "Newly raising",
    "dearer": "Dearer",
    "repeats": "Newly repeating",
    "raises-no-more": "No longer raising",
    "cheaper": "Cheaper",
    "outcome": "Another outcome",
    "seldom": "Differ in one of the two, too seldom to call it a change",
    "new": "New rows",
    "gone": "Rows that are gone",
}


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table. `always`: shown without a row too, since that is an answer."""

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    always: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that is shown: `facts` are (name, value), `summary` lines of our own words with
    the catalog's in them."""

    title: str
    facts: tuple[tuple[str, str], ...]
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()


def page(catalog: Catalog) -> Page:
    """A catalog: what differs, raises or costs, and how that is not what torch documents."""
    rows = catalog.rows
    differ = [row for row in rows if row.off.outcome == "differs" and row.on.outcome != "differs"]
    still = [row for row in rows if row.on.outcome == "differs"]
    raising = [row for row in rows if row.on.outcome == "raises" and row.off.outcome != "differs"]
    dear = [row for row in rows if row.price is not None and row.price.low > DEAR]
    ended = [row for row in rows if {row.off.outcome, row.on.outcome} & {"crash", "timeout"}]
    empty = [row for row in rows if "uninitialised" in (row.off.outcome, row.on.outcome)]
    quiet = [
        row for row in rows if row.documented and {row.off.outcome, row.on.outcome} == {"repeats"}
    ]
    listed = {(_bare(row), row.direction, row.documented) for row in rows if row.documented}
    names, raise_there = (
        {item[:2] for item in listed},
        {item[:2] for item in listed if item[2] == "raises"},
    )
    unlisted = [
        row
        for row in rows
        if "differs" in (row.off.outcome, row.on.outcome)
        and (_bare(row), row.direction) not in names
    ]
    refused = [
        row
        for row in rows
        if row.on.outcome == "raises" and (_bare(row), row.direction) not in raise_there
    ]
    allowed = [
        row
        for row in rows
        if row.documented == "raises"
        and row.on.outcome not in ("raises", "no-kernel", "crash", "timeout")
    ]
    missing = [entry for entry in catalog.documented if entry.case is None and entry.here]
    return Page(
        title="Which torch operators repeat their bits",
        facts=_facts(catalog),
        summary=_summary(catalog),
        sections=(
            _table(
                "Differ even with the flags",
                "No setting of torch makes these repeat.",
                still,
                always=True,
            ),
            _table(
                "Differ without the flags",
                "The flags make these repeat, or raise.",
                differ,
                always=True,
            ),
            _table("Raise with the flags", "They repeated without them.", raising),
            _table(
                "Dearer with the flags",
                f"The whole 95 % interval of the price is above {DEAR:g} times.",
                dear,
            ),
            _table(
                "Read memory before it is written",
                "What they return is not theirs to repeat.",
                empty,
            ),
            _table(
                "Ended their process, or never ended", "Measured in a process of their own.", ended
            ),
            _table(
                "Documented by torch, and repeats here",
                "On torch's list, with equal bits in every execution, off and on.",
                quiet,
            ),
            _table("Differs here, and not documented", "Not on torch's list.", unlisted),
            _table("Raises here, and not documented as raising", "The flags refuse it.", refused),
            _table("Documented as raising, and does not raise here", "", allowed),
            Section(
                title="Documented by torch, and not measured",
                about="Entries of torch's list for which there is no case.",
                columns=("entry", "torch documents"),
                rows=tuple((entry.entry, entry.says) for entry in missing),
            ),
        ),
        notes=catalog.notes,
    )


def short(catalog: Catalog) -> Section:
    """What differs without the flags, a line for each operator and pass: for a page that names a
    few."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in catalog.rows:
        if row.off.outcome == "differs":
            found.setdefault((row.operator, row.direction), []).append(row)
    lines = []
    for (operator, direction), group in found.items():
        with_flags = ", ".join(dict.fromkeys(row.on.outcome for row in group))
        dearest = max((row.price.ratio for row in group if row.price is not None), default=None)
        documented = next((row.documented for row in group if row.documented), "no")
        cost = "" if dearest is None else f"{dearest:.1f}"
        dtypes = ", ".join(dict.fromkeys(row.dtype for row in group))
        lines.append((operator, direction, dtypes, with_flags, cost, documented))
    columns = (
        "operator",
        "pass",
        "dtypes that differ",
        "with the flags",
        "time on / off, at most",
        "torch documents",
    )
    return Section(
        title="Differ without the flags", about="", columns=columns, rows=tuple(lines), always=True
    )


def compared(before: Catalog, after: Catalog) -> Page:
    """What changed from one catalog to another."""
    found = changes(before, after)
    moved = platform_changes(before.platform, after.platform)
    counts = Counter(change.kind for change in found)
    summary = [
        f"{numbers.count(counts[kind], _NOUN[kind][0], _NOUN[kind][1])}"
        for kind in KINDS
        if counts[kind]
    ]
    alone = apart(before, after)
    nothing = "nothing changed: no row has another outcome, no price's interval lies apart"
    if any(alone) and (alone[0] == len(before.rows) or alone[1] == len(after.rows)):
        nothing = "no row is in both catalogs"
    left = [f"{numbers.count(alone[0], 'row')} of the first catalog"] if alone[0] else []
    left += [f"{numbers.count(alone[1], 'row')} of the second"] if alone[1] else []
    partial = [name for name, side in (("first", before), ("second", after)) if not side.complete]
    return Page(
        title="What changed between two catalogs of operators",
        facts=tuple((name, f"{was or '(none)'} -> {now or '(none)'}") for name, was, now in moved)
        or (("platform", "the same"),),
        summary=(
            "; ".join(summary) or nothing,
            *(
                [f"not compared, since the other did not measure them: {' and '.join(left)}"]
                if left
                else []
            ),
            *(
                [f"the {' and the '.join(partial)} catalog is of an interrupted measurement"]
                if partial
                else []
            ),
        ),
        sections=tuple(
            _changed(kind, [change for change in found if change.kind == kind]) for kind in KINDS
        ),
    )


_NOUN = {
    "differs": ("newly differs", "newly differ"),
    "raises": ("newly raises", "newly raise"),
    "dearer": ("is dearer", "are dearer"),
    "repeats": ("newly repeats", "newly repeat"),
    "raises-no-more": ("no longer raises", "no longer raise"),
    "cheaper": ("is cheaper", "are cheaper"),
    "outcome": ("has another outcome", "have another outcome"),
    "seldom": (
        "differs in one of the two, too seldom to call it a change",
        "differ in one of the two, too seldom to call it a change",
    ),
    "new": ("is new", "are new"),
    "gone": ("is gone", "are gone"),
}


def _changed(kind: str, found: Sequence[Change]) -> Section:
    def key(change: Change) -> tuple[str, ...]:
        if kind in ("dearer", "cheaper"):
            return (price(change.before), price(change.after))
        return tuple(
            _both(side, change.flags) if side else "" for side in (change.before, change.after)
        )

    merged: dict[tuple[str, ...], list[str]] = {}
    for change in found:
        row = change.row
        merged.setdefault(
            (
                row.case,
                row.direction,
                f"flags {change.flags}" if change.flags else "",
                *key(change),
            ),
            [],
        ).append(row.dtype)
    rows = tuple(
        (case, way, ", ".join(dtypes), *rest) for (case, way, *rest), dtypes in merged.items()
    )
    return Section(
        title=_TITLES[kind],
        about="",
        columns=("case", "direction", "dtypes", "arm", "before", "after"),
        rows=rows,
    )


def _both(row: Row, flags: str) -> str:
    if flags:
        return arm([row.off if flags == "off" else row.on])
    return f"{row.off.outcome} off, {row.on.outcome} on"


def _facts(catalog: Catalog) -> tuple[tuple[str, str], ...]:
    given: Platform = catalog.platform
    isa = f" ({given.isa})" if given.isa else ""
    facts = {
        "torch": given.torch,
        "device": f"{given.device}: {given.device_name}{isa if given.device == 'cpu' else ''}",
        "threads": str(given.threads or ""),
        "driver": given.driver,
        "CUDA": given.cuda,
        "cuDNN": given.cudnn,
        "Python": given.python,
        "system": given.system,
        "date": catalog.date,
        "command": catalog.command,
        "repro-gate": catalog.repro_gate,
    }
    return tuple((name, value) for name, value in facts.items() if value)


def _summary(catalog: Catalog) -> tuple[str, ...]:
    rows = catalog.rows
    cases = len({row.case for row in rows})
    lines = [
        f"{numbers.count(len(rows), 'row')} of {numbers.count(cases, 'case')} in "
        f"{numbers.duration(catalog.seconds)}"
        + ("" if catalog.complete else "; INTERRUPTED: the same command goes on from there"),
        f"flags off: {_counts([row.off for row in rows])}",
        f"flags on: {_counts([row.on for row in rows])}",
        *_evidence([row.off for row in rows if row.off.outcome == "repeats"]),
    ]
    small = [row for row in rows if 0 < _elements(row.size) < SMALL]
    if small:
        lines.append(
            f"{numbers.count(len(small), 'row')} of samples below {SMALL:,} elements: too small "
            "for a kernel to split its work"
        )
    return tuple(lines)


def _evidence(repeating: Sequence[Arm]) -> Iterable[str]:
    """How often what repeats was executed, the commonest counts first, and what that excludes."""
    counts = Counter(arm.runs for arm in repeating)
    told = [
        f"{runs} executions in {numbers.count(rows, 'row')} ({_rate(runs)})"
        for runs, rows in counts.most_common(_COMMONEST)
    ]
    if told:
        others = [runs for runs, _ in counts.most_common()[_COMMONEST:]]
        rest = f", {min(others)} to {max(others)} in the others" if others else ""
        yield (
            "what repeats, with the share that could differ all the same, at 95 %: "
            f"{', '.join(told)}{rest}"
        )


def _rate(runs: int) -> str:
    return f"at most {numbers.percent(numbers.excluded(runs), signed=False)}"


def _elements(size: str) -> int:
    """Of the largest input: `32x32, 8 int64` has 1,024; 0 where no shape is known."""
    shapes = [part.split(" ")[0] for part in size.split(", ") if part]
    sides = [
        [1] if shape == "scalar" else [int(side) for side in shape.split("x") if side.isdecimal()]
        for shape in shapes
    ]
    return max((math.prod(item) for item in sides), default=0)


def _counts(arms: Iterable[Arm]) -> str:
    found = Counter[str](arm.outcome for arm in arms)
    return ", ".join(f"{found[name]:,} {name}" for name in _OUTCOMES if found[name]) or "none"


def _bare(row: Row) -> str:
    """The operator without its module and variant: `nn.functional.max_unpool2d (grad)` is on
    torch's list as `max_unpool2d`."""
    return row.operator.partition(" (")[0].rpartition(".")[2]


def _table(title: str, about: str, rows: Sequence[Row], *, always: bool = False) -> Section:
    return Section(
        title=title,
        about=about,
        columns=COLUMNS,
        rows=tuple(_line(group) for group in groups(rows)),
        always=always,
    )


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of one case and direction with the same outcomes, in any dtype, in the order in which
    they come."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.case, row.direction, row.off.outcome, row.on.outcome), []).append(row)
    return list(found.values())


def _line(group: Sequence[Row]) -> tuple[str, ...]:
    row = group[0]
    dearest = max(group, key=lambda item: item.price.ratio if item.price is not None else 0.0)
    dtypes = ", ".join(item.dtype for item in group)
    return (
        row.case,
        row.direction,
        dtypes,
        arm([r.off for r in group]),
        arm([r.on for r in group]),
        price(dearest),
        row.documented,
    )


def arm(group: Sequence[Arm]) -> str:
    """The outcome that these arms share, and how far it went: `differs (in 5 of 9 runs, 3 ULP)`,
    `repeats (9 runs)`."""
    worst = max(group, key=lambda item: (item.differing, item.max_ulp or 0))
    if worst.outcome == "differs":
        far = max((item.max_ulp for item in group if item.max_ulp is not None), default=None)
        return (
            f"differs (in {worst.differing} of {worst.runs} "
            f"runs{'' if far is None else f', {numbers.ulps(far)}'})"
        )
    if worst.outcome == "repeats":
        return f"repeats ({numbers.count(min(item.runs for item in group), 'run')})"
    if worst.outcome in ("crash", "timeout"):
        return f"{worst.outcome} ({worst.message})"
    return worst.outcome


def price(row: Row | None) -> str:
    """`2.40 (1.90 to 3.00)` times; empty where it was not timed."""
    if row is None or row.price is None:
        return ""
    given = row.price
    return f"{given.ratio:.2f} ({given.low:.2f} to {given.high:.2f})"
