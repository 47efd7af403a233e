"""The report below its first lines, section by section. The terminal (`-v`), the comment and the
summary of a job walk over the same blocks, so each of them says the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import (
    Comparison,
    Divergence,
    Equivalence,
    NoiseFloor,
    Resumption,
)
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import and_more, clip, listed
from repro_gate.report import comparisons, findings, numbers, wording
from repro_gate.report.findings import DIVERGED
from repro_gate.report.heat_map import text_map
from repro_gate.report.model import Reason, Report
from repro_gate.report.wording import Phrase, phrase, say
from repro_gate.trace import notebook

WHOLE = 5  # from this rank on a section is shown only where the whole report is
MAP = 4  # rank of the heat map, the first to go of what a reviewer acts on
_EVIDENCE = 5  # lines of a check's evidence that a person sees
_LINE = 200  # characters of a line of a log
_COMMAND = 4_000  # characters of a command: half a command is none
_FARTHEST = 4  # tensors that are farthest apart at the end
_SEEN = 5  # weakened checks that a comment shows


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
    """Text that stays as it is: `sh` is a command, to be copied."""

    text: str
    language: str = "text"


Block: TypeAlias = Facts | Items | Table | Code


@dataclass(frozen=True)
class Section:
    """Blocks under a title in our own words; without one they are part of what is seen first. The
    larger the rank, the sooner it goes where room is short; 0 never goes. The page shows what is of
    the kind `answer` first, has a drawing of its own for `drawn`, and one beside
    `cost`."""

    title: str
    rank: int
    blocks: tuple[Block, ...]
    kind: str = ""


def sections(
    report: Report, rows: int, *, whole: bool = True, known: Sequence[Reason] = ()
) -> list[Section]:
    """Return what there is to say, at most `rows` entries in a list; without `whole` what a
    reviewer acts on. Reasons that are `known` were told above."""
    found = report.determinism
    differs = None if found is None or found.identical else found
    reasons = [item for item in report.reasons if item not in known]
    compared = [Facts(tuple(_differs(report, rows)))]
    title = "What differs and how far" if differs else "What was compared"
    first = 0 if whole else 1  # the comment says the first line in its table
    checks = "Checklist" if whole else "Checks that did not pass"
    checklist = list(_checklist(report.checklist, rows, whole))
    told = [reason_items(reasons, rows, report.diagnosis if whole else None)]
    without = _map(report.noise_floor) if differs is None else []
    command = [Code(report.reproduce, "sh")]
    baseline: tuple[Phrase, ...] = ()
    if (entry := report.baseline) is not None:
        lines = comparisons.baseline_lines(entry, rows)
        baseline = (*lines[first:], *_remedy(entry.remedy))
    against: tuple[Phrase, ...] = ()
    if report.against is not None:
        against = comparisons.against_lines(report.against, rows)[first:]
    made: tuple[tuple[str, int, str, Sequence[Block]], ...] = (
        ("Weakened checks", 0, "answer", _weakened(report, rows if whole else _SEEN)),
        ("", 1, "drawn", _source(report.diagnosis)),
        ("", 2, "answer", _logs(report, rows, 5 if whole else 1)),
        (title, WHOLE + 2, "answer", compared),
        ("Reasons and what to do", 2, "answer", told),
        ("How the cause was found", WHOLE + 1, "", _background(report.diagnosis, rows)),
        ("Where they differ, by module and step", MAP, "drawn", _map(differs)),
        ("Without the flags, by module and step", WHOLE + 2, "drawn", without),
        ("Resume", 3, "", [Items(tuple(_legs(report.resume)))]),
        ("Equivalent ways", 3, "", [Items(tuple(_ways(report.equivalences)))]),
        ("Against the baseline", 3, "answer", [_lines(baseline)]),
        ("Against another ref", 3, "answer", [_lines(against)]),
        ("Noise and cost", WHOLE, "cost", [Facts(tuple(_figures(report)))]),
        (checks, 3, "", checklist),
        ("Config hash", WHOLE + 3, "", _config_hash(report, rows)),
        ("Worth knowing", WHOLE, "", [reason_items(report.notes, rows)]),
        ("Runs", WHOLE + 1, "", [_runs(report, rows)]),
        ("Environment", WHOLE + 3, "", [_named(_environment(report), rows)]),
        ("Flags as read back", WHOLE + 3, "", [_named(_settings(report), rows)]),
        (
            "See it again",
            2,
            "answer",
            command if 0 < len(report.reproduce) <= _COMMAND else [],
        ),
    )
    filled = (
        Section(
            title,
            rank,
            tuple(block for block in blocks if isinstance(block, Code) or block.rows),
            kind,
        )
        for title, rank, kind, blocks in made
        if whole or rank < WHOLE
    )
    return [item for item in filled if item.blocks]


def _lines(lines: Iterable[Phrase]) -> Block:
    """Return sentences without a label."""
    return Facts(tuple(("", line) for line in lines))


def _remedy(words: str) -> list[Phrase]:
    return (
        [phrase("{figure} {message}", figure="Remedy:", message=words)] if words else []
    )


def _left(count: int) -> list[Phrase]:
    more = and_more(count)
    return [say(f"{more}, all in the JSON report")] if more else []


def _weakened(report: Report, rows: int) -> list[Block]:
    """Return what a reviewer must see: each thing that the change weakens."""
    base = report.base
    if base is None or not base.weakened:
        return []
    lines = [comparisons.weakening(item) for item in base.weakened[:rows]]
    lines += _left(len(base.weakened) - rows)
    judge = phrase(
        "{}. {figure} say in the pull request why the weaker check is enough, or take it back.",
        comparisons.base_policy(base),
        figure="What to do:",
    )
    return [Items(tuple((line,) for line in lines)), _lines([judge])]


def source_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the cause's line, marked, and those around it, with their numbers."""
    digits = max((len(str(number)) for number, _ in diagnosis.excerpt), default=0)
    return [
        f"{'>' if number == diagnosis.line else ' '} {number:>{digits}} | "
        + clip(text.expandtabs(4).replace("\n", " "), 120)
        for number, text in diagnosis.excerpt
    ]


def _source(diagnosis: Diagnosis | None) -> list[Block]:
    return (
        [Code("\n".join(source_lines(diagnosis)))]
        if diagnosis is not None and diagnosis.excerpt
        else []
    )


def _logs(report: Report, rows: int, most: int) -> list[Block]:
    """Return the end of the log of each run that ended badly."""
    ended = [run for run in report.runs if run.log_tail and wording.ended_badly(run)]
    blocks: list[Block] = []
    for run in ended[:most]:
        title = phrase("End of the log of {name}:", name=run.name)
        log = "\n".join(clip(line, _LINE) for line in run.log_tail[-rows:])
        blocks += [_lines([title]), Code(log)]
    return blocks


def reason_items(
    reasons: Sequence[Reason], rows: int, why: Diagnosis | None = None
) -> Items:
    """Return id, message and remedy of each reason; the cause below the first that it explains."""
    items: list[tuple[Phrase, ...]] = []
    for item in reasons[:rows]:
        behind: tuple[Phrase, ...] = ()
        if why is not None and item.id in DIVERGED:
            behind = findings.why(why)
            why = None
        first = phrase("{id} {message}", id=item.id, message=item.message)
        items.append((first, *behind, *_remedy(item.remedy)))
    return Items((*items, *((line,) for line in _left(len(reasons) - rows))))


def _differs(report: Report, rows: int) -> Iterator[tuple[str, Phrase]]:
    found = report.determinism
    if found is not None and not found.identical:
        if found.first_divergence is not None:
            yield "diverges at", wording.where(found.first_divergence)
            yield "", wording.how_far(found.first_divergence)
        yield "differing", wording.spread(found)
        yield "", say(wording.kinds(found), "message")
        most = min(rows, _FARTHEST)
        for index, item in enumerate(found.weights[:most]):
            far = ", ".join(wording.apart(item)) or "distance not measured"
            line = phrase(f"{{name}}: {far}", name=item.name)
            yield "at the end" if index == 0 else "", line
        yield from (("", line) for line in _left(len(found.weights) - most))
    if wording.compared(report):
        yield "compared", say(wording.compared(report))
        yield "runs", say(wording.bound(report))
    if found is not None and len(found.seeds) > 1:
        yield "seeds", say(wording.seeds(report))
    if report.base is not None and not report.base.weakened:
        yield "base", comparisons.base_policy(report.base)
    if lost := wording.non_finite(report):
        yield "loss", phrase("not finite: {message}", message=lost)


def _background(diagnosis: Diagnosis | None, rows: int) -> list[Block]:
    """Return what was seen and ruled out on the way to the cause."""
    if diagnosis is None:
        return []
    operators = tuple(
        (
            say(item.name, "name"),
            say(item.phase, "message"),
            _place(item.file, item.line),
            say("same" if item.same_inputs else "differ"),
            say("same") if item.same_outputs else say("differ", "figure"),
        )
        for item in diagnosis.operators[:rows]
    )
    uses = tuple(
        (
            say(item.factor, "message"),
            say(item.call, "name"),
            _place(item.file, item.line),
            say(f"{item.count:,}"),
            say("differ", "figure") if item.differs else say("same"),
        )
        for item in diagnosis.uses[:rows]
    )
    return [
        Items(tuple((line,) for line in findings.background(diagnosis))),
        Table(("operator", "phase", "line", "inputs", "outputs"), operators),
        Table(("factor", "call", "line", "times", "answers"), uses),
    ]


def _place(file: str, line: int) -> Phrase:
    return say(notebook.place(file, line), "name") if file else ()


def _map(pair: Comparison | NoiseFloor | None) -> list[Block]:
    if pair is None or pair.identical or pair.heat_map is None:
        return []
    text = text_map(pair.heat_map, pair.first_divergence)
    return [Code(text)] if text else []


def _legs(found: Resumption | None) -> Iterator[tuple[Phrase, ...]]:
    """Yield each leg of a training that went on, and what it did not get back."""
    for leg in found.legs if found else ():
        words = "leg {figure}, steps {message}: "
        words += "bitwise identical" if leg.identical else "another training"
        lines = [
            phrase(
                words, figure=str(leg.number), message=f"{leg.begins} to {leg.ends - 1}"
            )
        ]
        lines += [
            phrase("{id} {message}", id=item.component, message=item.message)
            for item in leg.not_restored
        ]
        if leg.first_divergence:
            lines.append(phrase("diverges at {}", wording.where(leg.first_divergence)))
        yield tuple(lines)


def _ways(found: Sequence[Equivalence]) -> Iterator[tuple[Phrase, ...]]:
    """Yield each other way to the same training, how far it is apart at most, and why."""
    for item in found:
        words = "the same training" if item.equivalent else "another training"
        lines = [phrase(f"{{id}} {words}, compared {item.compare}", id=item.name)]
        if item.detail:
            lines.append(say(item.detail, "message"))
        lines.append(phrase("steps compared: {figure}", figure=str(item.steps)))
        for label, apart in (("first", item.first), ("farthest", item.worst)):
            if apart is not None:
                place = Divergence(step=apart.step, kind=apart.kind, name=apart.name)
                count = apart.roundings
                far = "" if count is None else f": {wording.roundings(count)}"
                lines.append(phrase(f"{label}: {{}}{far}", wording.where(place)))
        if item.likely:
            lines.append(say(item.likely, "message"))
        yield tuple(lines)


def check_items(results: Iterable[CheckResult]) -> Items:
    """Return each check with its message and evidence; of what warns or fails, what to do."""
    items: list[tuple[Phrase, ...]] = []
    for item in results:
        words = "{status} {id} {message}"
        line = phrase(words, status=item.status, id=item.id, message=item.message)
        below = [say(str(entry), "seen") for entry in item.evidence[:_EVIDENCE]]
        if more := and_more(len(item.evidence) - _EVIDENCE):
            below.append(say(more))
        below += _remedy(item.remedy) if item.status in ("warn", "fail") else []
        items.append((line, *below))
    return Items(tuple(items))


def _checklist(
    checklist: Sequence[CheckResult], rows: int, whole: bool
) -> Iterator[Block]:
    shown = ("fail", "warn", "waived", "skip") if whole else ("fail", "warn")
    if whole and checklist:
        counted = (
            (category, say(numbers.of(passed, made) if made else "nothing checked"))
            for category, passed, made in wording.coverage(checklist)
        )
        yield Facts(tuple(counted))
    listed_here = [
        item
        for item in wording.worst_first(checklist)
        if item.status in shown and not wording.is_undeclared(item)
    ]
    left = ((line,) for line in _left(len(listed_here) - rows))
    yield Items((*check_items(listed_here[:rows]).rows, *left))
    named = {
        "passed": [item.id for item in checklist if item.status == "pass"],
        "not declared": [item.id for item in checklist if wording.is_undeclared(item)],
    }
    for label, ids in named.items():
        if whole and ids:
            more = _left(len(ids) - rows)
            listing = [say(name, "id") for name in ids[:rows]]
            yield Facts(((label, wording.joined([*listing, *more])),))


def _figures(report: Report) -> Iterator[tuple[str, Phrase]]:
    yield "noise floor", wording.noise(report.noise_floor)
    yield "cost", comparisons.cost(report.cost)
    if (price := report.cost) is not None:
        flags = numbers.milliseconds(price.deterministic_step_ms)
        none = numbers.milliseconds(price.default_step_ms)
        timed = numbers.count(price.timed_steps, "step")
        times = f"{flags} a step against {none} where runs are fastest, {timed} timed"
        yield "", say(times)  # of the fastest fortieth of each run
        yield "", say(comparisons.memory(price))
        yield from (("", line) for line in comparisons.doubts(price))
    if spent := comparisons.times_spent(report):
        yield "time", say(spent)


def _config_hash(report: Report, rows: int) -> list[Block]:
    found = report.config_hash
    if found is None:
        return []
    named = tuple((name, say(root, "name")) for name, root in comparisons.roots(found))
    inputs = tuple(
        (say(root), say(name, "name"), say(value, "name"))
        for root, name, value in islice(comparisons.inputs(found), rows)
    )
    left = _left(sum(len(inputs) for _, _, inputs in found.roots()) - rows)
    return [
        Facts(named),
        Table(("root", "input", "value"), inputs),
        _lines(left),
    ]


def _runs(report: Report, rows: int) -> Block:
    lines = tuple(
        (
            say(run.name, "name"),
            say(str(run.seed)),
            say(f"{run.steps:,}"),
            say(f"{run.processes:,}"),
            say(numbers.duration(run.seconds)),
            say(
                wording.outcome(run),
                "fault" if wording.ended_badly(run) else "message",
            ),
        )
        for run in report.runs[:rows]
    )
    return Table(("run", "seed", "steps", "processes", "time", "ended"), lines)


def _environment(report: Report) -> dict[str, object]:
    """Return what was gated and on what. Names of ours are not taken over by what the training
    reported."""
    subject = report.subject
    facts: dict[str, object] = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        "sandbox": subject.sandbox,
    }
    if subject.uncommitted:
        facts["uncommitted changes"] = listed(subject.uncommitted, 10)
    return {**dict(sorted(subject.versions.items())), **facts}


def _settings(report: Report) -> dict[str, object]:
    """Return the flags as read back; of runs that were not compared those of the first."""
    if report.determinism is not None:
        return dict(sorted(report.determinism.determinism_settings.items()))
    ended_well = (
        run
        for run in report.runs
        if run.arm == "deterministic" and not wording.ended_badly(run)
    )
    return next((dict(sorted(run.settings.items())) for run in ended_well), {})


def _named(values: Mapping[str, object], rows: int) -> Block:
    lines = tuple(
        (say(name, "name"), say(str(value), "name"))
        for name, value in islice(values.items(), rows)
    )
    return Table(("name", "value"), lines)
