"""What a catalog of operators says, and what changed between two, as text for a terminal, as
Markdown, and as a page for a browser.

The words here and in the templates are ours; names, messages and commands are the catalog's,
untrusted: a template escapes all that it prints.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec.structs import asdict

from repro_gate import escape
from repro_gate.ops.catalog import DEAR, ENDED, Arm, Catalog, Row
from repro_gate.ops.compare import KINDS, changes
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
_ROOMS = ("ops", "report")  # whose templates these are
_TABLES: Mapping[str, Callable[[Row], object]] = {
    "Differ even with the flags": lambda row: row.on.outcome == "differs",
    "Differ without the flags": lambda row: (
        row.off.outcome == "differs" != row.on.outcome
    ),
    "Raise with the flags": lambda row: row.outcomes == ("repeats", "raises"),
    f"Surely more than {DEAR:g} times slower with the flags": lambda row: row.dear,
    "Read memory before it is written": lambda row: "uninitialised" in row.outcomes,
    "Ended their process, or never ended": lambda row: ENDED.intersection(row.outcomes),
    "Documented by torch, and repeat here": lambda row: (
        row.documented and row.outcomes == ("repeats", "repeats")
    ),
    "Documented as raising, and do not raise here": lambda row: (
        row.documented == "raises" and row.on.outcome in ("repeats", "differs")
    ),
}


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that is shown: `facts` are (name, value), `summary` lines of our own words with
    the catalog's in them, `tables` rows of cells by title."""

    title: str
    facts: Sequence[tuple[str, object]]
    summary: Sequence[str]
    columns: tuple[str, ...] = _COLUMNS
    tables: Mapping[str, Sequence[tuple[str, ...]]]
    notes: Sequence[str] = ()


def render(page: Page, form: str, *, verbose: bool = True) -> str:
    """Return the page as `txt`, `md` or `html`; without `verbose` the first rows of each table."""

    # For HTML the engine escapes as well.
    escaped = escape.for_markdown if form == "md" else escape.for_terminal

    def safe(value: object) -> object:
        if isinstance(value, Markup):
            return value
        return escaped(escape.clip(str(value), _TEXT))

    folders = [PackageLoader(f"repro_gate.{room}", "templates") for room in _ROOMS]
    environment = Environment(
        loader=ChoiceLoader(folders),
        autoescape=form == "html",
        finalize=safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["own"] = Markup
    environment.filters["code"] = lambda text: Markup(escape.for_code_span(str(text)))
    template = environment.get_template(f"page.{form}.j2")
    return template.render(vars(page), most=_ROWS if verbose else _SHOWN, zip=zip)


def page_of(catalog: Catalog) -> Page:
    """Return the page of a catalog: what differs, raises or costs, and how that is not what torch
    documents."""
    tables = {
        title: list(_lines(filter(fits, catalog.rows)))
        for title, fits in _TABLES.items()
    }
    return Page(
        title="Which torch operators repeat their bits",
        facts=[
            *msgspec.to_builtins(catalog.platform).items(),
            ("date", catalog.date),
            ("command", catalog.command),
            ("repro-gate", catalog.repro_gate),
        ],
        summary=list(_summary(catalog)),
        tables=tables,
        notes=catalog.notes,
    )


def page_of_both(before: Catalog, after: Catalog) -> Page:
    """Return the page of what changed from one catalog to another."""
    found, (only_before, only_after) = changes(before, after)
    tables = {}
    counts = []
    for kind in KINDS:
        lines = []
        changed = [change for change in found if change.kind == kind]
        for when in ("before", "after"):
            rows = filter(None, (getattr(change, when) for change in changed))
            lines += [(when, *cells) for cells in _lines(rows)]
        tables[kind.capitalize()] = sorted(lines, key=lambda cells: cells[1:3])
        counts += [f"{len(changed):,} {kind}"] if changed else []
    nothing = "nothing changed: no row has another outcome or another price"
    summary = ["; ".join(counts) or nothing]
    if only_before or only_after:
        both = f"{only_before:,} rows of the first catalog and {only_after:,} of the second"
        summary.append(f"not compared, since the other did not measure them: {both}")
    for name, side in (("first", before), ("second", after)):
        if not side.complete:
            summary.append(f"the {name} catalog is of an interrupted measurement")
    now = asdict(after.platform)
    moved = [
        (name, f"{old} -> {now[name]}")
        for name, old in asdict(before.platform).items()
        if old != now[name]
    ]
    return Page(
        title="What changed between two catalogs of operators",
        facts=moved or [("platform", "the same")],
        summary=summary,
        columns=("when", *_COLUMNS),
        tables=tables,
    )


def _summary(catalog: Catalog) -> Iterator[str]:
    rows = catalog.rows
    cases = numbers.count(len({row.case for row in rows}), "case")
    counted = f"{numbers.count(len(rows), 'row')} of {cases}"
    interrupted = "" if catalog.complete else "; INTERRUPTED"
    yield f"{counted} in {numbers.duration(catalog.seconds)}{interrupted}"
    for flags in ("off", "on"):
        outcomes = Counter(getattr(row, flags).outcome for row in rows)
        counts = [f"{count:,} {name}" for name, count in outcomes.most_common()]
        yield f"flags {flags}: {', '.join(counts)}"
    if often := sorted(row.off.runs for row in rows if row.off.outcome == "repeats"):
        half = often[len(often) // 2]
        yield (
            f"what repeats was executed {often[0]} to {often[-1]} times, half of it {half} times "
            f"or more: at 95 % it differs in {numbers.excluded(half):.0f}% of executions at most"
        )


def _lines(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for the rows of one case and direction with the same outcomes, in any dtype."""
    groups = defaultdict[tuple[str, ...], list[Row]](list)
    for row in rows:
        key = (row.case, row.direction, *row.outcomes)
        groups[key].append(row)
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
