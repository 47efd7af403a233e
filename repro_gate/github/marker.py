"""The hidden first line of the sticky comment: its owner, its run and that run's result, so that a
later run sees what is new. `comment: on-change` uses it: `is_news` returns whether a report has
news, `state_of` what the marker remembers.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated

import msgspec
from msgspec import Meta, field

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import Commit, Malformed, Number
from repro_gate.github.event import decode as decode_json
from repro_gate.report.model import Report

# at most 500 characters; the longest that is written has 359
_LINE = re.compile(r"<!-- repro-gate ([ -~]{1,480}) -->")

Percent = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Marker(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="v",
    tag=1,
):
    """What the hidden first line says: whose comment it is and of which run. Hex digits and numbers
    cannot end an HTML comment."""

    key: Annotated[str, Meta(pattern=r"^[0-9a-z]{1,64}\Z")]  # `key_for`
    head_sha: Commit = field(name="head")
    run_id: Number = field(name="run")
    run_attempt: Number = field(name="attempt")
    # digest of what `on-change` compares
    state: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}\Z")]
    verdict: Annotated[str, Meta(pattern=r"^(pass|fail|inconclusive)?\Z")] = ""
    # interval of the determinism cost
    cost: tuple[Percent, Percent] | None = None

    @property
    def run(self) -> tuple[int, int]:
        """Return the run's id, which grows, and its attempt."""
        return self.run_id, self.run_attempt


def key_for(*parts: str) -> str:
    """Return the marker's key, 32 hex digits, made of facts that the posting job knows: its
    workflow, its own name, its inputs. It never depends on a report's text: a forged report could
    choose which comment it replaces, and create any number of comments."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def marker_of(report: Report, key: str) -> Marker:
    """Return the marker of a report that names its run."""
    assert report.origin is not None  # the caller has checked
    origin = report.origin
    cost = None
    # not NaN, nor beyond what a marker holds
    if report.cost is not None and all(abs(end) <= 1e9 for end in report.cost.ci95):
        low, high = (round(float(end), 1) for end in report.cost.ci95)
        cost = low, high
    return Marker(
        key,
        origin.head_sha,
        origin.run_id,
        origin.run_attempt,
        state_of(report),
        report.verdict,
        cost,
    )


def marker_line(marker: Marker) -> str:
    """Return the line itself, without its end. Raises UsageError for a marker that could not be
    read back."""
    line = f"<!-- repro-gate {msgspec.json.encode(marker).decode()} -->"
    if read_marker(line) != marker:
        raise UsageError(
            f"no comment can be marked for {for_terminal(str(marker), 500)}",
            remedy="a marker holds a commit of 40 or 64 hex digits and the numbers of a workflow "
            "run: post a report that the action made",
        )
    return line


def read_marker(body: str) -> Marker | None:
    """Return the marker in a comment's first line; None if there is none or it is not exactly of
    the form that `marker_line` writes."""
    line = _LINE.fullmatch(body.partition("\n")[0].removesuffix("\r"))
    if line is None:
        return None
    data = line[1].encode()
    try:
        marker = decode_json(data, Marker)
    except Malformed:
        return None
    # another order, a field twice
    return marker if msgspec.json.encode(marker) == data else None


def costs_differ(one: Marker, other: Marker) -> bool:
    """Return whether both runs measured the cost, and their intervals do not overlap."""
    if one.cost is None or other.cost is None:
        return False
    return one.cost[1] < other.cost[0] or other.cost[1] < one.cost[0]


# what a baseline or another ref says of a change that a reviewer should read
_NEWS = {"changed", "no-op", "drift"}


def is_news(report: Report) -> bool:
    """Return whether a pass contains something that a reviewer does not expect: results that differ
    from the baseline or the other ref, equal results of changed inputs, a changed step time,
    weakened checks, or a condition under which alone it passes."""
    against = report.against
    compared = [item.status for item in (report.baseline, against) if item is not None]
    return bool(
        _NEWS.intersection(compared)
        or (against and any(_sign(item.ci95) for item in against.speed))
        or report.weakened
        or report.is_conditional
    )


def _sign(interval: tuple[float, float]) -> int:
    """Return whether an interval lies above zero (1), below (-1), or across it (0)."""
    return (interval[0] > 0) - (interval[1] < 0)


def state_of(report: Report) -> str:
    """Return what `comment: on-change` compares, as 16 hex digits: the verdict and its reasons, and
    no number that changes with each run."""
    determinism = report.determinism
    cause = report.diagnosis
    against = report.against
    first = determinism and determinism.first_divergence
    state = [
        against and against.status,
        report.change and report.change.size,
        against and sorted([item.arm, _sign(item.ci95)] for item in against.speed),
        report.verdict,
        sorted({item.id for item in report.reasons}),
        first and [first.step, first.kind, first.name],
        cause and [cause.cause, cause.file, cause.line],
        sorted([item.id, item.status] for item in report.checklist),
        report.baseline and report.baseline.status,
        report.base and sorted(item.key for item in report.base.weakened),
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]
