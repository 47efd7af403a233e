"""The report as JUnit XML, for CI systems that show test results (GitLab, Jenkins, Azure
Pipelines): a testsuite for each category of the checklist, and one for the verdict, each seed, the
cost and the baseline. It keeps to the elements and attributes of Jenkins' junit-10.xsd.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.escape import and_more, for_terminal
from repro_gate.report import costs, wording
from repro_gate.report.causes import background, remedy_of, why
from repro_gate.report.model import PLAIN, Reason, Report, SeedResult, View
from repro_gate.report.wording import Phrase

GATE = "repro-gate"  # the suite beside the categories, and what every suite's name begins with
MOST = 200  # cases of one suite that are written; there are about forty checks in all
_TEXT = 500  # characters of one line
_LINES = 20  # lines of one case
_EVIDENCE = 10  # lines of evidence of one check
# the note of a seed whose runs differ by no more than the spec allows
_UNDIVERGED = "determinism/within-tolerance"


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One testcase. `outcome`: `passed`, or the name of the element that says otherwise: `failure`,
    `error` (no answer) or `skipped`."""

    name: str
    outcome: str
    message: str
    lines: tuple[str, ...] = ()
    kind: str = ""  # the `type` of a failure: the id of a reason or a check


def render(report: Report, view: View = PLAIN) -> str:
    """The document as text. What warns passes and says so in its `system-out`; what was waived, or
    had nothing to look at, is skipped."""
    root = ET.Element("testsuites", name=GATE)
    gate = _suite(root, GATE, list(_gate(report)), report)
    _properties(gate, report, view)
    for category in CATEGORIES:
        found = [
            _check(item)
            for item in wording.worst_first(report.checklist)
            if item.category == category
        ]
        _suite(root, f"{GATE}.{category}", found, report)
    suites = list(root)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.attrib[key]) for suite in suites)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, name: str, cases: Sequence[_Case], report: Report) -> ET.Element:
    """One suite with its counts; `time` is that of the whole gate run and stands at the first one
    only."""
    kept = (
        sorted(cases, key=lambda item: item.outcome not in ("failure", "error"))[:MOST]
        if len(cases) > MOST
        else cases
    )
    counts = Counter(item.outcome for item in kept)
    seconds = report.seconds if name == GATE and math.isfinite(report.seconds) else 0.0
    suite = ET.SubElement(
        root, "testsuite", name=name, tests=str(len(kept)), timestamp=_text(report.started, 40)
    )
    for key, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(counts[outcome]))
    suite.set("time", f"{max(0.0, min(seconds, 1e9)):.3f}")
    for item in kept:
        _testcase(suite, item)
    if left := and_more(len(cases) - MOST, "in report.json"):
        ET.SubElement(suite, "system-out").text = left
    return suite


def _testcase(suite: ET.Element, item: _Case) -> None:
    """Viewers show the message or the text of a failure, seldom both: the text begins with the
    message."""
    case = ET.SubElement(
        suite, "testcase", classname=suite.attrib["name"], name=_text(item.name, 200)
    )
    lines = [_text(line) for line in (item.message, *item.lines) if line]
    lines = [
        *lines[:_LINES],
        *filter(None, [and_more(len(lines) - _LINES, "lines in report.json")]),
    ]
    if item.outcome == "passed":
        said = ET.SubElement(case, "system-out") if lines else None
    else:
        said = ET.SubElement(
            case,
            item.outcome,
            message=_text(item.message),
            type=_text(item.kind or item.outcome, 100),
        )
    if said is not None:
        said.text = "\n".join(lines)


def _properties(suite: ET.Element, report: Report, view: View) -> None:
    """What was gated: first in its suite, as JUnit has it."""
    subject, found = report.subject, report.config_hash
    values = {
        "verdict": report.verdict,
        "version": report.tool_version,
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "",
        "config-hash": found.config_hash if found else "",
        "reproduce": report.reproduce,
        "run": view.run_url,
    }
    properties = ET.Element("properties")
    for name, value in values.items():
        if value:
            ET.SubElement(properties, "property", name=name, value=_text(value))
    suite.insert(0, properties)


def _gate(report: Report) -> Iterator[_Case]:
    """The cases that are about the gate run as a whole. Names are the same in each run, so that a
    viewer can follow them over time."""
    yield _verdict(report)
    for item in report.comparisons:
        yield _seed(report, item)
    if not report.comparisons:
        yield _Case(name="determinism", outcome="skipped", message="no two runs were compared")
    said = _plain(costs.cost(report.cost, report.cost_budget_pct))
    yield _room("cost", report, said, told=report.cost is not None)
    baseline, against = report.baseline, report.against
    said = (
        f"{baseline.status}: {baseline.message}"
        if baseline
        else "there is no repro.baseline.yml, or nothing to compare with it"
    )
    yield _room("baseline", report, said, told=baseline is not None)
    if against is not None:
        yield _room(
            "against", report, f"{against.ref}: {against.status}: {against.message}", told=True
        )


def _verdict(report: Report) -> _Case:
    outcome = {"pass": "passed", "fail": "failure"}.get(report.verdict, "error")
    kind = report.reasons[0].id if report.reasons else ""
    lines = (line for reason in report.reasons for line in _reason(reason))
    weakened = (
        f"weakened check: {item.key}: {item.message}"
        for item in (report.base.weakened if report.base else ())
    )
    message = _plain(wording.headline(report))
    return _Case(
        name="verdict",
        outcome=outcome,
        message=message,
        lines=(*lines, *_again(report), *weakened),
        kind=kind,
    )


def _seed(report: Report, item: SeedResult) -> _Case:
    """Whether the deterministic runs of one seed agree; the diagnosis stands at the seed that it is
    about."""
    name, pair, first = (
        f"determinism, seed {item.seed}",
        item.comparison,
        item.comparison.first_divergence,
    )
    if pair.identical and item.failed:
        message = (
            f"{item.runs} of {item.runs + item.failed} runs are bitwise identical, {item.failed} "
            "ended badly"
        )
        return _Case(name=name, outcome="error", message=message)
    if pair.identical:
        message = f"bitwise identical: {item.runs} runs, {pair.steps} steps, {pair.tensors} tensors"
        return _Case(name=name, outcome="passed", message=message)
    spread = _plain(wording.spread(pair))
    within = any(
        note.id == _UNDIVERGED and note.message.startswith(f"seed {item.seed}:")
        for note in report.notes
    )
    if within or report.verdict == "pass":
        return _Case(
            name=name,
            outcome="passed",
            message=f"not bitwise identical, but within the tolerance of the spec: {spread}",
        )
    message = f"two runs with seed {item.seed} diverge"
    message += f" {wording.place_of(first, pair.steps)}" if first else ""
    lines = [spread, *([_plain(wording.how_far(first))] if first else [])]
    if report.diagnosis is not None and item is report.determinism:
        cause = report.diagnosis
        lines += [
            f"cause: {_plain(sentence)}" if not number else _plain(sentence)
            for number, sentence in enumerate(why(cause))
        ]
        lines += [
            f"remedy: {remedy_of(cause)}",
            *(f"evidence: {_plain(sentence)}" for sentence in background(cause)[:_EVIDENCE]),
        ]
    else:
        lines += [
            (
                "remedy: look for an unseeded random source or a nondeterministic op there "
                f"({DOCS_URL}/causes/README.md)"
            )
        ]
    return _Case(
        name=name,
        outcome="failure",
        message=message,
        lines=(*lines, *_again(report)),
        kind="determinism/diverged",
    )


def _room(name: str, report: Report, said: str, *, told: bool) -> _Case:
    """A case for all reasons of one room, `cost/…` say: failed by them, skipped where it was not
    looked at, else passed."""
    reasons = [item for item in report.reasons if item.id.startswith(f"{name}/")]
    if not reasons:
        return _Case(name=name, outcome="passed" if told else "skipped", message=said)
    outcome = "error" if report.verdict == "inconclusive" else "failure"
    lines = [said, *(line for item in reasons for line in _reason(item))]
    return _Case(
        name=name,
        outcome=outcome,
        message=reasons[0].message,
        lines=tuple(lines),
        kind=reasons[0].id,
    )


def _check(item: CheckResult) -> _Case:
    outcome = {"fail": "failure", "skip": "skipped", "waived": "skipped"}.get(item.status, "passed")
    message = f"warn: {item.message}" if item.status == "warn" else item.message
    if item.status in ("pass", "skip"):
        return _Case(name=item.id, outcome=outcome, message=message, kind=item.status)
    evidence, more = wording.few(item.evidence, _EVIDENCE)
    remedy = f"remedy: {item.remedy}" if item.remedy else ""
    lines = (
        *(f"evidence: {line}" for line in evidence),
        and_more(more),
        remedy,
        f"page: {DOCS_URL}/checks/{item.id}.md",
    )
    return _Case(
        name=item.id,
        outcome=outcome,
        message=message,
        lines=lines,
        kind="waived" if item.status == "waived" else item.id,
    )


def _reason(reason: Reason) -> tuple[str, ...]:
    return (f"{reason.id}: {reason.message}", f"remedy: {reason.remedy}" if reason.remedy else "")


def _again(report: Report) -> tuple[str, ...]:
    return (
        (f"see it again: {report.reproduce}",)
        if report.reproduce and report.verdict != "pass"
        else ()
    )


def _plain(phrase: Phrase) -> str:
    return "".join(text for _, text in phrase)


def _text(text: str, limit: int = _TEXT) -> str:
    """One line of characters that XML 1.0 allows: what is not printable (control characters, lone
    surrogates) is spelled out. ElementTree escapes the rest."""
    return for_terminal(text, limit)
