"""The Report on a terminal: the answer first, then why, then the figures; at 80 columns, without colour, on an ASCII stream.
`text` is the one place where text from outside becomes something that is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repro_gate.checks.interface import CheckResult
from repro_gate.escape import for_encoding, for_terminal
from repro_gate.report import comparisons, numbers, wording
from repro_gate.report.model import BaseFinding, Reason, Report, RunSummary, SeedResult
from repro_gate.report.wording import Phrase

_ROWS, _FEW, _LOG = 20, 10, 15  # rows of a list of its own, of a list below a line; lines of a log
_VERDICT_STYLE = {"pass": "bold white on green", "fail": "bold white on red", "inconclusive": "bold black on yellow"}
_STATUS_STYLE = {"unchanged": "bold green", "no-op": "bold green", "changed": "bold yellow", "drift": "bold white on red"}
_TELLING = ("torch.use_deterministic_algorithms", "CUBLAS_WORKSPACE_CONFIG")  # the rest is in the JSON report


def render(report: Report, console: Console, verbose: bool = False) -> None:
    """Print the report; with `verbose` also what passed over: checks with nothing to look at, and runs that ended well.

    Whatever the texts hold and whatever the console's encoding is, it prints.
    """
    encoding = console.encoding
    out(console, Text(""), _verdict(report, encoding))
    out(console, *section("", labelled(_difference_lines(report, encoding)), encoding))
    if report.base is not None and report.base.weakened:
        out(console, *section(comparisons.WEAKENED_TITLE, _weakened(report.base, encoding), encoding))
    if report.reasons:
        out(console, *section("Why", _reasons(report.reasons, report.verdict, encoding), encoding))
    compared = labelled(_comparison_lines(report, encoding))
    if compared is not None:
        out(console, *section("Baseline and config hash" if report.reasons else "", compared, encoding))
    out(console, *section("Noise and cost" if report.reasons else "", labelled(_figure_lines(report, encoding)), encoding))
    if report.notes:
        out(console, *section("Worth knowing", _reasons(report.notes, "", encoding), encoding))
    if report.checklist:
        out(console, *section("Checklist", _checklist(report.checklist, verbose, encoding), encoding))
    if verbose or any(wording.ended_badly(run) for run in report.runs):
        out(console, *section("Runs", _runs(report.runs, encoding), encoding))
    for run in report.runs:
        if run.log_tail and wording.ended_badly(run):
            out(console, *section(f"End of the log of {for_terminal(run.name, 40)}", _log(run, encoding), encoding))
    if report.reproduce:
        out(console, *section("See it again", None, encoding))
        command = for_encoding("  " + for_terminal(report.reproduce), encoding)
        console.print(Text(command, style="bold"), soft_wrap=True, highlight=False)  # unbroken, so that it can be copied
    out(console, Text(""))


def _verdict(report: Report, encoding: str) -> Table:
    """One line, or two at 80 columns: the verdict as a badge and its sentence."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    badge = Text(f" {report.verdict.upper()} ", style=_VERDICT_STYLE[report.verdict])
    table.add_row(badge, text(wording.headline(report), encoding, "bold"))
    return table


def _difference_lines(report: Report, encoding: str) -> Iterator[tuple[str, Text]]:
    found = report.determinism
    if found is not None and not found.comparison.identical:
        yield from _divergence_lines(found, encoding)
    if wording.compared(report):
        yield "compared", say(wording.compared(report), encoding)
    if len(report.comparisons) > 1:
        yield "seeds", _seeds(report.comparisons)
    if report.non_finite:
        losses = ", ".join(f"{value} at step {step}" for step, value in report.non_finite[:10])
        yield "loss", text((("message", f"not finite: {losses}"),), encoding, "yellow")


def _weakened(base: BaseFinding, encoding: str) -> Table:
    """What a reviewer must see: each thing that the change weakens."""
    table = grid(None)
    for item in base.weakened[:_ROWS]:
        table.add_row(text(comparisons.weakening(item), encoding, "bold yellow"))
        table.add_row(indented(text((("message", item.message),), encoding)))
    if len(base.weakened) > _ROWS:
        table.add_row(say(f"and {len(base.weakened) - _ROWS:,} more, all in the JSON report", encoding, "dim"))
    table.add_row(text(comparisons.base_policy(base), encoding, "dim"))
    return table


def _comparison_lines(report: Report, encoding: str) -> Iterator[tuple[str, Text]]:
    """The baseline, the other ref, the config hash and the base, as far as they are there."""
    baseline, against, base = report.baseline, report.against, report.base
    if baseline is not None:
        yield "baseline", _status(baseline.status, (("message", baseline.message),), encoding)
        yield from (("", text(line, encoding)) for line in comparisons.baseline_lines(baseline, _FEW))
        if baseline.remedy:
            yield "", remedy(baseline.remedy, encoding)
        if baseline.recorded:
            yield "", text((("say", "recorded "), ("message", baseline.recorded)), encoding, "dim")
    if against is not None:
        yield "against", _status(against.status, comparisons.at(against.ref, against.commit), encoding)
        yield "", text((("message", against.message),), encoding)
        yield from (("", text(line, encoding)) for line in comparisons.against_lines(against, _FEW))
    if report.config_hash is not None:
        found = report.config_hash.self_check
        yield "config hash", text(comparisons.config_hash(report.config_hash), encoding)
        yield "", say(comparisons.self_check(found), encoding, "dim" if found is None or found.complete else "bold yellow")
    if base is not None and not base.weakened:
        yield "base", text(comparisons.nothing_less(base), encoding, "dim")


def _status(status: str, phrase: Phrase, encoding: str) -> Text:
    """A status in capitals, then what it is about."""
    badge = text((("message", status.upper()),), encoding, _STATUS_STYLE.get(status, "bold"))
    return Text(overflow="fold").append_text(badge).append("  ").append_text(text(phrase, encoding))


def _figure_lines(report: Report, encoding: str) -> Iterator[tuple[str, Text]]:
    yield "noise floor", text(wording.noise(report.noise_floor), encoding)
    yield "cost", text(wording.cost(report.cost, report.cost_budget_pct), encoding)
    if report.cost is not None and report.cost.steps_needed is None:
        yield "", say(wording.step_times(report.cost), encoding)
        if wording.memory(report.cost):
            yield "", say(wording.memory(report.cost), encoding)
        if report.cost.suspicious is not None:
            yield "", text((("say", "suspicious: "), ("message", report.cost.suspicious)), encoding, "bold yellow")
    if report.settings:
        named = [f"{name}={report.settings[name]}" for name in _TELLING if name in report.settings]
        flags = "  ".join([*named, f"and {len(report.settings) - len(named)} more, as read back at every step"])
        yield "flags", text((("message", flags),), encoding, "dim")


def _divergence_lines(found: SeedResult, encoding: str) -> Iterator[tuple[str, Text]]:
    pair = found.comparison
    if pair.first_divergence is not None:
        yield "diverges at", text(wording.where(pair.first_divergence), encoding)
        if wording.how_far(pair.first_divergence):
            yield "", text(wording.how_far(pair.first_divergence), encoding)
    yield "differing", text(wording.spread(pair), encoding)
    if wording.kinds(pair):
        yield "", text((("message", wording.kinds(pair)),), encoding)
    for index, item in enumerate(pair.weights[:3]):
        line: Phrase = (("name", item.name), ("say", ": " + (", ".join(wording.distances(item)) or "distance not measured")))
        yield "at the end" if index == 0 else "", text(line, encoding)
    if len(pair.weights) > 3:
        yield "", say(f"and {numbers.count(len(pair.weights) - 3, 'tensor')} more", encoding, "dim")


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
    table = grid(None)
    style = {"fail": "bold red", "inconclusive": "bold yellow"}.get(verdict, "bold")
    for reason in reasons[:_ROWS]:
        table.add_row(text((("name", reason.id),), encoding, style))
        table.add_row(indented(text((("message", reason.message),), encoding)))
        if reason.remedy:
            table.add_row(indented(remedy(reason.remedy, encoding)))
    if len(reasons) > _ROWS:
        table.add_row(say(f"and {len(reasons) - _ROWS} more, all in the JSON report", encoding, "dim"))
    return table


def _checklist(checklist: Sequence[CheckResult], verbose: bool, encoding: str) -> Table:
    """A line for each category, under it what did not pass, the worst first; then, in one line, what was never declared."""
    table = grid(12, None)
    hidden = ("pass",) if verbose else ("pass", "skip")
    open_items = [item for item in wording.worst_first(checklist) if item.status not in hidden]
    for category, passed, made in wording.coverage(checklist):
        full = 0 < made == passed
        table.add_row(Text(category), Text(numbers.of(passed, made) if made else "nothing checked", style="green" if full else "yellow"))
        here = [item for item in open_items if item.category == category]
        for item in here[:_ROWS]:
            line: Phrase = (("name", item.id), ("say", " "), ("message", item.message))
            table.add_row("", Text(f"{item.status} ", style=STATUS_STYLE[item.status]).append_text(text(line, encoding)))
            if item.status in ("warn", "fail"):
                for below in (*evidence(item, encoding), *([remedy(item.remedy, encoding)] if item.remedy else [])):
                    table.add_row("", indented(below))
        if len(here) > _ROWS:
            table.add_row("", say(f"and {len(here) - _ROWS} more, all in the JSON report", encoding, "dim"))
    if wording.undeclared(checklist):
        table.add_row("", say(wording.undeclared(checklist), encoding, "dim"))
    return table


def _runs(runs: Sequence[RunSummary], encoding: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title, right in (("run", False), ("seed", True), ("steps", True), ("processes", True), ("time", True), ("ended", False)):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for run in runs[:_ROWS]:
        table.add_row(
            text((("name", run.name),), encoding),
            str(run.seed),
            f"{run.steps:,}",
            f"{run.processes:,}",
            numbers.duration(run.seconds),
            text((("message", wording.outcome(run)),), encoding, "bold red" if wording.ended_badly(run) else ""),
        )
    if len(runs) > _ROWS:
        table.add_row(Text(f"and {len(runs) - _ROWS} more", style="dim"))
    return table


def _log(run: RunSummary, encoding: str) -> Table:
    table = grid(1, None)
    for line in run.log_tail[-_LOG:]:
        table.add_row(Text("|", style="dim"), text((("message", line),), encoding))
    return table


STATUS_STYLE = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "waived": "cyan"}
_ROLE_STYLE = {"say": "", "figure": "bold", "name": "bold cyan", "message": ""}
WIDE = 2_000  # columns where there is no terminal: more than any text that a report shows
_RULE = 80  # columns of a rule at most
EVIDENCE = 5  # lines of a check's evidence that a person sees
_LIMITS = {"name": 160, "message": 600}  # characters


def out(console: Console, *parts: RenderableType) -> None:
    """Print each part as it is: no markup, no emoji codes."""
    for part in parts:
        width = min(console.width, _RULE) if isinstance(part, Rule) else None
        console.print(part, width=width, highlight=False, emoji=False, markup=False)


def unwrapped(console: Console, show: Callable[[], None]) -> None:
    """Print what `show` prints to a console that is no terminal without the spaces at the ends of lines, which tables fill up."""
    with console.capture() as kept:
        show()
    print("\n".join(line.rstrip(" ") for line in kept.get().split("\n")), end="", file=console.file, flush=True)


def text(phrase: Phrase, encoding: str, style: str = "") -> Text:
    """A phrase as one line that folds, its foreign parts clipped and made visible."""
    line = Text(style=style, overflow="fold")
    for role, words in phrase:
        safe = for_terminal(words, _LIMITS[role]) if role in _LIMITS else words
        line.append(for_encoding(safe, encoding), style=_ROLE_STYLE[role])
    return line


def say(words: str, encoding: str, style: str = "") -> Text:
    """Our own words."""
    return text((("say", words),), encoding, style)


def indented(line: Text) -> Padding:
    """Two columns further in."""
    return Padding(line, (0, 0, 0, 2))


def remedy(words: str, encoding: str) -> Text:
    """What to do."""
    return text((("say", "remedy: "), ("message", words)), encoding, "green")


def grid(*widths: int | None) -> Table:
    """Columns without lines: a fixed width each, None for the one that takes the rest."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for width in widths:
        table.add_column(width=width, no_wrap=False, overflow="fold")
    return table


def labelled(lines: Iterable[tuple[str, Text]]) -> Table | None:
    """Lines with a label each; None where there are none."""
    table = grid(11, None)
    for label, line in lines:
        table.add_row(Text(label, style="dim"), line)
    return table if table.row_count else None


def section(title: str, body: RenderableType | None, encoding: str) -> Iterator[RenderableType]:
    """A blank line, a titled rule where there is a title, the body where there is one."""
    if title or body is not None:
        yield Text("")
    if title:
        yield Rule(for_encoding(title, encoding), align="left", style="dim", characters="─" if _is_utf(encoding) else "-")
    if body is not None:
        yield Padding(body, (0, 0, 0, 2), expand=False)


def _is_utf(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def evidence(item: CheckResult, encoding: str) -> Iterator[Text]:
    """The first lines of what a check saw, and how many more there are."""
    lines, more = wording.few(item.evidence, EVIDENCE)
    for line in lines:
        yield text((("message", line),), encoding, "dim")
    if more:
        yield say(f"and {more:,} more", encoding, "dim")
