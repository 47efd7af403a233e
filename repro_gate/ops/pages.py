"""What a catalog of operators says, and what changed between two, as text for a terminal, as
Markdown, and as a page for a browser.

The words here and in the templates are ours; names, messages and commands are the catalog's,
untrusted: a template escapes all that it prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate import escape
from repro_gate.ops.catalog import DEAR, Arm, Catalog, Platform, Row
from repro_gate.ops.compare import KINDS, Change, changes
from repro_gate.report import numbers

_TEXT = 300  # characters of one cell
_SHOWN = 25  # rows of one table on a terminal
_ROWS = 2_000  # elsewhere
_COMMONEST = 3
_ENDED = {"crash", "timeout"}
SMALL = 1_000  # elements of the largest input
_COLUMNS = (
    "case",
    "direction",
    "dtypes",
    "flags off",
    "flags on",
    "time on / off",
    "torch documents",
)
_ESCAPES: dict[str, Callable[[str], str]] = {
    "txt": escape.for_terminal,
    "md": escape.for_markdown,
    "html": escape.for_terminal,  # and by the engine
}


_TABLES: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("Differ even with the flags", lambda row: row.on.outcome == "differs"),
    ("Differ without the flags", lambda row: row.outcomes[0] == "differs" != row.outcomes[1]),
    ("Raise with the flags", lambda row: row.outcomes == ("repeats", "raises")),
    (f"Surely more than {DEAR:g} times slower with the flags", lambda row: row.dear),
    ("Read memory before it is written", lambda row: "uninitialised" in row.outcomes),
    ("Ended their process, or never ended", lambda row: not _ENDED.isdisjoint(row.outcomes)),
    (
        "Documented by torch, and repeat here",
        lambda row: bool(row.documented) and row.outcomes == ("repeats", "repeats"),
    ),
    (
        "Documented as raising, and do not raise here",
        lambda row: row.documented == "raises" and row.on.outcome in ("repeats", "differs"),
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

    def safe(value: object) -> object:
        if isinstance(value, Markup | int):
            return value
        return _ESCAPES[form](escape.clip(str(value), 2 * _TEXT))

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
    environment.filters.update(own=Markup, code=lambda value: Markup(escape.for_code_span(value)))
    most = _ROWS if verbose else _SHOWN
    return environment.get_template(f"page.{form}.j2").render(vars(page), most=most, zip=zip)


def page_of(catalog: Catalog) -> Page:
    """Return the page of a catalog: what differs, raises or costs, and how that is not what torch
    documents."""
    return Page(
        title="Which torch operators repeat their bits",
        facts=[
            *_platform(catalog.platform),
            ("date", catalog.date),
            ("command", catalog.command),
            ("repro-gate", catalog.repro_gate),
        ],
        summary=list(_summary(catalog)),
        tables={title: list(_lines(filter(fits, catalog.rows))) for title, fits in _TABLES},
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
    old, new = (dict(_platform(side.platform)) for side in (before, after))
    moved = [
        (name, f"{old.get(name, '(none)')} -> {new.get(name, '(none)')}")
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
    return Page(
        title="What changed between two catalogs of operators",
        facts=moved or [("platform", "the same")],
        summary=lines,
        columns=("case", "direction", "dtypes", "flags", "before", "after"),
        tables={
            kind.capitalize(): _changed(change for change in found if change.kind == kind)
            for kind in KINDS
        },
    )


def _changed(found: Iterable[Change]) -> list[tuple[str, ...]]:
    """Return a line for each case that changed in one way, with its dtypes."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for change in found:
        row = change.after or change.before
        assert row is not None
        sides = (_side(side, change) for side in (change.before, change.after))
        key = (row.case, row.direction, change.flags, *sides)
        merged.setdefault(key, []).append(row.dtype)
    return [(case, way, ", ".join(of), *rest) for (case, way, *rest), of in merged.items()]


def _side(row: Row | None, change: Change) -> str:
    if row is None or change.kind in ("dearer", "cheaper"):
        return _price(row)
    if change.flags:
        return _arm([row.off if change.flags == "off" else row.on])
    return ", ".join(row.outcomes)


def _platform(platform: Platform) -> Iterator[tuple[str, str]]:
    for name in Platform.__struct_fields__:
        if value := getattr(platform, name):
            yield name, str(value)


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
    # how often what repeats was executed, the commonest counts first, and what that excludes
    counts = Counter(row.off.runs for row in rows if row.off.outcome == "repeats").most_common()
    if counts:
        often = ", ".join(
            f"{runs} executions in {numbers.count(those, 'row')} (at most "
            f"{numbers.percent(numbers.excluded(runs), signed=False)})"
            for runs, those in counts[:_COMMONEST]
        )
        yield f"what repeats, and the share that may differ all the same, at 95 %: {often}"
    if small := sum(0 < row.elements < SMALL for row in rows):
        few = f"{numbers.count(small, 'row')} of samples below {SMALL:,} elements"
        yield f"{few}: too small for a kernel to split its work"


def _lines(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for the rows of one case and direction with the same outcomes, in any dtype."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.case, row.direction, *row.outcomes), []).append(row)
    for group in groups.values():
        dearest = max(group, key=lambda row: row.price.ratio if row.price is not None else 0.0)
        yield (
            dearest.case,
            dearest.direction,
            ", ".join(row.dtype for row in group),
            _arm([row.off for row in group]),
            _arm([row.on for row in group]),
            _price(dearest),
            dearest.documented,
        )


def _arm(group: Sequence[Arm]) -> str:
    """Return the outcome that these arms share, and how far it went: `differs (in 5 of 9 runs, 3
    ULP)`, `repeats (9 runs)`."""
    worst = max(group, key=lambda arm: (arm.differing, arm.max_ulp or 0))
    if worst.outcome == "differs":
        far = max((arm.max_ulp for arm in group if arm.max_ulp is not None), default=None)
        ulps = "" if far is None else f", {numbers.ulps(far)}"
        return f"differs (in {worst.differing} of {worst.runs} runs{ulps})"
    if worst.outcome == "repeats":
        return f"repeats ({numbers.count(min(arm.runs for arm in group), 'run')})"
    return worst.outcome + (f" ({worst.message})" if worst.outcome in _ENDED else "")


def _price(row: Row | None) -> str:
    """Return `2.40 (1.90 to 3.00)` times; nothing if it was not timed."""
    if row is None or row.price is None:
        return ""
    return f"{row.price.ratio:.2f} ({row.price.low:.2f} to {row.price.high:.2f})"
