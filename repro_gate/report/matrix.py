"""Several reports in one table.

`render` makes the comment of one commit: a row for each kind of machine, and what fails below it.
Runs are compared within one machine only, so each row stands for itself; the verdict of all is that
of the worst. `between` says on a terminal what changed between two reports: a row for each finding,
check and input that is not the same, side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from repro_gate.compare.model import Cost
from repro_gate.escape import and_more, clip, for_terminal
from repro_gate.report import comparisons, findings, wording
from repro_gate.report.glance import glance
from repro_gate.report.markdown import (
    LIMIT,
    MARKS,
    Form,
    as_markdown,
    fitted,
    footer,
    section,
)
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import Block, Facts, Section, Table, sections
from repro_gate.report.terminal import laid_out
from repro_gate.report.widgets import printed, text
from repro_gate.report.wording import Phrase, phrase, say

_HEADER = (
    "Where",
    "Verdict",
    "First to differ",
    "Cause",
    "Determinism\u00a0cost",
    "Platform",
)
_WORST_FIRST = ("fail", "inconclusive", "pass")
_FORM = Form(name=120, message=400)
_ACT = 2  # rank of the sections that say what is wrong and what to do
_ROWS = 40  # of `between`
_COST = say("cost")
# rows of a glance that `between` has in another form, or that only a pass has
_ELSEWHERE = (
    "checks",
    "config hash",
    "note",
    "compared",
    "runs",
    "noise floor",
    "cost",
)


def render(reports: Sequence[Report], view: View = PLAIN) -> str:
    """Return the Markdown of a comment on `reports` (at least one), in at most `view.limit`
    characters. Rows are in the order of their names, whatever order the reports come in."""
    limit = LIMIT if view.limit is None else view.limit
    named = sorted(
        zip(_names(reports), reports, strict=True),
        key=lambda pair: (pair[0], pair[1].started),
    )
    heading = _heading(reports)
    table = Table(_HEADER, tuple(_row(name, report) for name, report in named))
    *_, commit = footer(named[0][1], view)

    def page(parts: Sequence[Markup], shortened: bool) -> str:
        more = "\n\nShortened: each job's report holds everything." * shortened
        body = (heading, as_markdown(table, _FORM), *parts, commit)
        return "\n\n".join(body) + f"{more}\n"

    def fits(text: str) -> bool:
        return len(text) <= limit

    below = [
        (_ACT, _below(name, report))
        for name, report in named
        if report.verdict != "pass"
    ]
    short = (
        f"{heading}\n\nThe table is too long for this place: see each job's report.\n"
    )
    texts = (fitted(page, below, fits), short)
    return next(filter(fits, texts), verdict(reports)[:limit])


def verdict(reports: Sequence[Report]) -> str:
    """Return the worst verdict: one kind of machine that fails fails all."""
    return min((report.verdict for report in reports), key=_WORST_FIRST.index)


def _names(reports: Sequence[Report]) -> list[str]:
    """Return what tells each report from its siblings: the GPU, else the device; those of one kind
    by the report's folder, which is also the name of one whose training never came so far as to
    name a device. Untrusted text."""
    folders = [
        report.origin.name if report.origin is not None else "" for report in reports
    ]
    devices = [
        report.subject.versions.get("gpu-model")
        or report.subject.versions.get("device")
        or ""
        for report in reports
    ]
    alone = [device if devices.count(device) == 1 else "" for device in devices]
    return [
        own or ", ".join(part for part in (device, folder) if part) or "unknown device"
        for own, device, folder in zip(alone, devices, folders, strict=True)
    ]


def _heading(reports: Sequence[Report]) -> str:
    counted = Counter(report.verdict for report in reports)
    counts = (f"{counted[word]} {word}" for word in _WORST_FIRST if counted[word])
    overall = verdict(reports)
    return f"## {MARKS[overall]} Repro Gate: {overall} ({', '.join(counts)})"


def _row(name: str, report: Report) -> tuple[Phrase, ...]:
    found = report.determinism
    cause = report.diagnosis
    hashed = report.config_hash
    first = say("not compared")
    why = say("–")
    if found is not None and found.identical:
        first = say(f"nothing: {found.runs} runs, {found.steps:,} steps")
    elif found is not None:
        divergence = found.first_divergence
        first = say("unknown") if divergence is None else wording.where(divergence)
    if cause is not None:
        place = findings.place(cause)
        words = "{page} in {name}" if place else "{page}"
        if not cause.confirmed:
            words += " (observed)" if cause.observed else " (not proven)"
        why = phrase(words, page=cause.cause, name=place)
    elif report.reasons and not wording.diverged(report):
        why = say(report.reasons[0].message, "message")
    platform = say("–")
    if hashed is not None:
        digest = comparisons.short(hashed.platform).removeprefix("sha256:")
        platform = say(digest, "name")
    return (
        say(name, "name"),
        say(f"{MARKS[report.verdict]} {report.verdict}"),
        first,
        why,
        comparisons.cost(report.cost),
        platform,
    )


def _below(name: str, report: Report) -> Markup:
    """Return what one row's report says against the change, folded. Markdown is not read inside a
    summary: there a name is HTML's code."""
    title = Markup("{} <code>{}</code>: why, and what to do").format(
        MARKS[report.verdict], clip(for_terminal(name), _FORM.name)
    )
    blocks: list[Block] = [Facts((("", wording.headline(report)),))]
    for item in sections(report, 5, whole=False):
        blocks += item.blocks if item.rank == _ACT else ()
    return section(Section(title, _ACT, tuple(blocks)), _FORM)


def between(a: Report, b: Report, names: tuple[str, str], view: View = PLAIN) -> str:
    """Return the table. `names` are the files. It prints whatever the texts hold."""
    hashed = a.config_hash is not None and b.config_hash is not None
    first = _facts(a, inputs=hashed)
    second = _facts(b, inputs=hashed)
    second[_COST] += _overlap(a.cost, b.cost) if first[_COST] != second[_COST] else ()
    missing = say("none")
    changed = [
        (label, first.get(label) or missing, second.get(label) or missing)
        for label in dict.fromkeys([*first, *second])
        if first.get(label) != second.get(label)
    ]
    head = ("", *(for_terminal(name, 160) for name in names))
    more = and_more(len(changed) - _ROWS)
    return printed(
        view,
        laid_out(Table(head, tuple(changed[:_ROWS]))),
        *([text(say(more), "dim")] if more else []),
    )


def _facts(report: Report, *, inputs: bool) -> dict[Phrase, Phrase]:
    """Return the verdict, what is seen first of a report, the status of each check, and the
    `inputs` of the config hash, by name."""
    lines = {
        "started": [say(report.started, "message")],
        "verdict": [say(report.verdict)],
        "result": [wording.headline(replace(report, noise_floor=None))],
        "noise floor": [wording.noise(report.noise_floor)],
        "cost": [comparisons.cost(report.cost)],
    }
    for row in glance(report):
        if row.label not in _ELSEWHERE:
            lines.setdefault(row.label, []).extend(row.lines)
    facts = {say(label): wording.joined(given, "; ") for label, given in lines.items()}
    for item in report.checklist:
        label = phrase("check {name}", name=item.id)
        facts[label] = say(item.status, "message")
    if inputs and report.config_hash is not None:
        for root, name, value in comparisons.inputs(report.config_hash):
            label = phrase(f"{root} {{name}}", name=name)
            facts[label] = say(comparisons.short(value), "message")
    return facts


def _overlap(a: Cost | None, b: Cost | None) -> Phrase:
    """Return whether two costs may be the same."""
    if a is None or b is None:
        return ()
    same = a.ci95[0] <= b.ci95[1] and b.ci95[0] <= a.ci95[1]
    return say(
        "; the intervals overlap: no change is shown"
        if same
        else "; the intervals do not overlap"
    )
