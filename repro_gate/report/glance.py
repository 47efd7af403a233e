"""The first rows of a report. The terminal's screen, the table of a comment and two reports side by
side show them in this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from repro_gate.compare.change import Change
from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, heat_map, operators, wording
from repro_gate.report.model import Reason, Report
from repro_gate.report.wording import Phrase, phrase, say

_FEW = 3  # the most entries of a list
_DRIFT = "baseline/drift"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Lines under one label. If space is short, rows with the largest rank are dropped first.

    `is_code`: lines of code or of a log, which are cut at the edge of a screen, not folded.
    `has_section`: a section below the comment's table has the details. `reason`: the reason that
    the row shows completely.
    """

    label: str
    lines: tuple[Phrase, ...]
    rank: int
    is_code: bool = False
    has_section: bool = False
    reason: Reason | None = None


def row(label: str, rank: int, *lines: Phrase, **more: Any) -> Row:
    """Return a row without its empty lines."""
    return Row(label=label, lines=tuple(filter(None, lines)), rank=rank, **more)


def glance(report: Report) -> list[Row]:
    """Return all rows that have lines."""
    rows = *answer_rows(report), *further_rows(report), checks_row(report)
    return [item for item in rows if item.lines]


def first_rows(report: Report, most: int) -> list[Row]:
    """Return the rows of the first table: of all that no section says, those of the lowest
    ranks."""
    rows = [row for row in glance(report) if not row.has_section]
    first = sorted(rows, key=lambda row: row.rank)[:most]
    return [row for row in rows if row in first]


def further_reasons(report: Report) -> list[Reason]:
    """Return the reasons that neither the headline nor the cause nor the baseline tells."""
    first = wording.headline_reason(report)
    drifted = wording.drifted(report)
    return [
        item
        for item in report.reasons
        if (item != first or len(item.message) > wording.HEADING)
        and not (drifted and item.id == _DRIFT)
        and findings.says_more(item, report.diagnosis)
    ]


def reasons_above(report: Report, rows: Sequence[Row]) -> list[Reason]:
    """Return the reasons that the headline, the cause, the baseline or one of the rows tells."""
    left = further_reasons(report)
    shown = [row.reason for row in rows]
    return [item for item in report.reasons if item not in left or item in shown]


def answer_rows(report: Report) -> list[Row]:
    """Return the rows on why the verdict is so, where the runs diverge, and what to do."""
    why = report.diagnosis
    left = further_reasons(report)
    first = wording.headline_reason(report)
    remedies = [
        phrase("{message} ({id})", message=item.remedy, id=item.id)
        for item in report.reasons
        if item.remedy and item not in left and (why is None or item == first)
    ]
    if why is not None:
        words = why.remedy or "its page says what to try next"
        remedies.append(phrase("{message} ({page})", message=words, page=why.cause))
    change = report.change
    environments = [change_row(change)] if change and change.distributions else []
    return [
        *environments,
        *(compared_with(report) if wording.drifted(report) else ()),
        row("cause", 1, *findings.why(why)),
        row("diverges at", 1, *_divergence(report)),
        *_reasons("why", left[:1], rank=1),
        row("remedy", 1, *dict.fromkeys(remedies)),  # one for each seed
    ]


def further_rows(report: Report) -> Iterator[Row]:
    """Return the rows on weakened checks, further reasons, figures and notes."""
    weakened = report.weakened
    lines = [comparisons.weakening(item) for item in weakened[:_FEW]]
    for line in (*lines, say(and_more(len(weakened) - _FEW), "figure")):
        yield row("weakened", 1, line, has_section=True)
    yield from _reasons("also", further_reasons(report)[1:], rank=4)
    # A warning is not among the reasons.
    cause = report.diagnosis.message if report.diagnosis else ""
    warnings = [
        Reason(item.id, item.message, item.remedy)
        for item in report.checklist
        if (item.id, item.status) == (wording.ROBUST, "warn") and item.message != cause
    ]
    yield from _reasons("also", warnings, rank=2)
    legs = map(comparisons.leg, report.resume.legs if report.resume else ())
    yield row("resume", 2, wording.joined(legs, "; "))
    ways = map(comparisons.way, report.equivalences)
    yield row("equivalent", 2, wording.joined(ways, "; "))
    yield row("compared", 7, say(wording.compared(report), "message"))
    yield row("runs", 7, say(wording.bound(report), "message"))
    if not wording.drifted(report):
        yield from compared_with(report)
    yield row("loss", 2, say(wording.non_finite(report), "message"))
    yield row("noise floor", 4, wording.noise(report.noise_floor))
    doubts = comparisons.doubts(report.cost)
    largest = operators.main_cost(report.operators)
    yield row("cost", 2, comparisons.cost(report.cost), largest, *doubts)
    if report.config_hash is not None:
        line = comparisons.config_hash(report.config_hash)
        yield row("config hash", 6, line, has_section=True)
    yield from _reasons("note", report.notes, rank=5, has_section=True)


def checks_row(report: Report) -> Row:
    """Return the row on how many checks passed, the ids of the others, and what is not declared."""
    return row("checks", 2, wording.checks(report.checklist))


def _reasons(
    label: str, reasons: Sequence[Reason], rank: int, **more: Any
) -> Iterator[Row]:
    """Return a row for each of the first reasons, with its remedy, and a row on how many more there
    are."""
    for item in reasons[:_FEW]:
        message = phrase("{id}: {message}", id=item.id, message=item.message)
        remedy = phrase("{figure} {message}", figure="remedy:", message=item.remedy)
        yield row(
            label, rank, message, remedy if item.remedy else (), reason=item, **more
        )
    left = and_more(len(reasons) - _FEW)
    yield row(label, rank, say(left, "message"), has_section=True)


def _divergence(report: Report) -> Iterator[Phrase]:
    pair = report.determinism
    if pair is None or pair.identical:
        return
    first = pair.first_divergence
    yield wording.where_and_how_far(first)
    yield wording.spread(pair)
    if pair.heat_map is not None:
        yield say(heat_map.spread(pair.heat_map, first), "message")
    seeds = wording.seeds(report)
    yield say(seeds and f"seeds: {seeds}")


def compared_with(report: Report) -> Iterator[Row]:
    """Return the rows on the baseline and the other ref."""
    if (baseline := report.baseline) is not None:
        lines = comparisons.baseline_lines(baseline, _FEW)
        yield row("baseline", 2, *lines[: 1 + min(len(baseline.outside), _FEW)])
    if (change := report.change) is not None and not change.distributions:
        yield change_row(change)
    if report.against is not None:
        lines = comparisons.against_lines(report.against, 0)
        yield row("against", 3, *lines[:2])


def change_row(change: Change) -> Row:
    """Return the row on how large the change is, and what it does to each metric."""
    size = wording.size_of(change)
    line = phrase("{name}: {message}", name=change.beside, message=size)
    worst_first = sorted(change.effects, key=lambda item: item.result == "none-shown")
    effects = (say(wording.effect(item), "message") for item in worst_first[:_FEW])
    left = say(and_more(len(change.effects) - _FEW, "metric"))
    return row("change", 1, line, *effects, left)
