"""The Report on a terminal: the verdict, why, and what to do, on one screen; the whole of it where
that was asked for (`View.verbose`). And the checklist of `repro-gate check`, which trains nothing.

At 80 columns, without colour, on an ASCII stream; foreign text goes through `widgets.text`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, for_terminal, listed
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.document import plain, to_text
from repro_gate.report.findings import DIVERGED, GENERAL
from repro_gate.report.model import PLAIN, Reason, Report, RunSummary, View
from repro_gate.report.sections import (
    Block,
    Code,
    Facts,
    Items,
    Table,
    check_items,
    sections,
    source_lines,
)
from repro_gate.report.widgets import (
    ELLIPSIS,
    EXTRA,
    Row,
    fitted,
    grid,
    indented,
    labelled,
    printed,
    remedy,
    say,
    section,
    status,
    text,
    unicode,
    verdict_badge,
)
from repro_gate.report.wording import Phrase

MOST_OF_A_PASS, MOST = 15, 30  # lines
_REASONS, _FEW, _IDS = 4, 3, 6  # reasons, entries of a list and ids of checks that are shown
_LOG = 8  # lines of a log
_ROBUST = "random-state/robust"
_ROWS = 20  # of a list; the rest is in the JSON report
SCHEMA_ID = "repro-gate/checklist/v1"
_COUNTED = (
    ("fail", "failed"),
    ("warn", "warn"),
    ("waived", "waived"),
    ("pass", "passed"),
    ("skip", "skipped"),
)


def render(report: Report, view: View = PLAIN, written: Sequence[str] = ()) -> str:
    """Return the report as lines of text, the verdict first. Whatever the texts hold and whatever
    the encoding is, it prints.

    A pass takes 15 lines at most, anything else 30; `view.verbose` prints all of it. `written` are
    the names of the files that were written besides.
    """
    if view.verbose:
        return printed(view, *parts(report))
    width = view.width - (0 if unicode(view) else len(ELLIPSIS) - 1)
    most = MOST_OF_A_PASS if report.verdict == "pass" else MOST
    groups = [
        [_head(report)],
        *map(list, (_why(report), _log(report), _besides(report), _last(report, written))),
    ]
    return printed(view, *fitted(groups, width, most))


def _row(label: str, rank: int, *phrases: Phrase, most: int = 2, style: str = "") -> Row:
    lines = tuple(text(phrase, style) for phrase in phrases if phrase)
    return Row(label=label, lines=lines, rank=rank, most=most)


def _head(report: Report) -> Row:
    """Return the verdict and its sentence; the noise floor has a line of its own."""
    return Row(
        head=verdict_badge(report.verdict).append("  "),
        lines=(text(wording.headline(replace(report, noise_floor=None)), "bold"),),
    )


def _why(report: Report) -> Iterator[Row]:
    """Return what led to the verdict: the divergence with its cause, or the first reasons."""
    why, pair = report.diagnosis, report.determinism
    first = _explained(report)
    if first is not None and first.id != GENERAL:
        yield _row("why", 1, _reason(first), most=3)
    if first is not None and why is not None:
        yield _row("cause", 1, *findings.why(why), most=7)
        yield from _source(why)
    if pair is not None and not pair.identical:
        if (place := pair.first_divergence) is not None:
            yield _row("diverges at", 1, wording.where(place), wording.how_far(place), most=4)
        yield _row("differing", 6, wording.spread(pair))
        if len(pair.seeds) > 1:
            yield _row("seeds", 5, (("say", wording.seeds(report)),))
    if first is not None:
        yield from _remedy(_what_to_do(first, why))
    elif report.verdict == "inconclusive":
        for item in report.reasons[:1]:
            yield _row("why", 1, _reason(item), most=4)
            yield from _remedy(item.remedy)
    elif report.verdict == "fail":
        yield from _reasons(report.reasons, "why", 1)


def _explained(report: Report) -> Reason | None:
    """Return the reason that is about the divergence, of a report that fails."""
    found = (item for item in report.reasons if item.id in DIVERGED)
    return next(found, None) if report.verdict == "fail" else None


def _besides(report: Report) -> Iterator[Row]:
    """Return what a reviewer must see besides, and what is worth knowing."""
    first = _explained(report)
    if report.verdict == "pass":
        for label, words in (
            ("compared", wording.compared(report)),
            ("runs", wording.bound(report)),
        ):
            if words:
                yield _row(label, 7, (("say", words),))
    yield from _weakened(report)
    if report.verdict == "inconclusive":
        yield from _reasons(report.reasons[1:], "also", 3)
    elif first is not None:
        yield from _reasons([item for item in report.reasons if item is not first], "also", 3)
    yield from _earlier(report)
    yield from _reasons(report.notes, "note", 4)
    if report.verdict == "pass":
        yield from _figures(report)
        if report.config_hash is not None:
            yield _row("config hash", 6, comparisons.config_hash(report.config_hash))


def _source(why: Diagnosis) -> Iterator[Row]:
    """Return the lines around the cause; its own line stays where there is no room."""
    for line in source_lines(why):
        here = line.startswith(">")
        shown = text((("message", line),), "bold" if here else "dim")
        yield Row(lines=(shown,), rank=2 if here else EXTRA, form="cut")


def _what_to_do(first: Reason, why: Diagnosis | None) -> str:
    """Return the cause's remedy, with the command that prints its page."""
    if why is None:
        return first.remedy
    return f"{why.remedy or 'its page says what to try next'} (`repro-gate explain {why.cause}`)"


def _remedy(words: str) -> Iterator[Row]:
    if words:
        yield _row("remedy", 1, (("message", words),), most=4, style="green")


def _reason(reason: Reason) -> Phrase:
    return (("name", reason.id), ("say", ": "), ("message", reason.message))


def _reasons(reasons: Sequence[Reason], label: str, rank: int) -> Iterator[Row]:
    """Return the first reasons, each with what to do."""
    for reason in reasons[:_REASONS]:
        lines = [text(_reason(reason))]
        if reason.remedy and label != "why":
            lines.append(remedy(reason.remedy))
        most = 2 if label == "note" else 4 + len(lines)
        yield Row(label=label, lines=tuple(lines), rank=rank, most=most)
        yield from _remedy(reason.remedy) if label == "why" else ()
    if left := [item.id for item in reasons[_REASONS:]]:
        yield _row(label, rank, (("name", listed(left, _IDS)),), most=1)


def _weakened(report: Report) -> Iterator[Row]:
    """Return what a reviewer must see: each thing that the change weakens."""
    weakened = () if report.base is None else report.base.weakened
    for item in weakened[:_FEW]:
        message: Phrase = (("say", ": "), ("message", item.message))
        line = text(comparisons.weakening(item), "bold yellow")
        yield Row(label="weakened", lines=(line.append_text(text(message, "not bold")),), rank=1)
    if left := and_more(len(weakened) - _FEW):
        yield _row("weakened", 1, (("say", left),), style="bold yellow")


def _earlier(report: Report) -> Iterator[Row]:
    """Return the baseline and the other ref, with what differs from them."""
    baseline, against = report.baseline, report.against
    if baseline is not None:
        first = status(baseline.status, (("message", baseline.message),))
        behind = map(text, comparisons.baseline_lines(baseline, _FEW))
        yield Row(label="baseline", lines=(first, *behind), rank=2, most=6)
    if against is not None:
        at = comparisons.at(against.ref, against.commit)
        first = status(against.status, (*at, ("say", ": "), ("message", against.message)))
        behind = map(text, comparisons.against_lines(against, 1))
        yield Row(label="against", lines=(first, *behind), rank=2, most=5)


def _figures(report: Report) -> Iterator[Row]:
    if lost := wording.non_finite(report):
        words = f"not finite: {lost}"
        yield _row("loss", 2, (("message", words),), style="yellow")
    yield _row("noise floor", 4, wording.noise(report.noise_floor), most=3)
    yield _row("cost", 3, comparisons.cost(report.cost), most=3)
    if report.cost is not None and report.cost.suspicious is not None:
        why: Phrase = (("say", "suspicious: "), ("message", report.cost.suspicious))
        yield _row("", 2, why, style="bold yellow")


def _log(report: Report) -> Iterator[Row]:
    """Return the runs that ended badly, and not because the gate had seen enough of them, and the
    end of the log of the first."""
    inconclusive = report.verdict == "inconclusive"
    ended = [
        run for run in report.runs if wording.ended_badly(run) and (run.log_tail or inconclusive)
    ]
    if inconclusive and ended:
        lines = [*map(_ended, ended[:_FEW])]
        if more := and_more(len(ended) - _FEW, "runs"):
            lines.append((("say", more),))
        yield _row("ended", 2, *lines, most=4)
    for run in [run for run in ended if run.log_tail][: int(report.verdict != "pass")]:
        title: Phrase = (("say", "end of the log of "), ("name", run.name), ("say", ":"))
        tail = [line.expandtabs(4) for line in run.log_tail if line.strip()]
        logged = (text((("say", "| "), ("message", line))) for line in tail)
        yield _row("", 2, title, style="dim")
        yield Row(lines=tuple(logged), rank=2, most=_LOG, form="cut")


def _ended(run: RunSummary) -> Phrase:
    after = f" after {numbers.count(run.steps, 'step')}, {numbers.duration(run.seconds)}"
    return ("name", run.name), ("say", ": "), ("message", wording.outcome(run)), ("say", after)


def _last(report: Report, written: Sequence[str]) -> Iterator[Row]:
    """Return how many checks passed, the ids of those that did not, and what was never declared;
    then how to see it again, and where the rest of the report is."""
    # no reason tells of a warning
    fragile = [item for item in report.checklist if (item.id, item.status) == (_ROBUST, "warn")]
    told = [Reason(item.id, item.message, item.remedy) for item in fragile]
    yield from _reasons(told, "also", 2)
    if counted := wording.checks(report.checklist):
        yield _row("checks", 3, counted, most=3)
    if report.reproduce:
        command = Text(for_terminal(report.reproduce), style="bold")
        yield Row(label="reproduce", lines=(command,), form="whole")
    words = "`-v`, or `repro-gate show -v REPORT.json`, prints the rest"
    if written:
        names = [for_terminal(name, 200) for name in written]
        words = f"`-v` prints the rest; written: {listed(names, _IDS)}"
    yield Row(label="more", lines=(say(words, "dim"),), most=1)


def parts(report: Report) -> Iterator[RenderableType]:
    """Return everything that a person may want to read, the verdict first."""
    badge = verdict_badge(report.verdict)
    head = grid(len(badge), None)
    head.add_row(badge, text(wording.headline(report), "bold"))
    yield head
    for item in sections(report, _ROWS):
        if item.blocks[0] == Code(report.reproduce, "sh"):  # on one line, so that it can be copied
            yield from section(item.title, None)
            yield Text("  " + for_terminal(report.reproduce), style="bold", no_wrap=True)
        else:
            yield from section(item.title, Group(*map(laid_out, item.blocks)))


def laid_out(block: Block) -> RenderableType:
    """Return a block of a section as lines of a terminal."""
    match block:
        case Facts(facts) if not any(label for label, _ in facts):
            return Group(*(text(phrase) for _, phrase in facts))
        case Facts(facts):
            return labelled((label, text(phrase)) for label, phrase in facts)
        case Items(items):
            table = grid(None)
            for first, *below in items:
                table.add_row(text(first))
                for line in below:
                    table.add_row(indented(text(line)))
            return table
        case Code(code):
            lines = (text((("message", line.expandtabs(4)),)) for line in code.split("\n"))
            return indented(Group(*lines))
        case Table(head, rows):
            table = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
            for title in head:
                table.add_column(title, overflow="fold")
            for row in rows:
                table.add_row(*map(text, row))
            return table


def render_checklist(
    results: Sequence[CheckResult], need_training: Sequence[str] = (), view: View = PLAIN
) -> str:
    """Every result by category, the worst first, and one line of counts at the end.

    `need_training` are the ids of the checks that were not made, since only a training can answer
    them.
    """
    parts: list[RenderableType] = []
    for category, passed, made in wording.coverage(results):
        here = [
            item
            for item in wording.worst_first(results)
            if item.category == category and not wording.is_undeclared(item)
        ]
        title = f"{category}: {numbers.of(passed, made) if made else 'nothing checked'}"
        parts += section(title, laid_out(check_items(here)) if here else None)
    if wording.undeclared(results):
        parts += [Text(""), Text(wording.undeclared(results), style="dim")]
    return printed(view, *parts, Text(""), _summary(results, len(need_training)))


def checklist_json(
    results: Sequence[CheckResult], spec_path: str, need_training: Sequence[str] = ()
) -> str:
    """What `repro-gate check --json` writes: the results with the fields of report.json's
    `checklist`, and what they add up to."""
    statuses = Counter(item.status for item in results)
    document = {
        "schema": SCHEMA_ID,
        "tool_version": __version__,
        "spec": spec_path,
        "counts": {status: statuses[status] for status in STATUSES},
        "coverage": [
            {"category": category, "passed": passed, "made": made}
            for category, passed, made in wording.coverage(results)
        ],
        "checklist": [asdict(item) for item in results],
        "need_training": list(need_training),
    }
    return to_text(plain(document))


def _summary(results: Sequence[CheckResult], waiting: int) -> Text:
    """`checklist: 3 failed, 2 warn, 9 passed, 4 need training (repro-gate run)`; of what there is
    none, only `passed` is said."""
    statuses = Counter(item.status for item in results)
    counts = [
        f"{statuses[status]:,} {word}"
        for status, word in _COUNTED
        if statuses[status] or status == "pass"
    ]
    if waiting:
        counts.append(
            f"{waiting:,} {'needs' if waiting == 1 else 'need'} training (repro-gate run)"
        )
    style = "bold red" if statuses["fail"] else "bold yellow" if statuses["warn"] else "bold green"
    # one line, so that a log can be searched for it
    return Text(f"checklist: {', '.join(counts)}", style=style, no_wrap=True)
