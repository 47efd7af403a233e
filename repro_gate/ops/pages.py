"""What a catalog of operators says, and what changed between two, as text for a terminal, as
Markdown, and as a page for a browser.

The words here and in the templates are ours; names, messages and commands are the catalog's,
untrusted: a template escapes all that it prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate import escape
from repro_gate.ops.catalog import DEAR, ENDED, Arm, Catalog, Platform, Row
from repro_gate.ops.compare import KINDS, Change, changes
from repro_gate.report import numbers

_TEXT = 600  # characters of one cell
_SHOWN = 25  # rows of one table on a terminal
_ROWS = 2_000  # elsewhere
_COLUMNS = (
    "case",
    "direction",
    "dtypes",
    "flags off",
    "flags on",
    "time on / off",
    "torch documents",
)
_TABLES: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("Differ even with the flags", lambda row: row.on.outcome == "differs"),
    (
        "Differ without the flags",
        lambda row: row.outcomes[0] == "differs" != row.outcomes[1],
    ),
    ("Raise with the flags", lambda row: row.outcomes == ("repeats", "raises")),
    (f"Surely more than {DEAR:g} times slower with the flags", lambda row: row.dear),
    ("Read memory before it is written", lambda row: "uninitialised" in row.outcomes),
    (
        "Ended their process, or never ended",
        lambda row: not ENDED.isdisjoint(row.outcomes),
    ),
    (
        "Documented by torch, and repeat here",
        lambda row: bool(row.documented) and row.outcomes == ("repeats", "repeats"),
    ),
    (
        "Documented as raising, and do not raise here",
        lambda row: (
            row.documented == "raises" and row.on.outcome in ("repeats", "differs")
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that is shown: `facts` are (name, value), `summary` lines of our own words with
    the catalog's in them, `tables` rows of cells by title."""

    title: str
    facts: Sequence[tuple[str, str]]
    summary: Sequence[str]
    columns: tuple[str, ...] = _COLUMNS
    tables: Mapping[str, Sequence[tuple[str, ...]]]
    notes: Sequence[str] = ()


def render(page: Page, form: str, *, verbose: bool = True) -> str:
    """Return the page as `txt`, `md` or `html`; without `verbose` the first rows of each table."""

    # for HTML the engine escapes as well
    escaped = escape.for_markdown if form == "md" else escape.for_terminal

    def safe(value: object) -> object:
        return (
            value
            if isinstance(value, Markup)
            else escaped(escape.clip(str(value), _TEXT))
        )

    templates = ("repro_gate.ops", "repro_gate.report")
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "templates") for name in templates]),
        autoescape=form == "html",
        finalize=safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        own=Markup, code=lambda value: Markup(escape.for_code_span(value))
    )
    most = _ROWS if verbose else _SHOWN
    return environment.get_template(f"page.{form}.j2").render(
        vars(page), most=most, zip=zip
    )


def page_of(catalog: Catalog) -> Page:
    """Return the page of a catalog: what differs, raises or costs, and how that is not what torch
    documents."""
    return Page(
        title="Which torch operators repeat their bits",
        facts=[
            *(
                (name, str(value))
                for name, value in msgspec.to_builtins(catalog.platform).items()
            ),
            ("date", catalog.date),
            ("command", catalog.command),
            ("repro-gate", catalog.repro_gate),
        ],
        summary=list(_summary(catalog)),
        tables={
            title: list(_lines(filter(fits, catalog.rows))) for title, fits in _TABLES
        },
        notes=catalog.notes,
    )


def page_of_both(before: Catalog, after: Catalog) -> Page:
    """Return the page of what changed from one catalog to another."""
    found, (only_before, only_after) = changes(before, after)
    counts = Counter(change.kind for change in found)
    summary = "; ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind])
    lines = [summary or "nothing changed: no row has another outcome or another price"]
    if only_before or only_after:
        both = f"{only_before:,} rows of the first catalog and {only_after:,} of the second"
        lines.append(f"not compared, since the other did not measure them: {both}")
    for name, side in (("first", before), ("second", after)):
        if not side.complete:
            lines.append(f"the {name} catalog is of an interrupted measurement")
    was = before.platform
    now = after.platform
    moved = []
    for name in Platform.__struct_fields__:
        old = getattr(was, name)
        new = getattr(now, name)
        if old != new:
            moved.append((name, f"{old} -> {new}"))
    return Page(
        title="What changed between two catalogs of operators",
        facts=moved or [("platform", "the same")],
        summary=lines,
        columns=("when", *_COLUMNS),
        tables={
            kind.capitalize(): _changed(
                [change for change in found if change.kind == kind]
            )
            for kind in KINDS
        },
    )


def _changed(changed: Sequence[Change]) -> list[tuple[str, ...]]:
    """Return the lines of what changed in one way, those before next to those after."""
    lines = []
    for when in ("before", "after"):
        rows = [row for change in changed if (row := getattr(change, when)) is not None]
        lines += [(when, *cells) for cells in _lines(rows)]
    return sorted(lines, key=lambda cells: cells[1:3])


def _summary(catalog: Catalog) -> Iterator[str]:
    rows = catalog.rows
    cases = numbers.count(len({row.case for row in rows}), "case")
    interrupted = "; INTERRUPTED: the same command goes on from there"
    yield (
        f"{numbers.count(len(rows), 'row')} of {cases} in {numbers.duration(catalog.seconds)}"
        f"{'' if catalog.complete else interrupted}"
    )
    for flags in ("off", "on"):
        outcomes = Counter(getattr(row, flags).outcome for row in rows).most_common()
        yield f"flags {flags}: {', '.join(f'{count:,} {name}' for name, count in outcomes)}"
    if often := sorted(row.off.runs for row in rows if row.off.outcome == "repeats"):
        half = often[len(often) // 2]
        yield (
            f"what repeats was executed {often[0]} to {often[-1]} times, half of it {half} times "
            f"or more: at 95 % it differs in {numbers.excluded(half):.0f}% of executions at most"
        )


def _lines(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for the rows of one case and direction with the same outcomes, in any dtype."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.case, row.direction, *row.outcomes), []).append(row)
    for group in groups.values():
        dearest = max(group, key=lambda row: row.ratio)
        yield (
            dearest.case,
            dearest.direction,
            ", ".join(row.dtype for row in group),
            str(max((row.off for row in group), key=_worse)),
            str(max((row.on for row in group), key=_worse)),
            str(dearest.price or ""),
            dearest.documented,
        )


def _worse(arm: Arm) -> tuple[int, int, int]:
    """Return how bad an outcome is among others of its kind."""
    return arm.differing, arm.max_ulp or 0, -arm.runs
