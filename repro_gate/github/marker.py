"""The hidden first line of the sticky comment: whose it is, of which run, and what that run found,
so that a later one sees what is new.

`comment: on-change` goes by it: `is_news` says whether a report has something new to say,
`state_of` what the marker remembers of it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated

import msgspec
from msgspec import Meta, field

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import Commit, Malformed, Number
from repro_gate.github.event import decode as decode_json
from repro_gate.report.model import Report

MARKER_LIMIT = 500  # characters of the marker's line; the longest that is written has 357
_OPEN, _CLOSE = "<!-- repro-gate ", " -->"

Tenths = Annotated[int, Meta(ge=-(10**9), le=10**9)]


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
    state: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}\Z")]  # digest of what `on-change` compares
    verdict: Annotated[str, Meta(pattern=r"^(pass|fail|inconclusive)?\Z")] = ""
    cost: tuple[Tenths, Tenths] | None = (
        None  # interval of the determinism cost, in tenths of a percent
    )


def key_for(*known: str) -> str:
    """Return the marker's key, 32 hex digits, of what the posting job knows: its workflow, its own
    name, inputs. Never of a report's text: a forged report would choose whose comment it replaces,
    and make as many as it likes."""
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]


def marker_line(marker: Marker) -> str:
    """The line itself, without its end. Raises UsageError for a marker that could not be read
    back."""
    line = f"{_OPEN}{msgspec.json.encode(marker).decode()}{_CLOSE}"
    if read_marker(line) != marker:
        raise UsageError(
            f"no comment can be marked for {for_terminal(str(marker), MARKER_LIMIT)}",
            remedy="a marker holds a commit of 40 or 64 hex digits and the numbers of a workflow "
            "run: post a report that the action made",
        )
    return line


def read_marker(body: str) -> Marker | None:
    """The marker in a comment's first line; None where there is none or it is not exactly of the
    form that `marker_line` writes."""
    line = body[: MARKER_LIMIT + 2].partition("\n")[0].removesuffix("\r")
    if (
        len(line) > MARKER_LIMIT
        or not line.isascii()
        or not line.startswith(_OPEN)
        or not line.endswith(_CLOSE)
    ):
        return None
    data = line[len(_OPEN) : -len(_CLOSE)].encode()
    try:
        marker = decode_json(data, Marker)
    except Malformed:
        return None
    return marker if msgspec.json.encode(marker) == data else None  # another order, a field twice


def apart(one: Marker, other: Marker) -> bool:
    """Whether both runs measured the cost, and their intervals do not overlap."""
    if one.cost is None or other.cost is None:
        return False
    return one.cost[1] < other.cost[0] or other.cost[1] < one.cost[0]


# what a baseline or another ref says of a change that a reviewer should read
_NEWS = (
    "changed",
    "no-op",
    "drift",
)


def is_news(report: Report) -> bool:
    """Whether a pass says what a reviewer does not expect of it: other results than the baseline's
    or the other ref's, or for other inputs the same ones; another step time; weakened checks."""
    against = report.against
    compared = [item.status for item in (report.baseline, against) if item is not None]
    slower = against is not None and any(_sign(item.ci95) for item in against.speed)
    return (
        slower
        or any(status in _NEWS for status in compared)
        or (report.base is not None and bool(report.base.weakened))
    )


def tenths(report: Report) -> tuple[int, int] | None:
    """The interval of the cost as the marker has it; None if there is none."""
    price = report.cost
    if price is None or not all(math.isfinite(end) for end in price.ci95):
        return None
    low, high = (round(10 * max(-1e8, min(end, 1e8))) for end in price.ci95)
    return low, high


def _sign(interval: tuple[float, float]) -> int:
    """Whether an interval lies above zero (1), below (-1), or across it (0)."""
    return 1 if interval[0] > 0 else -1 if interval[1] < 0 else 0


def state_of(report: Report) -> str:
    """What `comment: on-change` compares, as 16 hex digits: the verdict and its reasons, and no
    number that changes with each run."""
    found, why, against = report.determinism, report.diagnosis, report.against
    first = None if found is None else found.first_divergence
    state = [
        None
        if against is None
        else [against.status, sorted([item.arm, _sign(item.ci95)] for item in against.speed)],
        report.verdict,
        sorted({item.id for item in report.reasons}),
        None if first is None else [first.step, first.kind, first.name],
        None if why is None else [why.cause, why.file, why.line],
        sorted([item.id, item.status] for item in report.checklist),
        None if report.baseline is None else report.baseline.status,
        None if report.base is None else sorted(item.key for item in report.base.weakened),
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]
