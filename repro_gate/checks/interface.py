"""What a check is: a function from the evidence of one gating to one result. Each category is a sibling file that lists its members.

A check is executed: it looks at the checkout, the process or the trace. A declaration alone never passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from repro_gate.analysis.model import Comparison
from repro_gate.runs.launch import Run
from repro_gate.spec.model import Spec

CATEGORIES = ("code", "data", "env", "random-state", "hardware")
STATUSES = ("pass", "warn", "fail", "skip", "waived")


@dataclass(frozen=True)
class CheckResult:
    """One item of the checklist. `evidence` holds `path:line` or values that were read."""

    id: str  # `category/name`
    category: str  # one of CATEGORIES
    status: str  # one of STATUSES
    message: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class DataCheck:
    """One declared data item as it was found: `expected` and `actual` are sha256 hex digests, `expected` None where none was declared."""

    path: str
    expected: str | None
    actual: str | None
    size: int | None


@dataclass(frozen=True)
class Evidence:
    """Everything that checks may look at. `pair` are the two deterministic runs of the first seed, `control` the reseeded one."""

    spec: Spec
    commit: str | None
    uncommitted: tuple[str, ...]
    files: int  # in each run's workspace
    runs: tuple[Run, ...] = ()
    pair: tuple[Run, ...] = ()
    control: Run | None = None
    comparison: Comparison | None = None
    control_comparison: Comparison | None = None
    data: tuple[DataCheck, ...] = ()
    changed_data: tuple[str, ...] = field(default=())


Check = Callable[[Evidence], CheckResult]


def missing(evidence: Evidence) -> str:
    """The status of what is not declared: a warning in the basic profile, a failure in the strict one."""
    return "fail" if evidence.spec.checklist.profile == "strict" else "warn"


def shortened(items: Sequence[str], most: int = 10) -> tuple[str, ...]:
    """The first items, and how many more there are."""
    return tuple(items) if len(items) <= most else (*items[:most], f"… and {len(items) - most} more")
