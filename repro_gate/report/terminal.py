"""The terminal's face of the Report: what a person sees at the end of `repro-gate run`. The answer first, then why, then the figures.

Called by `cli`. Readable at 80 columns, without colour and on an ASCII stream; every text from outside passes `escape.for_terminal`. In a
GitHub log the caller prints it between the lines of `escape.stop_commands`: a wrapped line may start with anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repro_gate.report import figures, sentences
from repro_gate.report.escape import for_encoding, for_terminal
from repro_gate.report.model import CheckResult, Reason, Report, RunSummary, SeedResult
from repro_gate.report.sentences import Phrase

_NAME, _MESSAGE, _ROWS, _LOG = 160, 600, 20, 15  # characters of a name, of a message; rows of a list; lines of a log
_VERDICT_STYLE = {"pass": "bold white on green", "fail": "bold white on red", "inconclusive": "bold black on yellow"}
_STATUS_STYLE = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "waived": "cyan"}
_ROLE_STYLE = {"say": "", "figure": "bold", "name": "bold cyan", "message": ""}
_TELLING = ("torch.use_deterministic_algorithms", "CUBLAS_WORKSPACE_CONFIG")  # the rest is in the JSON report
_LIMITS = {"name": _NAME, "message": _MESSAGE}


def render(report: Report, console: Console) -> None:
    """Print the whole report. Whatever the texts hold and whatever the console's encoding is, it prints."""
    encoding = console.encoding
    _out(console, Text(""), _verdict(report, encoding))
    _out(console, *_section("", _grid_of(_difference_lines(report, encoding)), encoding))
    if report.reasons:
        _out(console, *_section("Why", _reasons(report.reasons, report.verdict, encoding), encoding))
    _out(console, *_section("Noise and cost" if report.reasons else "", _grid_of(_figure_lines(report, encoding)), encoding))
    if report.notes:
        _out(console, *_section("Worth knowing", _reasons(report.notes, "", encoding), encoding))
    if report.checklist:
        _out(console, *_section("Checklist", _checklist(report.checklist, encoding), encoding))
    if report.runs:
        _out(console, *_section("Runs", _runs(report.runs, encoding), encoding))
    for run in report.runs:
        if run.log_tail and sentences.ended_badly(run):
            _out(console, *_section(f"End of the log of {for_terminal(run.name, 40)}", _log(run, encoding), encoding))
    if report.reproduce:
        _out(console, *_section("See it again", None, encoding))
        command = for_encoding("  " + for_terminal(report.reproduce), encoding)
        console.print(Text(command, style="bold"), soft_wrap=True, highlight=False)  # unbroken, so that it can be copied
    _out(console, Text(""))


def _out(console: Console, *parts: RenderableType) -> None:
    for part in parts:
        console.print(part, highlight=False, emoji=False, markup=False)


def _text(phrase: Phrase, encoding: str, style: str = "") -> Text:
    """The one place where text from outside becomes something that is printed."""
    line = Text(style=style, overflow="fold")
    for role, words in phrase:
        safe = for_terminal(words, _LIMITS[role]) if role in _LIMITS else words
        line.append(for_encoding(safe, encoding), style=_ROLE_STYLE[role])
    return line


def _say(words: str, encoding: str, style: str = "") -> Text:
    return _text((("say", words),), encoding, style)


def _grid(*widths: int | None) -> Table:
    """Columns without lines: a fixed width each, None for the one that takes the rest."""
    grid = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for width in widths:
        grid.add_column(width=width, no_wrap=False, overflow="fold")
    return grid


def _section(title: str, body: RenderableType | None, encoding: str) -> Iterator[RenderableType]:
    """A blank line, a titled rule where there is a title, the body where there is one."""
    if title or body is not None:
        yield Text("")
    if title:
        yield Rule(for_encoding(title, encoding), align="left", style="dim", characters="─" if _is_utf(encoding) else "-")
    if body is not None:
        yield Padding(body, (0, 0, 0, 2), expand=False)


def _is_utf(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def _verdict(report: Report, encoding: str) -> Table:
    """One line, or two at 80 columns: the verdict as a badge and its sentence."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    badge = Text(f" {report.verdict.upper()} ", style=_VERDICT_STYLE[report.verdict])
    grid.add_row(badge, _text(sentences.headline(report), encoding, "bold"))
    return grid


def _grid_of(lines: Iterable[tuple[str, Text]]) -> Table | None:
    """Labelled lines; None where there are none."""
    grid = _grid(11, None)
    for label, line in lines:
        grid.add_row(Text(label, style="dim"), line)
    return grid if grid.row_count else None


def _difference_lines(report: Report, encoding: str) -> Iterator[tuple[str, Text]]:
    found = report.determinism
    if found is not None and not found.comparison.identical:
        yield from _divergence_lines(found, encoding)
    if len(report.comparisons) > 1:
        yield "seeds", _seeds(report.comparisons)
    if report.non_finite:
        losses = ", ".join(f"{value} at step {step}" for step, value in report.non_finite[:10])
        yield "loss", _text((("message", f"not finite: {losses}"),), encoding, "yellow")


def _figure_lines(report: Report, encoding: str) -> Iterator[tuple[str, Text]]:
    yield "noise floor", _text(sentences.noise(report.noise_floor), encoding)
    yield "cost", _text(sentences.cost(report.cost, report.cost_budget_pct), encoding)
    if report.cost is not None:
        yield "", _say(sentences.step_times(report.cost), encoding)
        if sentences.memory(report.cost):
            yield "", _say(sentences.memory(report.cost), encoding)
        if report.cost.suspicious is not None:
            yield "", _text((("say", "suspicious: "), ("message", report.cost.suspicious)), encoding, "bold yellow")
    if report.settings:
        named = [f"{name}={report.settings[name]}" for name in _TELLING if name in report.settings]
        flags = "  ".join([*named, f"and {len(report.settings) - len(named)} more, as read back at every step"])
        yield "flags", _text((("message", flags),), encoding, "dim")


def _divergence_lines(found: SeedResult, encoding: str) -> Iterator[tuple[str, Text]]:
    pair = found.comparison
    if pair.first_divergence is not None:
        yield "parts at", _text(sentences.where(pair.first_divergence), encoding)
        if sentences.how_far(pair.first_divergence):
            yield "", _text(sentences.how_far(pair.first_divergence), encoding)
    yield "differing", _text(sentences.spread(pair), encoding)
    if sentences.kinds(pair):
        yield "", _text((("message", sentences.kinds(pair)),), encoding)
    for index, item in enumerate(pair.weights[:3]):
        line: Phrase = (("name", item.name), ("say", ": " + (", ".join(sentences.distances(item)) or "distance not measured")))
        yield "at the end" if index == 0 else "", _text(line, encoding)
    if len(pair.weights) > 3:
        yield "", _say(f"and {figures.count(len(pair.weights) - 3, 'tensor')} more", encoding, "dim")


def _seeds(results: Sequence[SeedResult]) -> Text:
    line = Text(overflow="fold")
    for index, item in enumerate(results[:_ROWS]):
        same = item.comparison.identical
        line.append("  " if index else "")
        line.append(f"{item.seed} {'same' if same else 'differs'}", style="" if same else "bold red")
    if len(results) > _ROWS:
        line.append(f"  and {len(results) - _ROWS} more")
    return line


def _reasons(reasons: Sequence[Reason], verdict: str, encoding: str) -> Table:
    grid = _grid(None)
    style = {"fail": "bold red", "inconclusive": "bold yellow"}.get(verdict, "bold")
    for reason in reasons[:_ROWS]:
        grid.add_row(_text((("name", reason.id),), encoding, style))
        grid.add_row(Padding(_text((("message", reason.message),), encoding), (0, 0, 0, 2)))
        if reason.remedy:
            grid.add_row(Padding(_text((("say", "remedy: "), ("message", reason.remedy)), encoding, "green"), (0, 0, 0, 2)))
    if len(reasons) > _ROWS:
        grid.add_row(_say(f"and {len(reasons) - _ROWS} more, all in the JSON report", encoding, "dim"))
    return grid


def _checklist(checklist: Sequence[CheckResult], encoding: str) -> Table:
    """A line for each category, under it what did not pass."""
    grid = _grid(12, None)
    open_items = [item for item in checklist if item.status != "pass"]
    for category, passed, made in sentences.coverage(checklist):
        full = 0 < made == passed
        grid.add_row(Text(category), Text(figures.of(passed, made) if made else "nothing checked", style="green" if full else "yellow"))
        for item in [item for item in open_items if item.category == category][:_ROWS]:
            line: Phrase = (("name", item.id), ("say", " "), ("message", item.message))
            grid.add_row("", Text(f"{item.status} ", style=_STATUS_STYLE[item.status]).append_text(_text(line, encoding)))
            if item.remedy and item.status in ("warn", "fail"):
                grid.add_row("", Padding(_text((("say", "remedy: "), ("message", item.remedy)), encoding, "green"), (0, 0, 0, 2)))
    return grid


def _runs(runs: Sequence[RunSummary], encoding: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title, right in (("run", False), ("seed", True), ("steps", True), ("processes", True), ("time", True), ("ended", False)):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for run in runs[:_ROWS]:
        table.add_row(
            _text((("name", run.name),), encoding),
            str(run.seed),
            f"{run.steps:,}",
            f"{run.processes:,}",
            figures.duration(run.seconds),
            _text((("message", sentences.outcome(run)),), encoding, "bold red" if sentences.ended_badly(run) else ""),
        )
    if len(runs) > _ROWS:
        table.add_row(Text(f"and {len(runs) - _ROWS} more", style="dim"))
    return table


def _log(run: RunSummary, encoding: str) -> Table:
    grid = _grid(1, None)
    for line in run.log_tail[-_LOG:]:
        grid.add_row(Text("|", style="dim"), _text((("message", line),), encoding))
    return grid
