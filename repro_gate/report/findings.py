"""The findings of a report, each with its line in the checkout, for annotations and SARIF. And the
sentences of a diagnosis that all renderers share: the cause, its line, the proof, what was ruled
out and the remedy.

Texts are not escaped here: whoever prints them does that. A path is used only if it can name a file
inside the checkout.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from urllib.parse import quote

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CheckResult
from repro_gate.diagnosis.model import (
    Diagnosis,
    Evidence,
    EvidenceKind,
    Explanation,
    ShownOperator,
    ShownUse,
)
from repro_gate.escape import and_more, clip, counted, for_terminal
from repro_gate.factors import (
    BY_NAME,
    HANDED_OVER,
    RANDOM_ORDER,
    READ_SHARED,
    TIMED_OUT,
)
from repro_gate.report import numbers
from repro_gate.report.model import Reason, Report, View, WeakenedCheck
from repro_gate.report.wording import (
    ROBUST,
    Phrase,
    joined,
    phrase,
    plain_text,
    say,
    worst_first,
)
from repro_gate.trace import notebook
from repro_gate.trace.fields import Location

_LEVELS = {"fail": "error", "warn": "warning"}
WEAKENED_ID = "base/weakened"  # the id of every weakened check
GENERAL = "determinism/diverged"
# ids of the reasons that a diagnosis explains
DIVERGED = (
    GENERAL,
    "determinism/outside-tolerance",
    "determinism/nonfinite",
)
_POINTER = "random-state/os-entropy"  # a check that names possible causes
LOCATIONS = 10  # the most lines of one check that become findings of their own
# The most further causes and list entries shown; the JSON report has all.
_ALSO = 3
_LINES = 10
_SENTENCES: Mapping[EvidenceKind, str] = {
    "slow": "watched, the training takes more than ten times as long, so the gate ended it",
    "under-load": "it came back under load, with threads, tasks and processes that start at "
    "random times",
    "rare": "it did not come back in {number} more pairs, the last under load: a rare race",
    "moved": "then the runs diverge only at step {step}, in {name}",
    "not-reduced": "the diagnosis used up its runs before it knew whether fewer of these "
    "{number} ({name}) are enough",
    "used-up": "the diagnosis used up its runs or its time",
    "factors": "holding fixed {name} does not change it",
    "every-factor": "holding every factor fixed does not change it",
    "operators": "{operators} of step {step}: equal, or in one run only",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding about the change. `level` is `error` or `warning`; `id` is that of a reason or a
    check, or WEAKENED_ID."""

    level: str
    id: str
    message: str
    remedy: str = ""
    detail: str = ""  # what was seen on this line
    # None: no line is known; then the finding is shown at the spec
    location: Location | None = None

    @property
    def lines(self) -> list[str]:
        """Return the message, the detail and the remedy."""
        remedy = self.remedy and f"remedy: {self.remedy}"
        lines = (self.message, *self.detail.splitlines(), remedy)
        return [line for line in lines if line]


def findings(report: Report) -> tuple[Finding, ...]:
    """Return, most important first: the reasons, failed checks, weakened checks, checks that warn.

    The first reason about the divergence is placed on the line of its cause; checks on that line
    are left out.
    """
    cause = report.diagnosis
    line = _of_diagnosis(cause)
    items: list[Finding] = []
    checks = [item for item in worst_first(report.checklist) if item.status in _LEVELS]
    failed = {item.id: item for item in checks if item.status == "fail"}
    for reason in report.reasons:
        if reason.id in failed:
            items += _of_check(failed[reason.id])
            continue
        explained = cause if reason.id in DIVERGED else None
        cause = None if explained else cause
        finding = Finding(
            level="error",
            id=reason.id,
            message=reason.message,
            remedy=reason.remedy,
            detail="\n".join(map(plain_text, why(explained))),
            location=line if explained else None,
        )
        items.append(finding)
    for check in failed.values():
        items += _of_check(check)
    items += [_of_weakened(item, report.subject.spec) for item in report.weakened]
    for check in checks:
        items += _of_check(check) if check.status == "warn" else ()
    return tuple(
        item
        for item in dict.fromkeys(items)
        if not (line and line.line)
        or item.location != line
        or item.id in (*DIVERGED, ROBUST)
    )


def says_more(reason: Reason, cause: Diagnosis | None) -> bool:
    """Return whether a reason adds something to the headline and the cause."""
    if reason.id == GENERAL or cause is None:
        return reason.id != GENERAL
    # A proven cause makes a reason redundant that names the same line, or that only lists suspects.
    names = cause.file != "" and Location(cause.file, cause.line) in reason.locations
    return not (cause.confirmed and (names or reason.id == _POINTER))


def spec_location(report: Report) -> Location | None:
    """Return the spec as a location; None if its path can be no file of the repository."""
    file = inside(report.subject.spec)
    return None if file is None else Location(file)


def inside(path: str, folder: str = "") -> str | None:
    """Return `path` below `folder`, normalized; None if it is absolute, leads upwards, or contains
    invisible characters."""
    if "\\" in path or len(path) > 400 or for_terminal(path) != path:
        return None
    joined = posixpath.normpath(posixpath.join(folder, path))
    leads_out = path.startswith("/") or ".." in path.split("/")
    return None if leads_out or not path or joined == "." else joined


def address(report: Report, view: View, diagnosis: Diagnosis) -> str:
    """Return the address of the cause's line at the tested commit; empty if the commit is unknown
    or does not have the line."""
    line = _of_diagnosis(diagnosis)
    origin = report.origin
    subject = report.subject
    if not (line and origin and subject.commit) or diagnosis.line < 1:
        return ""
    if line.file in subject.uncommitted:
        return ""
    page = f"{view.server_url}/{origin.repository}/blob/{subject.commit}/{quote(line.file)}"
    return f"{page}#L{line.line}" if line.line else page


def located(location: Location | None, folder: str = "") -> Location | None:
    """Return the location with `folder` before its path; None if it can be no file of the checkout.
    For a notebook it is the file without a line, since its lines would be those of its JSON."""
    if location is None:
        return None
    name, cell = notebook.split(location.file)
    file = inside(name, folder)
    return None if file is None else Location(file, 0 if cell else location.line)


def _of_diagnosis(cause: Diagnosis | None) -> Location | None:
    return located(Location(cause.file, cause.line)) if cause else None


def _of_check(item: CheckResult) -> list[Finding]:
    """Return a finding for each line in the evidence; a single one if the evidence names no
    line."""
    every = [(str(entry), located(entry.location)) for entry in item.evidence]
    placed = [*filter(itemgetter(1), every)][:LOCATIONS]
    lines = [clip(line, 300) for line, _ in every[:3]]
    lines.append(and_more(len(every) - 3))
    return [
        Finding(
            level=_LEVELS[item.status],
            id=item.id,
            message=item.message,
            remedy=item.remedy,
            detail=line,
            location=location,
        )
        for line, location in placed or [("\n".join(lines), None)]
    ]


def _of_weakened(item: WeakenedCheck, spec: str) -> Finding:
    """Return a weakened check as a finding. Its location is relative to the spec's folder."""
    return Finding(
        level="warning",
        id=WEAKENED_ID,
        message=f"{item.key}: {item.message}",
        remedy="say in the pull request why the weaker check is enough",
        location=located(item.location, posixpath.dirname(spec))
        if inside(spec)
        else None,
    )


def as_diagnosis(found: Explanation) -> Diagnosis:
    """Return what a search found as the report has it, with its evidence in sentences."""
    first, *others = found.causes
    rate = found.rate
    evidence = [*map(_sentence, found.evidence)]
    if found.pinned:
        last = found.agreed_steps - 1
        how_far = f"up to step {last}" if last >= 0 else "before the first step"
        proofs = dict.fromkeys(BY_NAME[name].proof for name in found.pinned)
        held = "with all of them held fixed" if first.one_of else " and ".join(proofs)
        word = _standing(first).lower()
        evidence.append(f"{word}: {held}, two runs are bitwise identical {how_far}")
    return replace(
        first,
        also=tuple(others),
        evidence=(*evidence, *first.evidence),
        ruled_out=tuple(map(_sentence, found.ruled_out)),
        rate=rate if rate.diverged < rate.pairs else None,
    )


def _sentence(item: Evidence) -> str:
    """Return a sentence about what a search saw or ruled out."""
    operators = counted(item.number, "operator")
    return _SENTENCES[item.kind].format(operators=operators, **item._asdict())


def place(item: Diagnosis | ShownUse | ShownOperator) -> str:
    """Return the line of a cause, a use or an operator, `src/train.py:41`; empty if none is
    known."""
    return notebook.place(item.file, item.line) if item.file else ""


def why(diagnosis: Diagnosis | None) -> tuple[Phrase, ...]:
    """Return the sentences of a diagnosis, if there is one: the cause, further causes, and the
    proof. A cause without proof is called likely; if several lines may be the cause, all are
    named."""
    if diagnosis is None:
        return ()
    sentences = [_cause(diagnosis), *_one_of(diagnosis)]
    for item in diagnosis.also[:_ALSO]:
        together = phrase("{figure}: {}", _cause(item), figure="Together with")
        sentences += [together, *_one_of(item)]
    if left := and_more(len(diagnosis.also) - _ALSO, "cause"):
        sentences.append(say(left))
    word = _standing(diagnosis)
    if proof := _proof(diagnosis).removeprefix(f"{word.lower()}: "):
        sentences.append(phrase("{figure}: {message}", figure=word, message=proof))
    elif diagnosis.confirmed:
        sentences.append(say(word, "figure"))
    if diagnosis.cause == "unknown" and diagnosis.ruled_out:
        others = "; ".join(diagnosis.ruled_out[:_LINES])
        sentences.append(
            phrase("{figure}: {message}", figure="Ruled out", message=others)
        )
    if diagnosis.rate is not None:
        pairs = numbers.of(diagnosis.rate.diverged, diagnosis.rate.pairs)
        sentences.append(say(f"{pairs} pairs of runs diverge"))
    return tuple(sentences)


def _one_of(diagnosis: Diagnosis) -> tuple[Phrase, ...]:
    """Return a sentence that lists the lines of which one or several are the cause; none if there
    is only one."""
    if not diagnosis.one_of:
        return ()
    names = []
    for item in diagnosis.one_of[:_LINES]:
        name = say(item.factor, "message")
        if item.call:
            name = phrase("{name} ({})", name, name=item.call)
        names.append(joined([say(place(item), "name"), name], " "))
    what = "lines" if all(item.file for item in diagnosis.one_of) else "things"
    count = phrase(
        "{figure}, or several of them, likeliest first: {}",
        joined(names),
        figure=f"One of these {len(diagnosis.one_of)} {what}",
    )
    return (joined([count, say(and_more(len(diagnosis.one_of) - _LINES))], " "),)


def _standing(diagnosis: Diagnosis) -> str:
    """Return how well a cause is proven: the word with which its line of evidence begins."""
    if diagnosis.confirmed:
        return "Confirmed"
    return "Observed" if diagnosis.observed else "Seen"


def _proof(diagnosis: Diagnosis) -> str:
    """Return the line of evidence that proves the cause: the one that begins with its standing. If
    there is none, the last line for a proven cause, empty for any other."""
    start = f"{_standing(diagnosis).lower()}: "
    last = diagnosis.evidence[-1:] if diagnosis.confirmed else ()
    proofs = (line for line in diagnosis.evidence if line.startswith(start))
    return next(proofs, "".join(last))


def _cause(diagnosis: Diagnosis) -> Phrase:
    """Return `CALL in FILE:LINE drew from the operating system (unseeded-rng)`."""
    factor = BY_NAME.get(diagnosis.factor or "")
    line = say(diagnosis.message, "message")
    is_placed = diagnosis.call or diagnosis.file
    if factor is not None and factor.cause == diagnosis.cause and is_placed:
        others = (HANDED_OVER, READ_SHARED, TIMED_OUT, RANDOM_ORDER)
        did = next(filter(diagnosis.message.endswith, others), factor.did)
        line = say(diagnosis.call, "name") or say("the training")
        if diagnosis.file:
            line = phrase("{} in {name}", line, name=place(diagnosis))
        line = phrase(f"{{}} {did}", line)
    if diagnosis.cause == "unknown":
        return line
    words = f"{{}} ({diagnosis.cause})"
    if not (diagnosis.confirmed or diagnosis.observed):
        words = f"{{figure}}, not proven: {words}"
    return phrase(words, line, figure="Likely")


def page_of(cause: str) -> str:
    """Return the address of a cause's page."""
    return f"{DOCS_URL}/causes/{cause}.md"


def remedy_of(diagnosis: Diagnosis) -> str:
    """Return the remedy for the cause, and the address of its page."""
    return f"{diagnosis.remedy or 'the page says what to try next'} ({page_of(diagnosis.cause)})"


def background(diagnosis: Diagnosis) -> tuple[Phrase, ...]:
    """Return what was seen and ruled out during the diagnosis, and its cost. The proof is in
    `why`."""
    proof = _proof(diagnosis)
    evidence = [
        line
        for item in (diagnosis, *diagnosis.also[:_ALSO])
        for line in item.evidence[:_LINES]
    ]
    lines = [say(line, "message") for line in evidence if line != proof]
    if diagnosis.cause != "unknown":  # for an unknown cause `why` lists it
        lines += [
            phrase("ruled out: {message}", message=line)
            for line in diagnosis.ruled_out[:_LINES]
        ]
    runs = counted(diagnosis.runs, "run")
    return *lines, say(f"{runs} in {numbers.duration(diagnosis.seconds)}")
