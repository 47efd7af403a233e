"""The sections of the report below its first lines. The terminal (`-v`), the comment and a job's
summary render the same blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.change import Equivalence
from repro_gate.compare.model import Comparison, Resumption
from repro_gate.compare.operators import Operators
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, clip, counted, listed
from repro_gate.report import change, comparisons, findings, numbers, operators, wording
from repro_gate.report.glance import Row, first_rows, reasons_above
from repro_gate.report.model import Reason, Report, RunSummary, Subject
from repro_gate.report.wording import Phrase, phrase, say

WHOLE = 5  # sections of this rank or above are shown only in the whole report
_EVIDENCE = 5  # lines of a check's evidence that a person sees
_LINE = 200  # characters of a line of a log
_COMMAND = 4_000  # characters of a command; a longer one is left out, not cut
_FARTHEST = 4  # tensors that are farthest apart at the end
_SEEN = 5  # weakened checks that a comment shows
_SAME = {True: "same", False: "differ"}


@dataclass(frozen=True)
class Items:
    """Entries of a list: a line each, and the lines below it."""

    rows: tuple[tuple[Phrase, ...], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under their titles, which may all be empty."""

    head: tuple[str, ...]
    rows: tuple[tuple[Phrase, ...], ...]


@dataclass(frozen=True)
class Code:
    """Text that is shown unchanged: `sh` is a command to copy."""

    text: str
    language: str = "text"


Block: TypeAlias = Items | Table | Code
_Row = tuple[str, int, str, Sequence[Block]]  # a section's title, rank, kind, blocks


@dataclass(frozen=True)
class Section:
    """Blocks under a title. Without a title they belong to the first lines. If space is short,
    sections with the largest rank are dropped first, rank 0 never. The HTML page shows the kind
    `answer` first, and a drawing instead of `drawn`."""

    title: str
    rank: int
    blocks: tuple[Block, ...]
    kind: str = ""


def sections(
    report: Report,
    rows: int,
    *,
    whole: bool = True,
    known: Sequence[Reason] = (),
) -> list[Section]:
    """Return what the first rows leave out, with at most `rows` entries in a list; without `whole`
    only what a reviewer acts on. Reasons in `known` are shown above already."""
    found = []
    for title, rank, kind, blocks in _titled(report, rows, whole, known):
        filled = tuple(
            block
            for block in blocks
            if (block.text if isinstance(block, Code) else block.rows)
        )
        if filled and (whole or rank < WHOLE):
            found.append(Section(title, rank, filled, kind))
    return found


def whole_report(report: Report, rows: int) -> tuple[list[Row], list[Section]]:
    """Return the first rows of a report, and the sections of all that they leave out."""
    first = first_rows(report, rows)
    return first, sections(report, rows, known=reasons_above(report, first))


def labelled(rows: Sequence[Row]) -> Table:
    """Return the lines of rows, of which the first has the label."""
    cells = (
        (say("" if number else row.label), line)
        for row in rows
        for number, line in enumerate(row.lines)
    )
    return Table(("", ""), tuple(cells))


def _titled(
    report: Report, rows: int, whole: bool, known: Sequence[Reason]
) -> Iterator[_Row]:
    """Yield title, rank, kind and blocks of each section. Blocks may be empty."""
    why = report.diagnosis
    baseline = report.baseline
    title = comparisons.WEAKENED_TITLE
    yield title, 0, "answer", _weakened(report, rows if whole else _SEEN)
    yield "", 1, "drawn", [Code("\n".join(source_lines(why)))]
    yield "", 2, "answer", _logs(report.runs, rows, 5 if whole else 1)
    farthest = [_farthest(report.determinism, rows)]
    yield "Farthest apart at the end", WHOLE + 2, "answer", farthest
    reasons = [item for item in report.reasons if item not in known]
    yield "Reasons and what to do", 2, "answer", [reason_items(reasons, rows)]
    yield "How the cause was found", WHOLE + 1, "", _background(why, rows)
    yield "Resume", 3, "", [_legs(report.resume)]
    yield "Equivalent ways", 3, "", [_ways(report.equivalences)]
    if baseline is not None:
        lines = comparisons.baseline_lines(baseline, rows)[1:]
        facts = _lines(*lines, _remedy(baseline.remedy))
        yield "Against the baseline", 3, "answer", [facts]
    if report.against is not None:
        lines = comparisons.against_lines(report.against, rows)[1:]
        yield "Against another ref", 3, "answer", [_lines(*lines)]
    yield "Losses before and after", 3, "drawn", [Code(change.picture(report.change))]
    yield "Cost and time", WHOLE, "", [_figures(report)]
    yield "Operators", 3, "", operator_blocks(report.operators, rows)
    title = "Checklist" if whole else "Checks that did not pass"
    yield title, 3, "", _checklist(report.checklist, rows, whole)
    yield "Config hash", WHOLE + 3, "", _config_hash(report.config_hash, rows)
    yield "Worth knowing", WHOLE, "", [reason_items(report.notes, rows)]
    yield "Runs", WHOLE + 1, "", [_runs(report.runs, rows)]
    environment = _values(_environment(report.subject), rows)
    yield "Environment", WHOLE + 3, "", [environment]
    settings = _values(_settings(report.runs), rows)
    yield "Flags as read back", WHOLE + 3, "", [settings]
    if len(report.reproduce) <= _COMMAND:
        yield "See it again", 2, "answer", [Code(report.reproduce, "sh")]


def _lines(*lines: Phrase) -> Items:
    """Return sentences, each by itself."""
    return _items([line] for line in lines)


def _items(entries: Iterable[Iterable[Phrase]], left: int = 0) -> Items:
    """Return entries without their empty lines, and how many more there are."""
    every = (tuple(filter(None, lines)) for lines in (*entries, [_more(left)]))
    return Items(tuple(filter(None, every)))


def _cells(roles: str, *texts: object) -> tuple[Phrase, ...]:
    """Return a row of a table: a text for each role."""
    pairs = zip(roles.split(), texts, strict=True)
    return tuple(say(str(text), role) for role, text in pairs)


def _remedy(words: str) -> Phrase:
    line = phrase("{figure} {message}", figure="Remedy:", message=words)
    return line if words else ()


def _more(left: int) -> Phrase:
    more = and_more(left)
    return say(more and f"{more}, all in the JSON report")


def _weakened(report: Report, rows: int) -> list[Block]:
    """Return each check that the change weakens."""
    base = report.base
    if base is None or not base.weakened:
        return []
    lines = [[comparisons.weakening(item)] for item in base.weakened[:rows]]
    judge = phrase(
        "{}. {figure} say in the pull request why the weaker check is enough, or take it back.",
        comparisons.base_policy(base),
        figure="What to do:",
    )
    return [_items(lines, len(base.weakened) - rows), _lines(judge)]


def source_lines(diagnosis: Diagnosis | None) -> list[str]:
    """Return the cause's line, marked, and its neighbours, with line numbers."""
    if diagnosis is None:
        return []
    excerpt = diagnosis.excerpt
    digits = max((len(str(number)) for number, _ in excerpt), default=0)
    return [
        f"{'>' if number == diagnosis.line else ' '} {number:>{digits}} | "
        + clip(text.expandtabs(4).replace("\n", " "), 120)
        for number, text in excerpt
    ]


def ended_logs(
    runs: Sequence[RunSummary], rows: int, most: int
) -> Iterator[tuple[Phrase, Sequence[str]]]:
    """Yield a title and the last lines of the log of each run that ended badly."""
    ended = [run for run in runs if run.log_tail and wording.ended_badly(run)]
    for run in ended[:most]:
        lines = [clip(line, _LINE) for line in run.log_tail[-rows:]]
        yield phrase("End of the log of {name}:", name=run.name), lines


def _logs(runs: Sequence[RunSummary], rows: int, most: int) -> list[Block]:
    blocks: list[Block] = []
    for title, lines in ended_logs(runs, rows, most):
        blocks += [_lines(title), Code("\n".join(lines))]
    return blocks


def reason_items(reasons: Sequence[Reason], rows: int) -> Items:
    """Return id, message and remedy of each reason."""
    entries = (
        [
            phrase("{id} {message}", id=item.id, message=item.message),
            _remedy(item.remedy),
        ]
        for item in reasons[:rows]
    )
    return _items(entries, len(reasons) - rows)


def _farthest(pair: Comparison | None, rows: int) -> Items:
    """Return the tensors that are farthest apart at the end."""
    weights = pair.weights if pair else ()
    most = min(rows, _FARTHEST)
    entries = []
    for item in weights[:most]:
        far = ", ".join(wording.distances(item)) or "distance not measured"
        entries.append([phrase(f"{{name}}: {far}", name=item.name)])
    return _items(entries, len(weights) - most)


def _background(diagnosis: Diagnosis | None, rows: int) -> list[Block]:
    """Return what was seen and ruled out during the diagnosis."""
    if diagnosis is None:
        return []
    operators = tuple(
        _cells(
            f"name message name say {'say' if item.same_outputs else 'figure'}",
            item.name,
            item.phase,
            findings.place(item),
            _SAME[item.same_inputs],
            _SAME[item.same_outputs],
        )
        for item in diagnosis.operators[:rows]
    )
    uses = tuple(
        _cells(
            f"message name name say {'figure' if item.differs else 'say'}",
            item.factor,
            item.call,
            findings.place(item),
            f"{item.count:,}",
            _SAME[not item.differs],
        )
        for item in diagnosis.uses[:rows]
    )
    return [
        _items([line] for line in findings.background(diagnosis)),
        Table(("operator", "phase", "line", "inputs", "outputs"), operators),
        Table(("factor", "call", "line", "times", "answers"), uses),
    ]


def _legs(resumption: Resumption | None) -> Items:
    """Return each leg of a resumed training, and what it did not restore."""
    entries = []
    for leg in resumption.legs if resumption else ():
        missing = [
            phrase("{id} {message}", id=item.component, message=item.message)
            for item in leg.not_restored
        ]
        first = wording.where(leg.first_divergence)
        place = phrase("diverges at {}", first) if first else ()
        entries.append([comparisons.leg(leg), *missing, place])
    return _items(entries)


def _ways(ways: Sequence[Equivalence]) -> Items:
    """Return each equivalent way, the first that is too far apart, and the likely cause of it."""
    entries = []
    for way in ways:
        first = wording.where(way.first.place if way.first else None)
        place = phrase("differs at {}", first) if first else ()
        detail, likely = say(way.detail, "message"), say(way.likely, "message")
        entries.append([comparisons.way(way), detail, place, likely])
    return _items(entries)


def check_items(results: Iterable[CheckResult], left: int = 0) -> Items:
    """Return each check with its message and evidence, and the remedy if it warns or fails."""
    entries = []
    for item in results:
        line = phrase(
            "{status} {id} {message}",
            status=item.status,
            id=item.id,
            message=item.message,
        )
        evidence = [say(str(entry), "seen") for entry in item.evidence]
        more = say(and_more(len(evidence) - _EVIDENCE))
        remedy = _remedy(item.remedy) if item.status in ("warn", "fail") else ()
        entries.append([line, *evidence[:_EVIDENCE], more, remedy])
    return _items(entries, left)


def _checklist(checklist: Sequence[CheckResult], rows: int, whole: bool) -> list[Block]:
    statuses = ("fail", "warn", "waived", "skip") if whole else ("fail", "warn")
    results = [
        item
        for item in wording.worst_first(checklist)
        if item.status in statuses and not wording.is_undeclared(item)
    ]
    items = check_items(results[:rows], len(results) - rows)
    if not whole or not checklist:
        return [items]
    coverage = [
        (say(category), say(numbers.of(passed, made) if made else "nothing checked"))
        for category, passed, made in wording.coverage(checklist)
    ]
    passed = [item for item in checklist if item.status == "pass"]
    ids = [say(item.id, "id") for item in passed[:rows]]
    named = wording.joined([*ids, _more(len(passed) - rows)])
    return [items, Table(("", ""), (*coverage, (say("passed"), named)))]


def _figures(report: Report) -> Items:
    """Return what else was measured of the cost, and how the time of the gate was spent."""
    cost = report.cost
    lines: list[Phrase] = []
    if cost is not None:
        with_flags = numbers.milliseconds(cost.deterministic_step_ms)
        without = numbers.milliseconds(cost.default_step_ms)
        steps = counted(cost.timed_steps, "step")
        # Of whole runs, these are the times of the fastest fortieth of each run's steps.
        fastest = "fastest steps; " if cost.why else ""
        slow = counted(cost.slow_steps, "step")
        left_out = f", {slow} of five times the median or more left out"
        left_out *= bool(cost.slow_steps)
        times = (
            f"{with_flags} a step against {without} ({fastest}{steps} timed{left_out})"
        )
        lines += map(comparisons.saving, cost.flags)
        if cost.other is not None and not cost.why:
            lines.append(say(f"whole runs: {comparisons.estimate(cost.other)}"))
        lines += say(times), say(comparisons.memory(cost))
    spent = comparisons.times_spent(report)
    return _lines(*lines, say(spent and f"time of the gate: {spent}"))


def operator_blocks(found: Operators | None, rows: int) -> list[Block]:
    """Return what the operators cost, and the table of them."""
    if found is None:
        return []
    sentences = _lines(operators.sentence(found), operators.extent(found))
    titles, cells = operators.table(found, rows)
    return [sentences, *([Table(titles, cells)] if cells else [])]


def _config_hash(hashed: ConfigHash | None, rows: int) -> list[Block]:
    if hashed is None:
        return []
    every = [
        ("", "config hash", hashed.config_hash),
        *((root, "", digest) for root, digest, _ in hashed.roots()),
        *comparisons.inputs(hashed),
    ]
    cells = [_cells("say name name", *item) for item in every[:rows]]
    table = Table(("root", "input", "value"), tuple(cells))
    return [table, _lines(_more(len(every) - rows))]


def _runs(runs: Sequence[RunSummary], rows: int) -> Table:
    lines = tuple(
        _cells(
            f"name say say say say {'fault' if wording.ended_badly(run) else 'message'}",
            run.name,
            run.seed,
            f"{run.steps:,}",
            f"{run.processes:,}",
            numbers.duration(run.seconds),
            wording.outcome(run),
        )
        for run in runs[:rows]
    )
    return Table(("run", "seed", "steps", "processes", "time", "ended"), lines)


def _environment(subject: Subject) -> Mapping[str, object]:
    """Return what was gated and its environment. Facts that the training reports cannot replace
    ours."""
    ours = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        "sandbox": subject.sandbox,
    }
    if subject.gpus:
        ours["GPUs of the container"] = subject.gpus
    if subject.uncommitted:
        ours["uncommitted changes"] = listed(subject.uncommitted, 10)
    return {**dict(sorted(subject.versions.items())), **ours}


def _settings(runs: Sequence[RunSummary]) -> Mapping[str, object]:
    """Return the flags as read back in the first deterministic run that ended well."""
    for run in runs:
        if run.arm == "deterministic" and not wording.ended_badly(run):
            return dict(sorted(run.settings.items()))
    return {}


def _values(values: Mapping[str, object], rows: int) -> Table:
    cells = [_cells("name name", *item) for item in values.items()]
    return Table(("name", "value"), tuple(cells[:rows]))
