"""The findings of a report as other programs read them.

- SARIF 2.1.0, for GitHub's code scanning: one result for each finding, none where it passes. Limits
  and required fields are those of GitHub's page "SARIF support for code scanning". Messages are
  plain text without links.
- JUnit XML, for CI systems that show test results (GitLab, Jenkins, Azure Pipelines): one case for
  the verdict, one for each check, and one for each other id that something was found under. It
  keeps to the elements and attributes of Jenkins' junit-10.xsd.
- Annotations of a GitHub workflow: one command for each finding, on its line. The limits are the
  runner's own: github.com/actions/runner, `ExecutionContext.cs`, `ActionCommandManager.cs`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.pages import page, reasons
from repro_gate.escape import (
    and_more,
    clip,
    for_terminal,
    for_workflow_data,
    for_workflow_property,
)
from repro_gate.report.comparisons import WEAKENED_TITLE
from repro_gate.report.document import to_text
from repro_gate.report.findings import (
    WEAKENED_ID,
    Finding,
    findings,
    inside,
    spec_location,
)
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.wording import ROBUST, headline, plain_text
from repro_gate.trace.fields import Location

# the name GitHub's page gives for the schema
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_RESULTS = 5_000  # GitHub shows no more, and refuses a file of more than 25,000
_TEXT = 1_000  # characters of one text of a message
_DESCRIPTION = 1_024  # characters that GitHub takes of a description
_IDENTIFIER = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*")
_OTHER = "report/other"  # stands for an id that is none of ours
_ROOT = "%SRCROOT%"  # SARIF's and GitHub's name for the root of the repository
_NO_SPEC = Location("repro.yml")  # GitHub shows no result without a location
MOST_CASES = 200  # of JUnit; there are about forty checks in all
_LINES = 20  # lines of one case
_CASE_TEXT = 500  # characters of one line
LEVELS = ("error", "warning", "notice")
# of each level: GitHub shows ten a step, and one is left for what the step itself has to say
MOST_OF_A_LEVEL = 9
MESSAGE = 4096  # UTF-16 units of an annotation's message; the runner cuts the rest off
TITLE = 255  # characters of an annotation's title: `title` of a check run's annotation, REST API
_PART = 800  # characters of one line of a finding's message


def sarif(report: Report, view: View = PLAIN) -> str:
    """Return the document as text. On a pass the list of results is there and empty, so that code
    scanning closes what it had open; on a pass under a condition it names that alone."""
    items = findings(report)[:MAX_RESULTS]
    if report.verdict == "pass":
        conditions = (item for item in items if item.id == ROBUST)
        items = tuple(conditions) if report.is_conditional else ()
    rules = _rules(items)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "Repro Gate",
                "version": _plain_line(report.tool_version, 100) or "unknown",
                "rules": [*rules.values()],
                "informationUri": DOCS_URL,
            }
        },
        "automationDetails": {"id": _category(report)},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.verdict in ("pass", "fail")}],
        "results": _results(items, [*rules], spec_location(report) or _NO_SPEC),
    }
    if report.origin is not None:
        source = {
            "repositoryUri": f"{view.server_url}/{report.origin.repository}",
            "revisionId": report.origin.head_sha,
            "mappedTo": {"uriBaseId": _ROOT},
        }
        run["versionControlProvenance"] = [source]
    return to_text({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]})


def _rules(items: Sequence[Finding]) -> dict[str, dict[str, Any]]:
    """Return every check and every known reason, whatever was found: rules should change with the
    tool, not with what it looks at."""
    # id -> title, text and the address of its page
    texts = {
        item.id: (
            item.title,
            page(item.id) or item.title,
            f"{DOCS_URL}/checks/{item.id}.md",
        )
        for item in ALL
    }
    for name, text in reasons().items():
        texts[name] = text.split(". ")[0], text, f"{DOCS_URL}/reasons.md"
    title = "The gate finds something against the change."
    for name in (_OTHER, *(_rule_id(item.id) for item in items)):
        text = f"{title} The report names it and what to do."
        texts.setdefault(name, (title, text, DOCS_URL))
    return {name: _rule(name, *each) for name, each in texts.items()}


def _rule(identifier: str, title: str, text: str, url: str) -> dict[str, Any]:
    level = "warning" if identifier == WEAKENED_ID else "error"
    description = {"text": clip(title, _DESCRIPTION)}
    return {
        "id": identifier,
        "name": re.sub("[/-]", " ", identifier).title().replace(" ", ""),
        "shortDescription": description,
        "fullDescription": description,
        "help": {"text": text, "markdown": text},
        "helpUri": url,
        "defaultConfiguration": {"level": level},
        "properties": {
            "tags": ["reproducibility", identifier.partition("/")[0]],
            "precision": "very-high",
            "problem.severity": level,
        },
    }


def _results(
    items: Sequence[Finding], rules: Sequence[str], spec: Location
) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    results = []
    for item in items:
        identifier = _rule_id(item.id)
        location = item.location or spec
        print_ = _fingerprint(identifier, location, item)
        counts[print_] += 1
        place = {
            "artifactLocation": {"uri": quote(location.file), "uriBaseId": _ROOT},
            # the whole line: without an end a region reaches to the end of its line
            "region": {"startLine": location.line or 1, "startColumn": 1},
        }
        # what is wrong first: where there is little room GitHub shows one sentence
        message = "\n".join(map(_plain_line, item.lines)) or "no message"
        hashed = {"primaryLocationLineHash": f"{print_}:{counts[print_]}"}
        result = {
            "ruleId": identifier,
            "ruleIndex": rules.index(identifier),
            "level": item.level,
            "message": {"text": message},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": hashed,
        }
        results.append(result)
    return results


def _rule_id(identifier: str) -> str:
    return (
        identifier
        if len(identifier) <= 100 and _IDENTIFIER.fullmatch(identifier)
        else _OTHER
    )


def _fingerprint(identifier: str, location: Location, item: Finding) -> str:
    """Return the same for the same finding in the next run: rule, file and the line's own text, but
    no line number, no step and no figure."""
    source = item.location and item.detail.partition(f":{location.line}:")[2].strip()
    content = f"{identifier}\0{location.file}\0{source or ''}"
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _plain_line(text: str, limit: int = _TEXT) -> str:
    """Return plain text on one line: no embedded link (`[text](target)`, section 3.11.6 of SARIF)
    and no placeholder (`{0}`, section 3.11.5)."""
    line = for_terminal(text, limit).replace("](", "] (")
    return re.sub(r"\{(\d+)\}", r"{ \1 }", line)


def _category(report: Report) -> str:
    """Return `category/run`: one category for each spec and job, so that two gates do not close
    each other's alerts."""
    parts = ["repro-gate", inside(report.subject.spec) or "repro.yml"]
    run = ""
    if (origin := report.origin) is not None:
        parts += [quote(clip(origin.name, 100), safe="")] if origin.name else []
        run = f"{origin.run_id}-{origin.run_attempt}"
    return "/".join([*parts, run])


def badge(report: Report) -> str:
    """Return what shields.io reads (https://shields.io/badges/endpoint-badge), as text."""
    colours = {"pass": "brightgreen", "fail": "red", "recorded": "blue"}
    is_same = (
        report.verdict == "pass" and report.determinism and report.determinism.identical
    )
    condition = "bitwise identical" if is_same else report.verdict
    colour = (
        "yellow" if report.is_conditional else colours.get(report.verdict, "lightgrey")
    )
    content = {
        "schemaVersion": 1,
        "label": "repro-gate",
        "message": condition,
        "color": colour,
    }
    return to_text(content)


def junit(report: Report) -> str:
    """Return the document as text. What warns passes and says so in its `system-out`; what was
    waived, or had nothing to look at, is skipped, as is the verdict of a run that was not compared;
    of an inconclusive run nothing fails, and what is found is an error."""
    failed = "error" if report.verdict == "inconclusive" else "failure"
    good = {"pass": "system-out", "recorded": "skipped"}
    outcomes = {"verdict": good.get(report.verdict, failed)}
    condition = "pass " if report.is_conditional else ""
    lines = defaultdict(list, verdict=[condition + plain_text(headline(report))])
    if report.verdict != "pass":
        lines["verdict"].append(f"see it again: {report.reproduce}")
    for check in report.checklist:
        is_skipped = check.status in ("skip", "waived")
        outcomes[check.id] = "skipped" if is_skipped else "system-out"
        lines[check.id] = [check.message]
    for item in findings(report):
        outcomes.setdefault(item.id, "system-out")
        if item.level == "error":
            outcomes[item.id] = failed
        lines[item.id] += item.lines
    # what failed is never cut
    names = sorted(outcomes, key=lambda name: outcomes[name] != failed)[:MOST_CASES]
    counts = Counter(outcomes[name] for name in names)
    counted = {
        "name": "repro-gate",
        "tests": str(len(names)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
    }
    seconds = report.seconds if math.isfinite(report.seconds) else 0
    more = {"skipped": str(counts["skipped"]), "time": f"{seconds:.3f}"}
    root = ET.Element("testsuites", counted)
    suite = ET.SubElement(root, "testsuite", {**counted, **more})
    for name in names:
        texts = [_printable(line) for line in dict.fromkeys(lines[name]) if line]
        attributes = {"name": _printable(name), "classname": "repro-gate"}
        case = ET.SubElement(suite, "testcase", attributes)
        outcome = ET.SubElement(case, outcomes[name])
        rest = and_more(len(texts) - _LINES)
        outcome.text = "\n".join([*texts[:_LINES], rest]).strip()
        if outcome.tag != "system-out":
            outcome.set("type", _printable(name))
            outcome.set("message", "".join(texts[:1]))
    if left := and_more(len(outcomes) - MOST_CASES):
        ET.SubElement(suite, "system-out").text = f"{left} in report.json"
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _printable(text: str) -> str:
    """Return one line of characters that XML 1.0 allows: what is not printable (control characters,
    lone surrogates) is spelled out. ElementTree escapes the rest."""
    return for_terminal(text, _CASE_TEXT)


def workflow_commands(report: Report) -> str:
    """Return the workflow commands, a line each: errors for what fails, warnings for what warns,
    notices for what the gate saw before its runs.

    What has no line stands at the spec. At most MOST_OF_A_LEVEL of each level, the most important
    first; where there is more, the last one says how many were left out."""
    spec = spec_location(report)
    lines: dict[str, list[str]] = {level: [] for level in LEVELS}
    for item in findings(report):
        message = "\n".join(clip(line, _PART) for line in item.lines)
        name = WEAKENED_TITLE.lower() if item.id == WEAKENED_ID else item.id
        title = clip(f"Repro Gate: {name}", 120)
        line = command(item.level, title, message, item.location or spec)
        lines[item.level].append(line)
    lines["notice"] = [
        command("notice", note.id, f"{note.message}\n{note.remedy}")
        for note in report.notes
        if note.id.startswith("preflight/")
    ]
    for level, each in lines.items():
        if (left := len(each) - MOST_OF_A_LEVEL + 1) > 1:
            message = (
                f"{left} more {level}s are in the report: "
                "GitHub shows ten of each kind a step"
            )
            last = command(level, f"Repro Gate: {left} more", message)
            each[MOST_OF_A_LEVEL - 1 :] = [last]
    return "".join(f"{line}\n" for each in lines.values() for line in each)


def command(
    level: str, title: str, message: str, location: Location | None = None
) -> str:
    """Return the workflow command that makes an annotation, on one line. `level` is one of LEVELS;
    the file of `location` is relative to the repository, with `/` between its parts. Texts are
    escaped here and are cut to the runner's limits."""
    texts = {"title": for_terminal(title, TITLE)}
    if location is not None:
        texts |= {"file": location.file, "line": str(location.line or "")}
    properties = ",".join(
        f"{name}={for_workflow_property(value)}"
        for name, value in texts.items()
        if value
    )
    lines = (message or title).replace("\r\n", "\n").split("\n")
    visible = "\n".join(map(for_terminal, lines))
    # as it will be seen; a character outside the basic plane is two UTF-16 units
    is_wide = any(ord(char) > 0xFFFF for char in visible[:MESSAGE])
    data = for_workflow_data(clip(visible, MESSAGE // 2 if is_wide else MESSAGE))
    return f"::{level}{' ' if properties else ''}{properties}::{data}"
