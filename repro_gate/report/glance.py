"""The first rows of a report. The terminal's screen, the table of a comment and two reports side by
side show them in this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, wording
from repro_gate.report.model import Reason, Report
from repro_gate.report.wording import Phrase, phrase, say

_REASONS, _FEW = 4, 3  # the most reasons shown, and the most entries of other lists
_ROBUST = "random-state/robust"
_DRIFT = "baseline/drift"
_LINES_OF = {"drift": 5, "changed": 1}  # status of a baseline -> lines of detail


@dataclass(frozen=True, kw_only=True)
class Row:
    """Lines under one label. If space is short, rows with the largest rank are dropped first.

    `most`: lines on a screen. `form`: `fold` breaks long lines, `cut` shortens them and keeps the
    last lines, `whole` leaves them unbroken to be copied. `has_section`: a section below the
    comment's table has the details. `reason`: the reason that the row shows completely.
    """

    label: str
    lines: tuple[Phrase, ...]
    rank: int
    most: int = 2
    form: str = "fold"
    has_section: bool = False
    reason: Reason | None = None


def row(label: str, rank: int, *lines: Phrase, **more: Any) -> Row:
    """Return a row without its empty lines."""
    return Row(label=label, lines=tuple(filter(None, lines)), rank=rank, **more)


def glance(report: Report, known: Sequence[Reason] = ()) -> list[Row]:
    """Return all rows that have lines. Reasons in `known` are already in the heading."""
    further = further_rows(report, known)
    rows = *answer_rows(report, known), *further, checks_row(report)
    return [item for item in rows if item.lines]


def telling(report: Report, known: Sequence[Reason] = ()) -> list[Reason]:
    """Return the reasons that add something to the headline and the cause."""
    drifted = wording.drifted(report)
    return [
        item
        for item in report.reasons
        if findings.says_more(item, report.diagnosis)
        and item not in known
        and not (drifted and item.id == _DRIFT)
    ]


def answer_rows(report: Report, known: Sequence[Reason] = ()) -> list[Row]:
    """Return the rows on why the verdict is so, where the runs diverge, and what to do."""
    why = report.diagnosis
    reasons = telling(report, known)
    if why is not None:
        words = why.remedy or "its page says what to try next"
        remedy = phrase("{message} ({page})", message=words, page=why.cause)
    else:  # the remedy of the first reason
        first = next(iter((*known, *reasons, *report.reasons)), None)
        remedy = say(first.remedy if first else "", "message")
    return [
        *(compared_with(report) if wording.drifted(report) else ()),
        row(
            "cause",
            1,
            *findings.why(why),
            most=7,
        ),
        row(
            "diverges at",
            1,
            *_divergence(report),
            most=4,
        ),
        *_reasons(
            "why",
            reasons[:1],
            rank=1,
            remedies=why is not None,
        ),
        row(
            "remedy",
            1,
            remedy,
            most=4,
        ),
    ]


def further_rows(report: Report, known: Sequence[Reason] = ()) -> Iterator[Row]:
    """Return the rows on weakened checks, further reasons, figures and notes."""
    weakened = report.weakened
    lines = [comparisons.weakening(item) for item in weakened[:_FEW]]
    for line in (*lines, say(and_more(len(weakened) - _FEW), "figure")):
        yield row("weakened", 1, line, has_section=True)
    yield from _reasons(
        "also",
        telling(report, known)[1:],
        _REASONS - 1,
        rank=4,
    )
    # A warning is not among the reasons.
    robust = (
        item for item in report.checklist if (item.id, item.status) == (_ROBUST, "warn")
    )
    warnings = [Reason(item.id, item.message, item.remedy) for item in robust]
    yield from _reasons("also", warnings, rank=2)
    passed = report.verdict == "pass"
    if passed:
        yield row(
            "resume",
            2,
            say(wording.resume(report.resume), "message"),
        )
        yield row("equivalent", 2, say(wording.equivalent(report), "message"))
        yield row(
            "compared",
            7,
            say(wording.compared(report), "message"),
        )
        yield row(
            "runs",
            7,
            say(wording.bound(report), "message"),
        )
    if not wording.drifted(report):
        yield from compared_with(report)
    yield row(
        "loss",
        2,
        say(wording.non_finite(report), "message"),
    )
    if passed or (report.noise_floor is not None and not wording.diverged(report)):
        yield row(
            "noise floor",
            4,
            wording.noise(report.noise_floor),
            most=3,
        )
    cost = report.cost
    if passed or cost is not None:
        lines = [comparisons.cost(cost), comparisons.doubt(cost)]
        yield row("cost", 2, *lines, most=3)
    is_good = passed or report.verdict == "recorded"
    if is_good and (hashed := report.config_hash) is not None:
        line = comparisons.config_hash(hashed)
        yield row("config hash", 6, line, has_section=True)
    yield from _reasons("note", report.notes, rank=5)


def checks_row(report: Report) -> Row:
    """Return the row on how many checks passed, the ids of the others, and what is not declared."""
    return row("checks", 2, wording.checks(report.checklist), most=3)


def _reasons(
    label: str,
    reasons: Sequence[Reason],
    number: int = _REASONS,
    *,
    rank: int,
    remedies: bool = True,
) -> Iterator[Row]:
    """Return a row for each of the first `number` reasons, with its remedy if `remedies`, and a row
    on how many more there are."""
    is_note = label == "note"
    for item in reasons[:number]:
        yield row(
            label,
            rank,
            phrase("{id}: {message}", id=item.id, message=item.message),
            phrase("{figure} {message}", figure="remedy:", message=item.remedy)
            if item.remedy and remedies
            else (),
            most=2 if is_note else 6,
            has_section=is_note,
            reason=item,
        )
    more = and_more(len(reasons) - number, "notes" if is_note else "reasons")
    yield row(label, rank, say(more, "message"), has_section=True)


def _divergence(report: Report) -> Iterator[Phrase]:
    pair = report.determinism
    if pair is None or pair.identical:
        return
    if (first := pair.first_divergence) is not None:
        # Show both values, if they are short, and the largest distance of one element.
        far = wording.how_far(replace(first, l2=None, relative_l2=None))
        yield phrase("{}: {}" if far else "{}", wording.where(first), far)
    yield wording.spread(pair)
    if seeds := wording.seeds(report):
        yield say(f"seeds: {seeds}")


def compared_with(report: Report) -> Iterator[Row]:
    """Return the rows on the baseline and the other ref, with the differences."""
    if (baseline := report.baseline) is not None:
        lines = comparisons.baseline_lines(baseline, _FEW)
        lines = lines[: 1 + _LINES_OF.get(baseline.status, 0)]
        yield row("baseline", 2, *lines, most=6)
    if report.against is not None:
        lines = comparisons.against_lines(report.against, 1)[:4]
        yield row("against", 3, *lines, most=5)
