"""What `comment: on-change` goes by: whether a report says something new, and what its comment's
marker remembers of it."""

from __future__ import annotations

import hashlib
import json
import math

from repro_gate.report.model import Report

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
    first = None if found is None else found.comparison.first_divergence
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
