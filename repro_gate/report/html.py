"""The Report as one static page: no script, nothing loaded from elsewhere, readable without a
stylesheet, in at most MAX_BYTES.

The template engine escapes all text, after `shown` has put it on one line with nothing hidden.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from repro_gate.checks.pages import url
from repro_gate.compare.distances import gap
from repro_gate.escape import for_address, for_terminal
from repro_gate.report import change, findings, heat_map, numbers, wording
from repro_gate.report.model import PLAIN, SCHEMA_ID, Report, Subject, View
from repro_gate.report.sections import Table, labelled, whole_report

MAX_BYTES = 1024 * 1024
# rows of a list and characters of one name, fewer where the page would be too large; a sentence has
# four times as many
_SIZES = ((200, 600), (60, 300), (15, 120))
_LONGEST = 8_000  # characters of any text
_CAUSES = 4  # whose lines are shown

_POINTS = 100  # of one line of the growth


def render(report: Report, view: View = PLAIN) -> str:
    """Return the page as text, in at most MAX_BYTES of UTF-8: what is too large is drawn coarser
    and cut shorter, and the page says so."""
    for rows, characters in _SIZES:
        page = _rendered(report, view, rows, characters)
        if len(page.encode()) <= MAX_BYTES:
            return page
    bare = Report(
        schema=SCHEMA_ID,
        verdict=report.verdict,
        tool_version="",
        started="",
        seconds=0.0,
        subject=Subject(spec="", command="", commit=None),
    )
    return _rendered(bare, PLAIN, *_SIZES[-1])


def table_page(verdict: str, headline: wording.Phrase, table: Table) -> str:
    """Return a page of one sentence and one table."""
    template = _environment(_SIZES[0][1]).get_template("table.html.j2")
    return template.render(verdict=verdict, headline=headline, table=table)


@cache
def _environment(characters: int) -> Environment:
    """Return the engine for names of so many characters at most."""

    def short(text: object) -> str:
        return for_terminal(str(text), characters)

    def prose(text: object) -> Markup:
        """Return a sentence; what its author set between `backticks` is code."""
        parts = str(escape(for_terminal(str(text), 4 * characters)))
        return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", parts))  # noqa: S704  escaped

    def on_one_line(value: object) -> str:
        if isinstance(value, Markup):
            return value
        return for_terminal(str(value), _LONGEST)

    environment = Environment(
        loader=PackageLoader("repro_gate.report", "templates"),
        autoescape=True,
        finalize=on_one_line,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=short,
        prose=prose,
        page=url,
        cause=findings.page_of,
        anchor=lambda section: re.sub("[^a-z]+", "-", section.title.lower()),
        duration=numbers.duration,
    )
    return environment


def _rendered(report: Report, view: View, rows: int, characters: int) -> str:
    why = report.diagnosis
    causes = (why, *why.also) if why else ()
    first, parts = whole_report(report, rows)
    address = for_address(view.run_url)
    return (
        _environment(characters)
        .get_template("page.html.j2")
        .render(
            report=report,
            headline=wording.headline(report),
            first=labelled(first),
            causes=[item for item in causes if item.file][:_CAUSES],
            place=findings.place,
            address=partial(findings.address, report, view),
            answer=[item for item in parts if item.kind == "answer"],
            maps=heat_map.maps(report, rows // 5),
            growth=_growth(report),
            change=change.drawing(report.change),
            colours=heat_map.COLOURS,
            below=[item for item in parts if not item.kind],
            run_url=address if address.startswith("https://") else "",
            shortened=rows != _SIZES[0][0],
        )
    )


def _growth(report: Report) -> dict[str, object]:
    """Return how far two runs are apart by step, beside the noise floor: the curves, as the figures
    that the template puts into SVG, and the rows of the table (step, loss gap with the flags and
    without, weight distance)."""
    pair = report.determinism
    floor = report.noise_floor
    losses, noise = (
        [(step, gap(one, other)) for step, one, other in item.losses]
        if item is not None and not item.identical
        else []
        for item in (pair, floor)
    )
    points = pair.growth if pair is not None else ()
    weights = [
        (item.step, item.weight_l2) for item in points if item.weight_l2 is not None
    ]
    steps = [step for step, _ in (*losses, *noise, *weights)]
    last = max([0, *steps])
    each = last // _POINTS + 1
    columns = [_by_step(series, each) for series in (losses, noise, weights)]
    curves = (
        _curve("Loss gap", columns[0], columns[1], last),
        _curve("Weight distance (L2)", columns[2], {}, last),
    )
    table = [
        (
            f"{step:,}",
            *(numbers.small(item[step]) if step in item else "" for item in columns),
        )
        for step in sorted(set().union(*columns))
    ]
    return {"curves": [item for item in curves if item is not None], "table": table}


def _by_step(series: Iterable[tuple[int, float]], each: int) -> dict[int, float]:
    """Return the largest of each `each` steps; what is no number is left out."""
    largest: dict[int, float] = {}
    for step, value in series:
        if math.isfinite(value):
            at = max(step // each * each, -1)
            largest[at] = max(largest.get(at, 0.0), value)
    return largest


def _curve(
    title: str, series: Mapping[int, float], floor: Mapping[int, float], last: int
) -> dict[str, object] | None:
    """Return a quantity by step as a line on a logarithmic axis, the noise floor as a band, points
    as shares of width and height; None if nothing is above zero."""
    powers = [
        math.log10(value) for value in (*series.values(), *floor.values()) if value > 0
    ]
    if not powers:
        return None
    low = math.floor(min(powers))
    high = math.floor(max(powers)) + 1

    def line(curve: Mapping[int, float]) -> list[tuple[float, float]]:
        return [
            ((step + 1) / (last + 1), (high - math.log10(value)) / (high - low))
            for step, value in sorted(curve.items())
            if value > 0
        ]

    ticks = range(low, high + 1, max(1, (high - low) // 4))
    return {
        "title": title,
        "powers": [((high - power) / (high - low), power) for power in ticks],
        "last": f"{last:,}",
        "band": line(floor),
        "line": line(series),
    }
