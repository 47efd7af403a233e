"""The sections of the report below its first lines. The terminal (`-v`), the comment and a job's
summary render the same blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import (
    Comparison,
    Equivalence,
    Resumption,
)
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, clip, listed
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.findings import DIVERGED
from repro_gate.report.heat_map import spread
from repro_gate.report.model import Reason, Report, Subject
from repro_gate.report.wording import Phrase, phrase, say

WHOLE = 5  # sections of this rank or above are shown only in the whole report
MAP = 4  # rank of what the heat map shows, which a short report drops first
_EVIDENCE = 5  # lines of a check's evidence that a person sees
_LINE = 200  # characters of a line of a log
_COMMAND = 4_000  # characters of a command; a longer one is left out, not cut
_FARTHEST = 4  # tensors that are farthest apart at the end
_SEEN = 5  # weakened checks that a comment shows
_SAME = {True: "same", False: "differ"}


@dataclass(frozen=True)
class Facts:
    """Lines with a label each, which may be empty."""

    rows: tuple[tuple[str, Phrase], ...]


@dataclass(frozen=True)
class Items:
    """Entries of a list: a line each, and the lines below it."""

    rows: tuple[tuple[Phrase, ...], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under their titles."""

    head: tuple[str, ...]
    rows: tuple[tuple[Phrase, ...], ...]


@dataclass(frozen=True)
class Code:
    """Text that is shown unchanged: `sh` is a command to copy."""

    text: str
    language: str = "text"


Block: TypeAlias = Facts | Items | Table | Code
_Row = tuple[str, int, str, Sequence[Block]]  # a section's title, rank, kind, blocks


@dataclass(frozen=True)
class Section:
    """Blocks under a title. Without a title they belong to the first lines. If space is short,
    sections with the largest rank are dropped first, rank 0 never. The HTML page shows the kind
    `answer` first, replaces `drawn` by a drawing, and adds a drawing to `cost`."""

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
    """Return the sections, with at most `rows` entries in a list; without `whole` only those that a
    reviewer acts on. Reasons in `known` are shown above already."""
    reasons = [item for item in report.reasons if item not in known]
    found = []
    for title, rank, kind, blocks in (
        *_on_divergence(report, reasons, rows, whole),
        *_on_the_rest(report, rows, whole),
    ):
        filled = tuple(
            block
            for block in blocks
            if (block.text if isinstance(block, Code) else block.rows)
        )
        if filled and (whole or rank < WHOLE):
            found.append(Section(title, rank, filled, kind))
    return found


def _on_divergence(
    report: Report, reasons: Sequence[Reason], rows: int, whole: bool
) -> Iterator[_Row]:
    """Yield the sections on weakened checks, on what differs, and on the cause."""
    why = report.diagnosis
    title = "What was compared"
    if wording.diverged(report):
        title = "What differs and how far"
    explained = why if whole else None
    yield "Weakened checks", 0, "answer", _weakened(report, rows if whole else _SEEN)
    source = "\n".join(source_lines(why))
    yield "", 1, "drawn", [Code(source)]
    yield "", 2, "answer", _logs(report, rows, 5 if whole else 1)
    yield title, WHOLE + 2, "answer", [_comparison(report, rows)]
    items = reason_items(reasons, rows, explained)
    yield "Reasons and what to do", 2, "answer", [items]
    yield "How the cause was found", WHOLE + 1, "", _background(why, rows)
    yield "Where they differ", MAP, "drawn", [_map(report.determinism)]


def _on_the_rest(report: Report, rows: int, whole: bool) -> Iterator[_Row]:
    """Yield the sections on other comparisons, measurements and checks, and on the runs."""
    yield "Resume", 3, "", [_legs(report.resume)]
    yield "Equivalent ways", 3, "", [_ways(report.equivalences)]
    # Without `whole` the table above has the first line of each.
    above = 0 if whole else 1
    baseline = report.baseline
    if baseline is not None:
        lines = comparisons.baseline_lines(baseline, rows)[above:]
        facts = _lines(*lines, *_remedy(baseline.remedy))
        yield "Against the baseline", 3, "answer", [facts]
    if report.against is not None:
        lines = comparisons.against_lines(report.against, rows)[above:]
        yield "Against another ref", 3, "answer", [_lines(*lines)]
    yield "Noise and cost", WHOLE, "cost", [_figures(report)]
    title = "Checklist" if whole else "Checks that did not pass"
    yield title, 3, "", _checklist(report.checklist, rows, whole)
    yield "Config hash", WHOLE + 3, "", _config_hash(report, rows)
    yield "Worth knowing", WHOLE, "", [reason_items(report.notes, rows)]
    yield "Runs", WHOLE + 1, "", [_runs(report, rows)]
    environment = _environment(report.subject)
    yield "Environment", WHOLE + 3, "", [_values(environment, rows)]
    settings = _settings(report)
    yield "Flags as read back", WHOLE + 3, "", [_values(settings, rows)]
    if len(report.reproduce) <= _COMMAND:
        yield "See it again", 2, "answer", [Code(report.reproduce, "sh")]


def _facts(*rows: tuple[str, Phrase]) -> Facts:
    return Facts(tuple(row for row in rows if row[1]))


def _lines(*lines: Phrase) -> Facts:
    """Return sentences without a label."""
    return _facts(*(("", line) for line in lines))


def _items(entries: Iterable[Iterable[Phrase]], left: int = 0) -> Items:
    """Return entries without their empty lines, and how many more there are."""
    every = []
    for lines in (*entries, [_more(left)]):
        filled = tuple(filter(None, lines))
        if filled:
            every.append(filled)
    return Items(tuple(every))


def _cells(roles: str, *texts: object) -> tuple[Phrase, ...]:
    """Return a row of a table: a text for each role."""
    pairs = zip(roles.split(), texts, strict=True)
    cells = [say(str(text), role) for role, text in pairs]
    return tuple(cells)


def _remedy(words: str) -> tuple[Phrase, ...]:
    line = phrase("{figure} {message}", figure="Remedy:", message=words)
    return (line,) if words else ()


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


def _logs(report: Report, rows: int, most: int) -> list[Block]:
    """Return the end of the log of each run that ended badly."""
    ended = [run for run in report.runs if run.log_tail and wording.ended_badly(run)]
    blocks: list[Block] = []
    for run in ended[:most]:
        title = phrase("End of the log of {name}:", name=run.name)
        lines = [clip(line, _LINE) for line in run.log_tail[-rows:]]
        text = "\n".join(lines)
        blocks += [_lines(title), Code(text)]
    return blocks


def reason_items(
    reasons: Sequence[Reason], rows: int, why: Diagnosis | None = None
) -> Items:
    """Return id, message and remedy of each reason. The cause is below the first reason that it
    explains."""
    entries: list[Sequence[Phrase]] = []
    for item in reasons[:rows]:
        explained = why if item.id in DIVERGED else None
        why = None if explained else why
        line = phrase("{id} {message}", id=item.id, message=item.message)
        entries.append((line, *findings.why(explained), *_remedy(item.remedy)))
    return _items(entries, len(reasons) - rows)


def _comparison(report: Report, rows: int) -> Facts:
    """Return in what and how far two runs differ; for equal runs, what was compared."""
    facts: list[tuple[str, Phrase]] = []
    pair = report.determinism
    if pair is not None and not pair.identical:
        facts += [
            ("diverges at", wording.where(pair.first_divergence)),
            ("", wording.how_far(pair.first_divergence)),
            ("differing", wording.spread(pair)),
            ("", say(wording.kinds(pair), "message")),
        ]
        most = min(rows, _FARTHEST)
        label = "at the end"
        for item in pair.weights[:most]:
            far = ", ".join(wording.distances(item)) or "distance not measured"
            facts.append((label, phrase(f"{{name}}: {far}", name=item.name)))
            label = ""
        facts.append(("", _more(len(pair.weights) - most)))
    base = report.base
    return _facts(
        *facts,
        ("compared", say(wording.compared(report))),
        ("runs", say(wording.bound(report))),
        ("seeds", say(wording.seeds(report))),
        ("base", comparisons.base_policy(base) if base and not base.weakened else ()),
        ("loss", say(wording.non_finite(report), "message")),
    )


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


def _map(pair: Comparison | None) -> Facts:
    if pair is None or pair.identical or pair.heat_map is None:
        return Facts(())
    return _lines(say(spread(pair.heat_map, pair.first_divergence), "message"))


def _legs(resumption: Resumption | None) -> Items:
    """Return each leg of a resumed training, and what it did not restore."""
    entries = []
    for leg in resumption.legs if resumption else ():
        words = "bitwise identical" if leg.identical else "different"
        steps = f"{leg.begins} to {leg.ends - 1}"
        line = phrase(
            f"leg {{figure}}, steps {{message}}: {words}",
            figure=str(leg.number),
            message=steps,
        )
        missing = [
            phrase("{id} {message}", id=item.component, message=item.message)
            for item in leg.not_restored
        ]
        first = wording.where(leg.first_divergence)
        entries.append(
            [line, *missing, phrase("diverges at {}", first) if first else ()]
        )
    return _items(entries)


def _ways(ways: Sequence[Equivalence]) -> Items:
    """Return each equivalent way, its largest distance, and the likely cause of it."""
    entries = []
    for item in ways:
        words = "the same training" if item.equivalent else "a different training"
        lines = [
            phrase(f"{{id}} {words}, compared {item.compare}", id=item.name),
            say(item.detail, "message"),
            phrase("steps compared: {figure}", figure=str(item.steps)),
        ]
        places = {"first": item.first, "farthest": item.worst}
        for label, apart in places.items():
            if apart is not None:
                count = apart.roundings
                far = "" if count is None else f": {wording.roundings(count)}"
                lines.append(phrase(f"{label}: {{}}{far}", wording.where(apart.place)))
        entries.append([*lines, say(item.likely, "message")])
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
        entries.append([line, *evidence[:_EVIDENCE], more, *remedy])
    return _items(entries, left)


def _checklist(checklist: Sequence[CheckResult], rows: int, whole: bool) -> list[Block]:
    undeclared = [item for item in checklist if wording.is_undeclared(item)]
    statuses = ("fail", "warn", "waived", "skip") if whole else ("fail", "warn")
    results = [
        item
        for item in wording.worst_first(checklist)
        if item.status in statuses and item not in undeclared
    ]
    items = check_items(results[:rows], len(results) - rows)
    if not whole or not checklist:
        return [items]
    coverage = (
        (category, say(numbers.of(passed, made) if made else "nothing checked"))
        for category, passed, made in wording.coverage(checklist)
    )
    passed = [item for item in checklist if item.status == "pass"]
    others = (
        _facts((label, _ids(group, rows)))
        for label, group in (("passed", passed), ("not declared", undeclared))
    )
    return [_facts(*coverage), items, *others]


def _ids(results: Sequence[CheckResult], rows: int) -> Phrase:
    parts = [say(item.id, "id") for item in results[:rows]]
    more = _more(len(results) - rows)
    if more:
        parts.append(more)
    return wording.joined(parts)


def _figures(report: Report) -> Facts:
    cost = report.cost
    times = ""
    if cost is not None:
        with_flags = numbers.milliseconds(cost.deterministic_step_ms)
        without = numbers.milliseconds(cost.default_step_ms)
        steps = numbers.count(cost.timed_steps, "step")
        # These are the times of the fastest fortieth of each run's steps.
        times = f"{with_flags} a step against {without} (fastest steps; {steps} timed)"
    return _facts(
        ("noise floor", wording.noise(report.noise_floor)),
        ("cost", comparisons.cost(cost)),
        ("", say(times)),
        ("", say(comparisons.memory(cost))),
        ("", comparisons.doubt(cost)),
        ("time", say(comparisons.times_spent(report))),
    )


def _config_hash(report: Report, rows: int) -> list[Block]:
    hashed = report.config_hash
    if hashed is None:
        return []
    facts = [("config hash", say(hashed.config_hash, "name"))]
    for root, digest, _ in hashed.roots():
        facts.append((root, say(digest, "name")))
    inputs = [_cells("say name name", *item) for item in comparisons.inputs(hashed)]
    more = _more(len(inputs) - rows)
    return [
        _facts(*facts),
        Table(("root", "input", "value"), tuple(inputs[:rows])),
        _lines(more),
    ]


def _runs(report: Report, rows: int) -> Table:
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
        for run in report.runs[:rows]
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
    if subject.uncommitted:
        ours["uncommitted changes"] = listed(subject.uncommitted, 10)
    return {**dict(sorted(subject.versions.items())), **ours}


def _settings(report: Report) -> Mapping[str, object]:
    """Return the flags as read back in the first deterministic run that ended well."""
    ended_well = (
        run.settings
        for run in report.runs
        if run.arm == "deterministic" and not wording.ended_badly(run)
    )
    return dict(sorted(next(ended_well, {}).items()))


def _values(values: Mapping[str, object], rows: int) -> Table:
    cells = [_cells("name name", *item) for item in values.items()]
    shortened = tuple(cells[:rows])
    return Table(("name", "value"), shortened)
