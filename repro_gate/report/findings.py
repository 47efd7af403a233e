"""The findings of a report, each with its line: annotations and SARIF are made of them. Texts are as the report has them: whoever prints
them escapes them. A path is taken only where it can name a file inside the checkout."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro_gate.checks.interface import CheckResult
from repro_gate.escape import clip, for_terminal
from repro_gate.report.comparisons import WEAKENED_TITLE
from repro_gate.report.model import Report, WeakenedCheck
from repro_gate.report.wording import worst_first

WEAKENED_ID = "base/weakened"  # the id of every weakened check
PLACES = 10  # lines of one check that are named one by one
_ROWS = 1_000  # as many reasons, checks and weakenings as a report.json holds
_PATH = r"(?P<path>[^\s:()'\"`][^:()'\"`\n]{0,399}\.[A-Za-z][A-Za-z0-9]{0,11}):(?P<line>[1-9][0-9]{0,6})"
_PLACE = (  # in this order: `flag is False from step 3 on, set at a.py:3`, `2 calls (a.py:3: what)`, `a.py:3: what`
    re.compile(rf".{{0,600}}?\bset (?:to .{{1,100}}? )?at {_PATH}(?=,|$)"),
    re.compile(rf".{{1,600}}?\({_PATH}(?=:)"),
    re.compile(rf"{_PATH}(?=[:,\s]|$)"),
)


@dataclass(frozen=True)
class Place:
    """A line of the checkout. `file` is relative, with `/` between its parts; `line` counts from 1, None for the file as a whole."""

    file: str
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding about the change. `level` is `error` or `warning`; `id` is a reason's or a check's, or WEAKENED_ID."""

    level: str
    id: str
    message: str
    remedy: str = ""
    detail: str = ""  # what was seen on this line
    place: Place | None = None  # None: no line is to blame, so it is shown at the spec


def blames(report: Report, spec_path: str, root_prefix: str = "") -> tuple[Finding, ...]:
    """Most important first: the reasons, failed checks, what the change weakens, checks that warn. Nothing of what passed.

    `spec_path` is the spec's path in the repository, `root_prefix` the checkout's folder in it (empty where they are one).
    """
    checks = [item for item in worst_first(report.checklist) if item.status in ("fail", "warn")][:_ROWS]
    by_id = {item.id: item for item in checks if item.status == "fail"}
    reasons = report.reasons[:_ROWS]
    said = {item.id for item in reasons}
    found: list[Finding] = []
    for reason in reasons:
        check = by_id.get(reason.id)
        found += (
            [Finding(level="error", id=reason.id, message=reason.message, remedy=reason.remedy)]
            if check is None
            else _of_check(check, root_prefix)
        )
    found += [blame for item in checks if item.status == "fail" and item.id not in said for blame in _of_check(item, root_prefix)]
    if report.base is not None:
        found += [_of_weakening(item, spec_path) for item in report.base.weakened[:_ROWS]]
    found += [blame for item in checks if item.status == "warn" for blame in _of_check(item, root_prefix)]
    return tuple(dict.fromkeys(found))


def spec_place(spec_path: str) -> Place | None:
    """The spec itself, where its path can name a file of the repository."""
    file = inside(spec_path)
    return None if file is None else Place(file)


def inside(path: str, prefix: str = "") -> str | None:
    """`path` below `prefix`, tidied; None for what is absolute, leads upwards, or holds characters that are not seen."""
    if not path or "\\" in path or len(path) > 400 or for_terminal(path) != path:
        return None
    joined = posixpath.normpath(posixpath.join(prefix, path))
    if path.startswith("/") or ".." in path.split("/") or joined.startswith(("/", "..")) or joined == ".":
        return None
    return joined


def place_in(evidence: str, prefix: str = "") -> Place | None:
    """The line that a check's evidence names; None where it names none."""
    found = next((match for match in (pattern.match(evidence[:1_200]) for pattern in _PLACE) if match), None)
    if found is None:
        return None
    file = inside(found["path"], prefix)
    return None if file is None else Place(file, int(found["line"]))


def _of_check(item: CheckResult, prefix: str) -> Iterator[Finding]:
    """One for each line that the evidence names; one for the check where it names none."""
    level = "error" if item.status == "fail" else "warning"
    placed = [(line, place) for line in item.evidence if (place := place_in(line, prefix)) is not None]
    for line, place in placed[:PLACES]:
        yield Finding(level=level, id=item.id, message=item.message, remedy=item.remedy, detail=line, place=place)
    if not placed:
        yield Finding(level=level, id=item.id, message=item.message, remedy=item.remedy, detail=_first_lines(item.evidence))


def _first_lines(evidence: Sequence[str]) -> str:
    return "\n".join([*(clip(line, 300) for line in evidence[:3]), *([f"and {len(evidence) - 3:,} more"] if len(evidence) > 3 else [])])


def _of_weakening(item: WeakenedCheck, spec_path: str) -> Finding:
    """`where` counts from the spec's own folder."""
    place = place_in(item.where, posixpath.dirname(spec_path)) if inside(spec_path) else None
    return Finding(
        level="warning",
        id=WEAKENED_ID,
        message=f"{item.key}: {item.message}",
        remedy="say in the pull request why the weaker check is enough",
        place=place,
    )


LEVELS = ("error", "warning", "notice")
_MESSAGE = 800  # characters of one of the three texts of a message: GitHub shows 4,096 of all
_TITLE = 120  # characters


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One annotation. `level` is one of LEVELS; `file` is relative to the repository, with `/` between its parts; lines count from 1."""

    level: str
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    end_line: int | None = None


def annotations_of(report: Report, spec_path_in_repo: str, root_prefix: str = "") -> tuple[Annotation, ...]:
    """What was found about the change, most important first: errors for what fails, warnings for what warns; nothing for what passed.

    `root_prefix` is the checkout's folder in the repository, empty where they are one. What no line is to blame for stands at the spec.
    """
    spec = spec_place(spec_path_in_repo)
    found = []
    for blame in blames(report, spec_path_in_repo, root_prefix):
        place = blame.place or spec
        file, line = (None, None) if place is None else (place.file, place.line)
        found.append(Annotation(level=blame.level, title=_title(blame), message=_message(blame), file=file, line=line))
    return tuple(found)


def _title(blame: Finding) -> str:
    return clip(f"Repro Gate: {WEAKENED_TITLE.lower() if blame.id == WEAKENED_ID else blame.id}", _TITLE)


def _message(blame: Finding) -> str:
    """What is wrong, what was seen there, and what to do: a line each."""
    parts = (blame.message, blame.detail, f"remedy: {blame.remedy}" if blame.remedy else "")
    return "\n".join(clip(part, _MESSAGE) for part in parts if part)
