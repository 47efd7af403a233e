"""The whole report on a terminal, as `-v` prints it: why, then the figures, every check that was
made, and every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from repro_gate.checks.interface import CheckResult
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, for_terminal
from repro_gate.report import causes, comparisons, costs, numbers, wording
from repro_gate.report.findings import DIVERGED
from repro_gate.report.model import BaseFinding, Reason, Report, RunSummary, SeedResult
from repro_gate.report.widgets import (
    STATUS_STYLE,
    evidence,
    excerpt,
    grid,
    indented,
    labelled,
    remedy,
    say,
    section,
    status,
    text,
    verdict_badge,
)
from repro_gate.report.wording import Phrase

_ROWS, _FEW, _LOG = 20, 10, 15  # rows of a list of its own, of a list below a line; lines of a log
# the rest is in the JSON report
_TELLING = (
    "torch.use_deterministic_algorithms",
    "CUBLAS_WORKSPACE_CONFIG",
)


def parts(report: Report) -> Iterator[RenderableType]:
    """Everything that a person may want to read, the verdict first."""
    badge = verdict_badge(report.verdict)
    head = grid(len(badge), None)
    head.add_row(badge, text(wording.headline(report), "bold"))
    yield head
    yield from section("", labelled(_difference_lines(report)))
    if report.base is not None and report.base.weakened:
        yield from section(comparisons.WEAKENED_TITLE, _weakened(report.base))
    if report.reasons:
        yield from section("Why", _reasons(report.reasons, report.verdict, report.diagnosis))
    if report.diagnosis is not None:
        yield from section(
            "How the cause was found",
            labelled(("", text(line)) for line in causes.background(report.diagnosis)),
        )
    compared = labelled(_comparison_lines(report))
    if compared is not None:
        yield from section("Baseline and config hash" if report.reasons else "", compared)
    yield from section("Noise and cost" if report.reasons else "", labelled(_figure_lines(report)))
    if report.notes:
        yield from section("Worth knowing", _reasons(report.notes, ""))
    if report.checklist:
        yield from section("Checklist", _checklist(report.checklist))
    yield from section("Runs", _runs(report.runs))
    for run in report.runs:
        if wording.ended_badly(run) and run.log_tail:
            yield from section(f"End of the log of {for_terminal(run.name, 40)}", _log(run))
    if report.reproduce:
        yield from section("See it again", None)
        yield Text("  " + for_terminal(report.reproduce), style="bold", no_wrap=True)


def _difference_lines(report: Report) -> Iterator[tuple[str, Text]]:
    found = report.determinism
    if found is not None and not found.comparison.identical:
        yield from _divergence_lines(found)
    if wording.compared(report):
        yield "compared", say(wording.compared(report))
        yield "runs", say(wording.bound(report))
    if len(report.comparisons) > 1:
        yield "seeds", seeds(report.comparisons)
    if report.non_finite:
        yield "loss", text((("message", f"not finite: {wording.non_finite(report)}"),), "yellow")


def _weakened(base: BaseFinding) -> Table:
    """What a reviewer must see: each thing that the change weakens."""
    table = grid(None)
    for item in base.weakened[:_ROWS]:
        table.add_row(text(comparisons.weakening(item), "bold yellow"))
        table.add_row(indented(text((("message", item.message),))))
    _add_more(table, len(base.weakened))
    table.add_row(text(comparisons.base_policy(base), "dim"))
    return table


def _comparison_lines(report: Report) -> Iterator[tuple[str, Text]]:
    """The baseline, the other ref, the config hash and the base, as far as they are there."""
    baseline, against, base = report.baseline, report.against, report.base
    if baseline is not None:
        yield "baseline", status(baseline.status, (("message", baseline.message),))
        yield from (("", text(line)) for line in comparisons.baseline_lines(baseline, _FEW))
        if baseline.remedy:
            yield "", remedy(baseline.remedy)
        if baseline.recorded:
            yield "", text((("say", "recorded "), ("message", baseline.recorded)), "dim")
    if against is not None:
        yield "against", status(against.status, comparisons.at(against.ref, against.commit))
        yield "", text((("message", against.message),))
        yield from (("", text(line)) for line in comparisons.against_lines(against, _FEW))
    if report.config_hash is not None:
        yield "config hash", text(comparisons.config_hash(report.config_hash))
    if base is not None and not base.weakened:
        yield "base", text(comparisons.nothing_less(base), "dim")


def _figure_lines(report: Report) -> Iterator[tuple[str, Text]]:
    yield "noise floor", text(wording.noise(report.noise_floor))
    yield "cost", text(costs.cost(report.cost))
    if report.cost is not None:
        yield from (
            ("", say(line))
            for line in (costs.step_times(report.cost), costs.memory(report.cost))
            if line
        )
        if report.cost.suspicious is not None:
            yield (
                "",
                text((("say", "suspicious: "), ("message", report.cost.suspicious)), "bold yellow"),
            )
    if spent := costs.times_spent(report):
        yield "time", say(spent)
    if report.settings:
        named = [f"{name}={report.settings[name]}" for name in _TELLING if name in report.settings]
        flags = "  ".join(
            [*named, f"and {len(report.settings) - len(named):,} more, as read back at every step"]
        )
        yield "flags", text((("message", flags),), "dim")


def _divergence_lines(found: SeedResult) -> Iterator[tuple[str, Text]]:
    pair = found.comparison
    if pair.first_divergence is not None:
        yield "diverges at", text(wording.where(pair.first_divergence))
        if wording.how_far(pair.first_divergence):
            yield "", text(wording.how_far(pair.first_divergence))
    yield "differing", text(wording.spread(pair))
    if wording.kinds(pair):
        yield "", text((("message", wording.kinds(pair)),))
    for index, item in enumerate(pair.weights[:3]):
        line: Phrase = (
            ("name", item.name),
            ("say", ": " + (", ".join(wording.apart(item)) or "distance not measured")),
        )
        yield "at the end" if index == 0 else "", text(line)
    if len(pair.weights) > 3:
        yield "", say(and_more(len(pair.weights) - 3), "dim")


def _add_more(table: Table, count: int, *before: str) -> None:
    if count > _ROWS:
        table.add_row(*before, say(f"{and_more(count - _ROWS)}, all in the JSON report", "dim"))


def seeds(results: Sequence[SeedResult]) -> Text:
    """Each seed, and whether its runs are bitwise identical."""
    each = [
        Text(f"{item.seed} same")
        if item.comparison.identical
        else Text(f"{item.seed} differs", "bold red")
        for item in results[:_ROWS]
    ]
    left = and_more(len(results) - _ROWS)
    return Text("  ", overflow="fold").join([*each, *([Text(left)] if left else [])])


def _reasons(reasons: Sequence[Reason], verdict: str, why: Diagnosis | None = None) -> Table:
    table, style = (
        grid(None),
        {"fail": "bold red", "inconclusive": "bold yellow"}.get(verdict, "bold"),
    )
    for reason in reasons[:_ROWS]:
        table.add_row(text((("name", reason.id),), style))
        table.add_row(indented(text((("message", reason.message),))))
        if why is not None and reason.id in DIVERGED:
            for line in (*(text(sentence) for sentence in causes.why(why)), *excerpt(why)):
                table.add_row(indented(line))
            why = None
        if reason.remedy:
            table.add_row(indented(remedy(reason.remedy)))
    _add_more(table, len(reasons))
    return table


def _checklist(checklist: Sequence[CheckResult]) -> Table:
    """A line for each category, under it what did not pass, the worst first; then, in one line,
    what was never declared."""
    table = grid(12, None)
    open_items = [item for item in wording.worst_first(checklist) if item.status != "pass"]
    for category, passed, made in wording.coverage(checklist):
        full = 0 < made == passed
        table.add_row(
            Text(category),
            Text(
                numbers.of(passed, made) if made else "nothing checked",
                style="green" if full else "yellow",
            ),
        )
        here = [item for item in open_items if item.category == category]
        for item in here[:_ROWS]:
            line: Phrase = (("name", item.id), ("say", " "), ("message", item.message))
            table.add_row(
                "", Text(f"{item.status} ", style=STATUS_STYLE[item.status]).append_text(text(line))
            )
            if item.status in ("warn", "fail"):
                for below in (*evidence(item), *([remedy(item.remedy)] if item.remedy else [])):
                    table.add_row("", indented(below))
        _add_more(table, len(here), "")
    if wording.undeclared(checklist):
        table.add_row("", say(wording.undeclared(checklist), "dim"))
    return table


def _runs(runs: Sequence[RunSummary]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title, right in (
        ("run", False),
        ("seed", True),
        ("steps", True),
        ("processes", True),
        ("time", True),
        ("ended", False),
    ):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for run in runs[:_ROWS]:
        table.add_row(
            text((("name", run.name),)),
            str(run.seed),
            f"{run.steps:,}",
            f"{run.processes:,}",
            numbers.duration(run.seconds),
            text(
                (("message", wording.outcome(run)),), "bold red" if wording.ended_badly(run) else ""
            ),
        )
    _add_more(table, len(runs))
    return table


def _log(run: RunSummary) -> Table:
    table = grid(1, None)
    for line in run.log_tail[-_LOG:]:
        table.add_row(Text("|", style="dim"), text((("message", line),)))
    return table
