"""The report as JUnit XML, for CI systems that show test results (GitLab, Jenkins, Azure
Pipelines): one case for the verdict, one for each check, and one for each other id that something
was found under. It keeps to the elements and attributes of Jenkins' junit-10.xsd.
"""

from __future__ import annotations

import math
from collections import Counter
from xml.etree import ElementTree as ET

from repro_gate.escape import and_more, for_terminal
from repro_gate.report.findings import findings
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.wording import headline

_NAME = "repro-gate"
MOST = 200  # cases; there are about forty checks in all
_LINES = 20  # lines of one case
_TEXT = 500  # characters of one line


def render(report: Report, view: View = PLAIN) -> str:  # noqa: ARG001  JUnit is the same everywhere
    """Return the document as text. What warns passes and says so in its `system-out`; what was
    waived, or had nothing to look at, is skipped; of an inconclusive run nothing fails, and what is
    found is an error."""
    failed = "error" if report.verdict == "inconclusive" else "failure"
    outcomes = {"verdict": "system-out" if report.verdict == "pass" else failed}
    lines = {"verdict": ["".join(text for _, text in headline(report))]}
    if report.verdict != "pass":
        lines["verdict"].append(f"see it again: {report.reproduce}")
    for check in report.checklist:
        outcomes[check.id] = "skipped" if check.status in ("skip", "waived") else "system-out"
        lines[check.id] = [check.message]
    for item in findings(report):
        outcomes[item.id] = failed if item.level == "error" else outcomes.get(item.id, "system-out")
        lines.setdefault(item.id, [])
        remedy = item.remedy and f"remedy: {item.remedy}"
        lines[item.id] += [item.message, *item.detail.splitlines(), remedy]
    # what failed is never cut
    names = sorted(outcomes, key=lambda name: outcomes[name] != failed)[:MOST]
    counts = Counter(outcomes[name] for name in names)
    counted = {
        "name": _NAME,
        "tests": str(len(names)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
    }
    root = ET.Element("testsuites", counted)
    suite = ET.SubElement(root, "testsuite", counted, skipped=str(counts["skipped"]))
    suite.set("time", f"{report.seconds if math.isfinite(report.seconds) else 0:.3f}")
    for name in names:
        kept = [_text(line) for line in dict.fromkeys(lines[name]) if line]
        case = ET.SubElement(suite, "testcase", name=_text(name), classname=_NAME)
        outcome = ET.SubElement(case, outcomes[name])
        outcome.text = "\n".join([*kept[:_LINES], and_more(len(kept) - _LINES)]).strip()
        if outcomes[name] != "system-out":
            outcome.attrib = {"type": _text(name), "message": kept[0] if kept else ""}
    if left := and_more(len(outcomes) - MOST, "in report.json"):
        ET.SubElement(suite, "system-out").text = left
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _text(text: str) -> str:
    """Return one line of characters that XML 1.0 allows: what is not printable (control characters,
    lone surrogates) is spelled out. ElementTree escapes the rest."""
    return for_terminal(text, _TEXT)
