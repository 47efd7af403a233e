"""The Report on a terminal: the verdict, why, and what to do, on one screen; the whole of it where
that was asked for (`View.verbose`). At 80 columns, without colour, on an ASCII stream; foreign text
goes through `widgets.text`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from rich.text import Text

from repro_gate.checks.interface import CheckResult
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, for_terminal, listed
from repro_gate.report import causes, comparisons, costs, numbers, terminal_details, wording
from repro_gate.report.findings import DIVERGED, GENERAL
from repro_gate.report.model import PLAIN, BaseFinding, Reason, Report, RunSummary, View
from repro_gate.report.rows import Row, fitted
from repro_gate.report.sections import source_lines
from repro_gate.report.widgets import (
    ELLIPSIS,
    STATUS_STYLE,
    printed,
    remedy,
    say,
    status,
    text,
    unicode,
    verdict_badge,
)
from repro_gate.report.wording import Phrase

MOST_OF_A_PASS, MOST = 15, 30  # lines
_REASONS, _FEW, _IDS = 4, 3, 6  # reasons, entries of a list and ids of checks that are shown
_LOG, _CORE_OF_LOG = 8, 3  # lines of a log
_ROBUST = "random-state/robust"
_COUNTED = (("fail", "failed"), ("warn", "warned"), ("waived", "waived"))


def render(report: Report, view: View = PLAIN, written: Sequence[str] = ()) -> str:
    """The report as lines of text, the verdict first. Whatever the texts hold and whatever the
    encoding is, it prints.

    A pass takes 15 lines at most, anything else 30; `view.verbose` prints all of it. `written` are
    the names of the files that were written besides.
    """
    if view.verbose:
        return printed(view, *terminal_details.parts(report))
    groups = {"pass": _pass, "fail": _fail}.get(report.verdict, _inconclusive)(report)
    last = [*_checks(report.checklist), *_again(report), _rest(written)]
    width = view.width - (0 if unicode(view) else len(ELLIPSIS) - 1)
    return printed(
        view, *fitted([*groups, last], width, MOST_OF_A_PASS if report.verdict == "pass" else MOST)
    )


def _pass(report: Report) -> list[list[Row]]:
    within = (
        []
        if report.determinism is None or report.determinism.comparison.identical
        else list(_where(report))
    )
    said = wording.compared(report), wording.bound(report)
    compared = [
        Row(label=name, lines=(say(line),), rank=7)
        for name, line in zip(("compared", "runs"), said, strict=True)
        if line
    ]
    rows = [
        *within,
        *compared,
        *_weakened(report.base),
        *_reasons(report.notes, "note", 3),
        *_earlier(report),
        *_figures(report),
    ]
    if report.config_hash is not None:
        rows.append(
            Row(
                label="config hash",
                lines=(text(comparisons.config_hash(report.config_hash)),),
                rank=6,
            )
        )
    return [[_head(report)], rows]


def _fail(report: Report) -> list[list[Row]]:
    why, first = (
        report.diagnosis,
        next((item for item in report.reasons if item.id in DIVERGED), None),
    )
    others = [item for item in report.reasons if item is not first]
    groups = [[_head(report)]]
    if first is None:
        groups.append(list(_reasons(others, "why", 1, _details(report))))
        others = []
    else:
        said = (
            [] if first.id == GENERAL else [Row(label="why", lines=(_told(first),), rank=1, most=3)]
        )
        if why is not None:
            said.append(
                Row(
                    label="cause",
                    lines=tuple(text(line) for line in causes.why(why)),
                    rank=1,
                    most=7,
                    least=3,
                )
            )
        groups += [said, [_excerpt(why)] if why is not None and why.excerpt else []]
        groups.append([*_where(report), *_remedy(_what_to_do(first, why))])
    groups.append([*chain.from_iterable(_log(run) for run in _ended(report)[:1])])
    groups.append(
        [
            *_weakened(report.base),
            *_reasons(others, "also", 3, _details(report)),
            *_earlier(report),
            *_reasons(report.notes, "note", 4),
        ]
    )
    return groups


def _inconclusive(report: Report) -> list[list[Row]]:
    """What ended, the end of its log, and what to do."""
    ended, first = _ended(report), report.reasons[:1]
    runs = [
        text(
            (
                ("name", run.name),
                ("say", ": "),
                ("message", wording.outcome(run)),
                ("say", _after(run)),
            )
        )
        for run in ended[:_FEW]
    ]
    more = [say(and_more(len(ended) - _FEW, "runs"))] if len(ended) > _FEW else []
    why = [Row(label="why", lines=(_told(item),), rank=1, most=4, least=2) for item in first]
    logged = next((run for run in ended if run.log_tail), None)
    return [
        [_head(report)],
        [*why, *([Row(label="ended", lines=(*runs, *more), rank=2, most=4)] if runs else [])],
        [] if logged is None else _log(logged),
        [row for item in first for row in _remedy(item.remedy)],
        [
            *_weakened(report.base),
            *_reasons(report.reasons[1:], "also", 3),
            *_earlier(report),
            *_reasons(report.notes, "note", 4),
        ],
    ]


def _head(report: Report) -> Row:
    """The verdict and its sentence; the noise floor has a line of its own."""
    return Row(
        head=verdict_badge(report.verdict).append("  "),
        lines=(text(wording.headline(replace(report, noise_floor=None)), "bold"),),
    )


def _where(report: Report) -> Iterator[Row]:
    """Where two runs diverge, how far, and in how much."""
    found = report.determinism
    if found is None or found.comparison.identical:
        return
    pair = found.comparison
    if pair.first_divergence is not None:
        lines = (
            text(wording.where(pair.first_divergence)),
            text(wording.how_far(pair.first_divergence)),
        )
        yield Row(
            label="diverges at", lines=tuple(line for line in lines if line.plain), rank=1, most=4
        )
    yield Row(label="differing", lines=(text(wording.spread(pair)),), rank=6)
    if len(report.comparisons) > 1:
        yield Row(label="seeds", lines=(say(wording.seeds(report)),), rank=5)


def _excerpt(why: Diagnosis) -> Row:
    lines = [
        text((("message", line),), "bold" if line.startswith(">") else "dim")
        for line in source_lines(why)
    ]
    marked = tuple(line for line in lines if line.plain.startswith(">"))
    return Row(lines=tuple(lines), rank=2, most=5, form="cut", core=marked)


def _what_to_do(first: Reason, why: Diagnosis | None) -> str:
    """The cause's remedy, with the command that prints its page."""
    return (
        first.remedy
        if why is None
        else f"{why.remedy or 'its page says what to try next'} (`repro-gate explain {why.cause}`)"
    )


def _remedy(words: str) -> list[Row]:
    return (
        [
            Row(
                label="remedy",
                lines=(text((("message", words),), "green"),),
                rank=1,
                most=4,
                least=2,
            )
        ]
        if words
        else []
    )


def _told(reason: Reason) -> Text:
    return text((("name", reason.id), ("say", ": "), ("message", reason.message)))


def _details(report: Report) -> dict[str, tuple[Phrase, ...]]:
    """What stands behind a reason: what a result differs in from an earlier one."""
    found = {}
    if report.baseline is not None:
        found[f"baseline/{report.baseline.status}"] = comparisons.baseline_lines(
            report.baseline, _FEW
        )
    if report.against is not None:
        found["against/changed"] = comparisons.against_lines(report.against, _FEW)
    return found


def _reasons(
    reasons: Sequence[Reason],
    label: str,
    rank: int,
    details: dict[str, tuple[Phrase, ...]] | None = None,
) -> Iterator[Row]:
    for reason in reasons[:_REASONS]:
        behind = [text(line) for line in (details or {}).get(reason.id, ())]
        inline = [remedy(reason.remedy)] if reason.remedy and label != "why" else []
        most = 2 if label == "note" else 4 + len(behind)
        yield Row(
            label=label,
            lines=(_told(reason), *behind, *inline),
            rank=rank,
            most=most,
            least=1 + min(len(behind), 2),
        )
        yield from _remedy(reason.remedy) if label == "why" else ()
    if left := [item.id for item in reasons[_REASONS:]]:
        yield Row(label=label, lines=(text((("name", listed(left, _IDS)),)),), rank=rank, most=1)


def _weakened(base: BaseFinding | None) -> Iterator[Row]:
    """What a reviewer must see: each thing that the change weakens."""
    for item in () if base is None else base.weakened[:_FEW]:
        line = text(comparisons.weakening(item), "bold yellow").append_text(
            text((("say", ": "), ("message", item.message)), "not bold")
        )
        yield Row(label="weakened", lines=(line,), rank=1)
    if base is not None and (left := and_more(len(base.weakened) - _FEW)):
        yield Row(label="weakened", lines=(say(left, "bold yellow"),), rank=1)


def _earlier(report: Report) -> Iterator[Row]:
    """The baseline and the other ref, unless a reason tells of them."""
    told, baseline, against = {item.id for item in report.reasons}, report.baseline, report.against
    if baseline is not None and f"baseline/{baseline.status}" not in told:
        lines = (
            status(baseline.status, (("message", baseline.message),)),
            *map(text, comparisons.baseline_lines(baseline, _FEW)),
        )
        yield Row(label="baseline", lines=lines, rank=2, most=6, least=1 if len(lines) == 1 else 2)
    if against is not None and "against/changed" not in told:
        at: Phrase = (
            *comparisons.at(against.ref, against.commit),
            ("say", ": "),
            ("message", against.message),
        )
        lines = (status(against.status, at), *map(text, comparisons.against_lines(against, 1)))
        yield Row(label="against", lines=lines, rank=2, most=5, least=1 if len(lines) == 1 else 2)


def _figures(report: Report) -> Iterator[Row]:
    if report.non_finite:
        yield Row(
            label="loss",
            lines=(text((("message", f"not finite: {wording.non_finite(report)}"),), "yellow"),),
            rank=2,
        )
    yield Row(label="noise floor", lines=(text(wording.noise(report.noise_floor)),), rank=4, most=3)
    yield Row(label="cost", lines=(text(costs.cost(report.cost)),), rank=4, most=3)
    if report.cost is not None and report.cost.suspicious is not None:
        yield Row(
            label="",
            lines=(
                text((("say", "suspicious: "), ("message", report.cost.suspicious)), "bold yellow"),
            ),
            rank=2,
        )


def _checks(checklist: Sequence[CheckResult]) -> Iterator[Row]:
    """How many checks passed, the ids of those that did not, and what was never declared."""
    counts, made = (
        Counter(item.status for item in checklist),
        [item for item in checklist if item.status != "skip"],
    )
    if not made:
        return
    line = say(
        f"{numbers.of(counts['pass'], len(made))} passed",
        "green" if counts["pass"] == len(made) else "",
    )
    for name, word in _COUNTED:
        ids = [for_terminal(item.id, 60) for item in checklist if item.status == name]
        if ids:
            line.append("; ").append_text(
                text(
                    (("say", f"{len(ids):,} {word}: "), ("message", listed(ids, _IDS))),
                    STATUS_STYLE[name],
                )
            )
    if undeclared := wording.undeclared(checklist).partition(" (")[0]:
        line.append(f"; {undeclared}", style="dim")
    # no reason tells of a warning
    fragile = [item for item in checklist if item.id == _ROBUST and item.status == "warn"]
    yield from _reasons([Reason(item.id, item.message, item.remedy) for item in fragile], "also", 2)
    yield Row(label="checks", lines=(line,), rank=3, most=3)


def _ended(report: Report) -> list[RunSummary]:
    """Runs that ended badly, and not because the gate had seen enough of them."""
    return [
        run
        for run in report.runs
        if wording.ended_badly(run) and (run.log_tail or report.verdict == "inconclusive")
    ]


def _after(run: RunSummary) -> str:
    return f" after {numbers.count(run.steps, 'step')}, {numbers.duration(run.seconds)}"


def _log(run: RunSummary) -> list[Row]:
    """The end of a run's log."""
    tail = [line for line in run.log_tail if line.strip()][-_LOG:]
    lines = tuple(
        Text("| ", style="dim").append_text(text((("message", line.expandtabs(4)),)))
        for line in tail
    )
    title = text((("say", "end of the log of "), ("name", run.name), ("say", ":")), "dim")
    return (
        [
            Row(lines=(title,), rank=2),
            Row(lines=lines, rank=2, most=_LOG, form="cut", core=lines[-_CORE_OF_LOG:]),
        ]
        if lines
        else []
    )


def _again(report: Report) -> list[Row]:
    return (
        [
            Row(
                label="reproduce",
                lines=(Text(for_terminal(report.reproduce), style="bold"),),
                form="whole",
            )
        ]
        if report.reproduce
        else []
    )


def _rest(written: Sequence[str]) -> Row:
    """Where the rest of the report is."""
    words = (
        "`-v` prints the rest; written: "
        f"{listed([for_terminal(name, 200) for name in written], _IDS)}"
    )
    return Row(
        label="more",
        lines=(
            say(
                words if written else "`-v`, or `repro-gate show -v REPORT.json`, prints the rest",
                "dim",
            ),
        ),
        most=1,
    )
