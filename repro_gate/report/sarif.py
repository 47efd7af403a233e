"""The report as SARIF 2.1.0, for GitHub's code scanning: one result for each finding, none where it
passes. Limits and required fields are those of GitHub's page "SARIF support for code scanning".
Messages are plain text without links.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.pages import page, reasons
from repro_gate.escape import clip, for_terminal
from repro_gate.report.document import to_text
from repro_gate.report.findings import (
    WEAKENED_ID,
    Finding,
    Location,
    findings,
    inside,
    spec_location,
)
from repro_gate.report.model import PLAIN, Report, View

SCHEMA_URI = (
    "https://json.schemastore.org/sarif-2.1.0.json"  # the name GitHub's page gives for the schema
)
MAX_RESULTS = 5_000  # GitHub shows no more, and refuses a file of more than 25,000
_TEXT = 1_000  # characters of one text of a message
_DESCRIPTION = 1_024  # characters that GitHub takes of a description
_IDENTIFIER = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*")
_OTHER = "report/other"  # stands for an id that is none of ours
_ROOT = "%SRCROOT%"  # SARIF's and GitHub's name for the root of the repository
_NO_SPEC = Location("repro.yml")  # GitHub shows no result without a location


def render(report: Report, view: View = PLAIN) -> str:
    """The document as text. On a pass the list of results is there and empty, so that code scanning
    closes what it had open."""
    found = () if report.verdict == "pass" else findings(report)[:MAX_RESULTS]
    rules = _rules(found)
    driver = {
        "name": "Repro Gate",
        "version": _text(report.tool_version, 100) or "unknown",
        "rules": rules,
        "informationUri": DOCS_URL,
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": _category(report)},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.verdict != "inconclusive"}],
        "results": _results(
            found, [rule["id"] for rule in rules], spec_location(report) or _NO_SPEC
        ),
    }
    if report.origin is not None:
        uri = f"{view.server_url}/{report.origin.repository}"
        source = {
            "repositoryUri": uri,
            "revisionId": report.origin.head_sha,
            "mappedTo": {"uriBaseId": _ROOT},
        }
        run["versionControlProvenance"] = [source]
    return to_text({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]})


def _rules(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Every check and every known reason, whatever was found: rules should change with the tool,
    not with what it looks at."""
    rules = [
        _rule(item.id, item.title, page(item.id) or item.title, f"{DOCS_URL}/checks/{item.id}.md")
        for item in ALL
    ]
    rules += [
        _rule(name, text.partition(". ")[0], text, f"{DOCS_URL}/reasons.md")
        for name, text in reasons().items()
    ]
    known = {rule["id"] for rule in rules}
    others = dict.fromkeys([_OTHER, *(_rule_id(item.id) for item in found)])
    title = "The gate finds something against the change."
    return [
        *rules,
        *(
            _rule(name, title, f"{title} The report names it and what to do.", DOCS_URL)
            for name in others
            if name not in known
        ),
    ]


def _rule(identifier: str, title: str, text: str, url: str) -> dict[str, Any]:
    level = "warning" if identifier == WEAKENED_ID else "error"
    return {
        "id": identifier,
        "name": "".join(part.capitalize() for part in re.split("[/-]", identifier)),
        "shortDescription": {"text": clip(title, _DESCRIPTION)},
        "fullDescription": {"text": clip(title, _DESCRIPTION)},
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
    found: Sequence[Finding], rules: Sequence[str], spec: Location
) -> list[dict[str, Any]]:
    index = {identifier: number for number, identifier in enumerate(rules)}
    seen: Counter[str] = Counter()
    results = []
    for item in found:
        identifier, location = _rule_id(item.id), item.location or spec
        print_ = _fingerprint(identifier, location, item)
        seen[print_] += 1
        results.append(
            {
                "ruleId": identifier,
                "ruleIndex": index[identifier],
                "level": item.level,
                "message": {"text": _message(item)},
                "locations": [{"physicalLocation": _location(location)}],
                "partialFingerprints": {"primaryLocationLineHash": f"{print_}:{seen[print_]}"},
            }
        )
    return results


def _rule_id(identifier: str) -> str:
    return identifier if len(identifier) <= 100 and _IDENTIFIER.fullmatch(identifier) else _OTHER


def _location(location: Location) -> dict[str, Any]:
    """The whole line: without an end a region reaches to the end of its line."""
    file = {"uri": quote(location.file, safe="/"), "uriBaseId": _ROOT}
    return {"artifactLocation": file, "region": {"startLine": location.line or 1, "startColumn": 1}}


def _fingerprint(identifier: str, location: Location, item: Finding) -> str:
    """The same for the same finding in the next run: rule, file and the line's own text, but no
    line number, no step and no figure."""
    source = (
        item.detail.partition(f":{location.line}:")[2].strip() if item.location is not None else ""
    )
    content = f"{identifier}\0{location.file}\0{source}"
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _message(item: Finding) -> str:
    """What is wrong first: where there is little room GitHub shows one sentence."""
    parts = (
        _text(item.message),
        *(_text(line) for line in item.detail.split("\n")),
        f"Remedy: {_text(item.remedy)}" if item.remedy else "",
    )
    return "\n".join(part for part in parts if part) or "no message"


def _text(text: str, limit: int = _TEXT) -> str:
    """Plain text on one line: no embedded link (`[text](target)`, section 3.11.6 of SARIF) and no
    placeholder (`{0}`, section 3.11.5)."""
    shown = for_terminal(text, limit).replace("](", "] (")
    return re.sub(r"\{(\d+)\}", r"{ \1 }", shown)


def _category(report: Report) -> str:
    """`category/run`: one category for each spec and job, so that two gates do not close each
    other's alerts."""
    name, run = (
        ("", "")
        if report.origin is None
        else (report.origin.name, f"{report.origin.run_id}-{report.origin.run_attempt}")
    )
    parts = (
        "repro-gate",
        inside(report.subject.spec) or "repro.yml",
        *([quote(clip(name, 100), safe="")] if name else []),
        run,
    )
    return "/".join(parts)
