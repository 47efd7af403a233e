"""The report as annotations of a GitHub workflow: one command for each finding, on its line.

The limits are the runner's own: github.com/actions/runner, `ExecutionContext.cs`,
`ActionCommandManager.cs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from repro_gate.escape import clip, for_terminal, for_workflow_data, for_workflow_property
from repro_gate.report.comparisons import WEAKENED_TITLE
from repro_gate.report.findings import WEAKENED_ID, findings, spec_location
from repro_gate.report.model import PLAIN, Report, View

LEVELS = ("error", "warning", "notice")
MOST = (
    9  # of each level: GitHub shows ten a step, and one is left for what the step itself has to say
)
MESSAGE = 4096  # UTF-16 units of an annotation's message; the runner cuts the rest off
TITLE = 255  # characters of an annotation's title: `title` of a check run's annotation, REST API
_PART = 800  # characters of one of the three texts of a finding's message


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One annotation. `level` is one of LEVELS; `file` is relative to the repository, with `/`
    between its parts; `line` counts from 1."""

    level: str
    title: str
    message: str
    file: str | None = None
    line: int | None = None


def render(report: Report, view: View = PLAIN) -> str:  # noqa: ARG001  annotations are the same everywhere
    """The workflow commands, a line each: errors for what fails, warnings for what warns, notices
    for what the gate saw before its runs.

    What has no line stands at the spec. At most MOST of each level, the most important first.
    """
    spec = spec_location(report)
    found = []
    for item in findings(report):
        parts = (item.message, item.detail, f"remedy: {item.remedy}" if item.remedy else "")
        message = "\n".join(clip(part, _PART) for part in parts if part)
        title = clip(
            f"Repro Gate: {WEAKENED_TITLE.lower() if item.id == WEAKENED_ID else item.id}", 120
        )
        location = item.location or spec
        file, line = (None, None) if location is None else (location.file, location.line)
        found.append(
            Annotation(level=item.level, title=title, message=message, file=file, line=line)
        )
    preflight = (note for note in report.notes if note.id.startswith("preflight/"))
    found += [
        Annotation(level="notice", title=note.id, message=f"{note.message}\n{note.remedy}")
        for note in preflight
    ]
    return "".join(f"{command(item)}\n" for item in _chosen(found))


def command(item: Annotation) -> str:
    """The workflow command that makes `item` an annotation, on one line. Texts are escaped here and
    are cut to the runner's limits."""
    properties = {"title": for_terminal(item.title, TITLE), "file": item.file or ""}
    if item.file and item.line:
        properties["line"] = str(item.line)
    listed = ",".join(
        f"{name}={for_workflow_property(value)}" for name, value in properties.items() if value
    )
    message = for_workflow_data(_clipped(item.message or item.title))
    return f"::{item.level}{' ' if listed else ''}{listed}::{message}"


def _chosen(given: Iterable[Annotation]) -> list[Annotation]:
    """What the runner has room for, errors first. Where there is more, the last one of its level
    says how many were left out."""
    chosen: list[Annotation] = []
    for level in LEVELS:
        found = [item for item in given if item.level == level]
        if (left := len(found) - MOST + 1) > 1:
            message = (
                f"{left} more {level}s are in the report: GitHub shows ten of each kind a step"
            )
            found = [
                *found[: MOST - 1],
                replace(
                    found[0],
                    title=f"Repro Gate: {left} more",
                    message=message,
                    file=None,
                    line=None,
                ),
            ]
        chosen += found
    return chosen


def _clipped(message: str) -> str:
    """`message` line by line as it will be seen, within MESSAGE. A character outside the basic
    plane is two UTF-16 units."""
    shown = "\n".join(for_terminal(line) for line in message.replace("\r\n", "\n").split("\n"))
    return clip(
        shown, MESSAGE // 2 if any(ord(char) > 0xFFFF for char in shown[:MESSAGE]) else MESSAGE
    )
