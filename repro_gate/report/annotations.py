"""The annotations of a report: what GitHub shows beside the lines of a change that are to blame.

`Annotation` is data for whoever prints workflow commands (`github`); `annotations` chooses them. Texts stay as the report has them, and are
clipped: the printer escapes them (`escape.for_workflow_data`) and keeps within the runner's limits. There is no
`from __future__ import annotations` here, since it would claim the function's name.
"""

from dataclasses import dataclass

from repro_gate.escape import clip
from repro_gate.report.comparisons import WEAKENED_TITLE
from repro_gate.report.findings import WEAKENED_ID, Finding, blames, spec_place
from repro_gate.report.model import Report

LEVELS = ("error", "warning", "notice")
_MESSAGE = 800  # characters of one of the three texts of a message: GitHub shows 4,096 of all
_TITLE = 120  # characters


@dataclass(frozen=True)
class Annotation:
    """One annotation. `level` is one of LEVELS; `file` is relative to the repository, with `/` between its parts; lines count from 1."""

    level: str
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    end_line: int | None = None


def annotations(report: Report, spec_path_in_repo: str, root_prefix: str = "") -> tuple[Annotation, ...]:
    """What is compared with the change, most important first: errors for what fails, warnings for what warns; nothing for what passed.

    `root_prefix` is the checkout's folder in the repository, empty where they are one. What no line is to blame for stands at the spec.
    """
    spec = spec_place(spec_path_in_repo)
    found = []
    for blame in blames(report, spec_path_in_repo, root_prefix):
        place = blame.place or spec
        file, line = (None, None) if place is None else (place.file, place.line)
        found.append(Annotation(blame.level, _title(blame), _message(blame), file, line))
    return tuple(found)


def _title(blame: Finding) -> str:
    return clip(f"Repro Gate: {WEAKENED_TITLE.lower() if blame.id == WEAKENED_ID else blame.id}", _TITLE)


def _message(blame: Finding) -> str:
    """What is wrong, what was seen there, and what to do: a line each."""
    parts = (blame.message, blame.detail, f"remedy: {blame.remedy}" if blame.remedy else "")
    return "\n".join(clip(part, _MESSAGE) for part in parts if part)
