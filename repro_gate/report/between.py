"""What changed between two reports, for a terminal: a row for each finding, check and input that is
not the same, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from repro_gate.baseline.config_hash import changed_inputs
from repro_gate.compare.model import Cost
from repro_gate.escape import and_more, for_terminal
from repro_gate.report import causes, comparisons, costs, numbers, wording
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import Table
from repro_gate.report.terminal_details import laid_out
from repro_gate.report.widgets import printed, say
from repro_gate.report.wording import Phrase

_ROWS = 40
_Row = tuple[Phrase, Phrase, Phrase]  # what it is, and its value in either report


def render(a: Report, b: Report, names: tuple[str, str], view: View = PLAIN) -> str:
    """Return the table. `names` are the files. It prints whatever the texts hold."""
    changed = [
        row for row in (*_findings(a, b), *_checks(a, b), *_inputs(a, b)) if row[1] != row[2]
    ]
    rows = tuple(
        (label, *(value or (("say", "none"),) for value in values))
        for label, *values in changed[:_ROWS]
    )
    table = laid_out(Table(("", *(for_terminal(name, 160) for name in names)), rows))
    more = and_more(len(changed) - _ROWS)
    return printed(view, table, *([say(more, "dim")] if more else []))


def _findings(a: Report, b: Report) -> Iterator[_Row]:
    """What was found: verdict, divergence, cause, noise floor, cost."""
    both = (a, b)
    yield _row("started", *((("message", item.started),) for item in both))
    yield _row("verdict", *((("say", item.verdict),) for item in both))
    yield _row("result", *(_result(item) for item in both))
    yield _row("cause", *(_cause(item) for item in both))
    yield _row("noise floor", *(wording.noise(item.noise_floor) for item in both))
    left, right = (costs.cost(item.cost) for item in both)
    yield _row("cost", left, (*right, *_overlap(a.cost, b.cost)) if left != right else right)


def _row(label: str, a: Phrase, b: Phrase) -> _Row:
    return (("say", label),), a, b


def _result(report: Report) -> Phrase:
    found = report.determinism
    if found is None:
        return (("say", "not compared"),)
    pair = found.comparison
    if pair.identical or pair.first_divergence is None:
        compared = f"{numbers.count(pair.tensors, 'tensor')}, {numbers.count(pair.steps, 'step')}"
        return (("say", f"bitwise identical, {compared}"),)
    where, far = (said(pair.first_divergence) for said in (wording.where, wording.how_far))
    return (*where, ("say", "; "), *far) if far else where


def _cause(report: Report) -> Phrase:
    return () if report.diagnosis is None else causes.why(report.diagnosis)[0]


def _overlap(a: Cost | None, b: Cost | None) -> Phrase:
    """Whether two costs may be the same."""
    if a is None or b is None:
        return ()
    same = a.ci95[0] <= b.ci95[1] and b.ci95[0] <= a.ci95[1]
    said = "the intervals overlap: no change is shown" if same else "the intervals do not overlap"
    return (("say", f"; {said}"),)


def _checks(a: Report, b: Report) -> Iterator[_Row]:
    """Every check by its id: its status."""
    first, second = ({item.id: item.status for item in report.checklist} for report in (a, b))
    for name in dict.fromkeys([*first, *second]):
        statuses = (first.get(name, "not there"), second.get(name, "not there"))
        left, right = ((("message", status),) for status in statuses)
        yield (("say", "check "), ("name", name)), left, right


def _inputs(a: Report, b: Report) -> Iterator[_Row]:
    """The inputs of the config hash."""
    if a.config_hash is None or b.config_hash is None:
        return
    try:
        moved = changed_inputs(a.config_hash, b.config_hash)
    except ValueError:  # a report is not believed: this one claims an input that there is none of
        yield _row("inputs", (("say", "cannot be compared"),), (("say", "one is no input"),))
        return
    for item in moved:
        values = (item.before, item.after)
        left, right = (
            () if value is None else (("message", comparisons.short(value)),) for value in values
        )
        yield (("say", f"{item.root} "), ("name", item.name)), left, right
