"""The findings of a report, and the line of each: the one list that annotations and SARIF are made of.
 Texts are as the report has them: whoever prints them escapes them for the place. A path
is taken only where it can name a file inside the checkout: never absolute, never upwards, nothing that is not seen. Pure functions, no I/O.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro_gate.checks.interface import CheckResult
from repro_gate.escape import clip, for_terminal
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


@dataclass(frozen=True)
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
        found += [Finding("error", reason.id, reason.message, reason.remedy)] if check is None else _of_check(check, root_prefix)
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
        yield Finding(level, item.id, item.message, item.remedy, line, place)
    if not placed:
        yield Finding(level, item.id, item.message, item.remedy, _first_lines(item.evidence))


def _first_lines(evidence: Sequence[str]) -> str:
    return "\n".join([*(clip(line, 300) for line in evidence[:3]), *([f"and {len(evidence) - 3:,} more"] if len(evidence) > 3 else [])])


def _of_weakening(item: WeakenedCheck, spec_path: str) -> Finding:
    """`where` counts from the spec's own folder."""
    place = place_in(item.where, posixpath.dirname(spec_path)) if inside(spec_path) else None
    return Finding(
        "warning", WEAKENED_ID, f"{item.key}: {item.message}", "say in the pull request why the weaker check is enough", place=place
    )
