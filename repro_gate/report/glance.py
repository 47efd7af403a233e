"""What is seen first of a report, a row each: the terminal's screen, the table of a comment and two
reports side by side show these rows, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more
from repro_gate.report import comparisons, findings, wording
from repro_gate.report.model import Reason, Report
from repro_gate.report.wording import Phrase, phrase, say

_REASONS, _FEW = 4, 3  # reasons, and entries of another list, that are shown
_ROBUST = "random-state/robust"
_DRIFT = "baseline/drift"
_LINES_OF = {"drift": 5, "changed": 1}  # what is behind the status of a baseline


@dataclass(frozen=True, kw_only=True)
class Row:
    """Lines under one label. The larger the rank, the sooner the row goes where room is short.

    `most`: lines on a screen. `form`: `fold` breaks long lines, `cut` ends them with an ellipsis
    and keeps the last ones, `whole` leaves them as they are to be copied. `has_section`:
    a section below the comment's table says it at length. `reason`: what the row tells whole.
    """

    label: str
    lines: tuple[Phrase, ...]
    rank: int
    most: int = 2
    form: str = "fold"
    has_section: bool = False
    reason: Reason | None = None


def glance(report: Report, known: Sequence[Reason] = ()) -> list[Row]:
    """Return all rows but those without a line. Reasons that are `known` stand in the heading."""
    rows = (
        *answer_rows(report, known),
        *further_rows(report, known),
        checks_row(report),
    )
    return [row for row in rows if row.lines]


def telling(report: Report, known: Sequence[Reason] = ()) -> list[Reason]:
    """Return the reasons that say more than the headline and the cause do."""
    drifted = wording.drifted(report)
    return [
        item
        for item in report.reasons
        if findings.says_more(item, report.diagnosis)
        and item not in known
        and not (drifted and item.id == _DRIFT)
    ]


def answer_rows(report: Report, known: Sequence[Reason] = ()) -> list[Row]:
    """Return why the verdict is what it is, where the runs diverge, and what to do."""
    why = report.diagnosis
    found = report.determinism
    first = (
        ()
        if found is None or found.identical
        else _divergence(report, found.first_divergence)
    )
    return [
        *(compared_with(report) if wording.drifted(report) else ()),
        Row(
            label="cause",
            lines=() if why is None else findings.why(why),
            rank=1,
            most=7,
        ),
        Row(label="diverges at", lines=first, rank=1, most=4),
        *_reasons("why", telling(report, known)[:1], rank=1, whole=why is not None),
        Row(label="remedy", lines=_remedy(report, why, known), rank=1, most=4),
    ]


def further_rows(report: Report, known: Sequence[Reason] = ()) -> Iterator[Row]:
    """Return what a reviewer must see besides, the figures, and what is worth knowing."""
    yield from _weakened(report)
    others = telling(report, known)[1:]
    yield from _reasons("also", others[: _REASONS - 1], rank=4)
    yield _one("also", and_more(len(others) - _REASONS + 1, "reasons"), rank=4)
    # no reason tells of a warning
    robust = (
        item for item in report.checklist if (item.id, item.status) == (_ROBUST, "warn")
    )
    warnings = [Reason(item.id, item.message, item.remedy) for item in robust]
    yield from _reasons("also", warnings, rank=2)
    passed = report.verdict == "pass"
    if passed:
        yield _one("resume", wording.resume(report.resume), rank=2)
        steps = report.determinism.steps if report.determinism else 0
        ways = wording.equivalent(report.equivalences, steps)
        yield _one("equivalent", ways, rank=2)
        yield _one("compared", wording.compared(report), rank=7)
        yield _one("runs", wording.bound(report), rank=7)
    if not wording.drifted(report):
        yield from compared_with(report)
    yield _one(
        "loss", (lost := wording.non_finite(report)) and f"not finite: {lost}", rank=2
    )
    if passed or (report.noise_floor is not None and not wording.diverged(report)):
        yield Row(
            label="noise floor",
            lines=(wording.noise(report.noise_floor),),
            rank=4,
            most=3,
        )
    if passed or report.cost is not None:
        lines = (comparisons.cost(report.cost), *comparisons.doubts(report.cost))
        yield Row(label="cost", lines=lines, rank=2, most=3)
    if passed and (hashed := report.config_hash) is not None:
        lines = (comparisons.config_hash(hashed),)
        yield Row(label="config hash", lines=lines, rank=6, has_section=True)
    yield from _reasons("note", report.notes[:_REASONS], rank=5)
    yield _one("note", and_more(len(report.notes) - _REASONS, "notes"), rank=5)


def checks_row(report: Report) -> Row:
    """Return how many checks passed, the ids of those that did not, and what was not declared."""
    counted = wording.checks(report.checklist)
    return Row(label="checks", lines=(counted,) if counted else (), rank=2, most=3)


def _one(label: str, words: str, rank: int) -> Row:
    lines = (say(words, "message"),) if words else ()
    return Row(
        label=label, lines=lines, rank=rank, has_section=label in ("also", "note")
    )


def _reasons(
    label: str, reasons: Sequence[Reason], rank: int, *, whole: bool = True
) -> Iterator[Row]:
    """Return a row for each reason; unless `whole`, a row of its own says what to do about it."""
    is_note = label == "note"
    for item in reasons:
        lines = [phrase("{id}: {message}", id=item.id, message=item.message)]
        if item.remedy and whole:
            lines.append(
                phrase("{figure} {message}", figure="remedy:", message=item.remedy)
            )
        yield Row(
            label=label,
            lines=tuple(lines),
            rank=rank,
            most=2 if is_note else 6,
            has_section=is_note,
            reason=item,
        )


def _divergence(report: Report, first: Divergence | None) -> tuple[Phrase, ...]:
    found = report.determinism
    assert found is not None  # the caller asked
    lines = [wording.spread(found)]
    if first is not None:
        # both values, if they are short, and the largest distance of one element
        far = wording.how_far(replace(first, l2=None, relative_l2=None))
        lines.insert(0, phrase("{}: {}" if far else "{}", wording.where(first), far))
    if len(found.seeds) > 1:
        lines.append(say(f"seeds: {wording.seeds(report)}"))
    return tuple(lines)


def _remedy(
    report: Report, why: Diagnosis | None, known: Sequence[Reason]
) -> tuple[Phrase, ...]:
    """Return what to do about the cause; without one, about the first reason."""
    if why is not None:
        words = why.remedy or "its page says what to try next"
        return (phrase("{message} ({page})", message=words, page=why.cause),)
    reasons = [*known, *telling(report, known), *report.reasons]
    words = reasons[0].remedy if reasons else ""
    return (say(words, "message"),) if words else ()


def _weakened(report: Report) -> Iterator[Row]:
    weakened = () if report.base is None else report.base.weakened
    lines = [comparisons.weakening(item) for item in weakened[:_FEW]]
    if left := and_more(len(weakened) - _FEW):
        lines.append(say(left, "figure"))
    for line in lines:
        yield Row(label="weakened", lines=(line,), rank=1, has_section=True)


def compared_with(report: Report) -> Iterator[Row]:
    """Return the baseline and the other ref, with what differs from them."""
    baseline = report.baseline
    against = report.against
    if baseline is not None:
        behind = comparisons.baseline_lines(baseline, _FEW)
        lines = behind[: 1 + _LINES_OF.get(baseline.status, 0)]
        yield Row(label="baseline", lines=lines, rank=2, most=6)
    if against is not None:
        lines = comparisons.against_lines(against, 1)[:4]
        yield Row(label="against", lines=lines, rank=3, most=5)
