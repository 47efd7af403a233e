"""What a check is: a function that looks at the evidence of one gate run and says one outcome. Each category is a sibling file.

A check is executed: it looks at the checkout, the process or the trace. A declaration alone never passes. It says what it found and not how
bad that is: the profile, the severities of the spec and the waivers decide, here and in `run_checks`, in one place for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.checkout.inspection import Checkout
from repro_gate.compare.model import Comparison, Divergence, Tally
from repro_gate.data.declared import DataFinding
from repro_gate.data.formats import DataProblem
from repro_gate.runs.launch import Run
from repro_gate.spec.model import Spec

CATEGORIES = ("code", "data", "env", "random-state", "hardware")
STATUSES = ("pass", "warn", "fail", "skip", "waived")
RECORDED = 500  # entries of evidence that are recorded in full; the report's faces show the first of them
CHECKOUT, RUNS = "checkout", "runs"  # what a check needs: files alone, or training that ran


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
class Evidence:
    """Everything that checks may look at. `pair` are the two deterministic runs of the first seed, `control` the reseeded one.

    `runs` is empty where only the checkout is looked at (`repro-gate check`).
    """

    spec: Spec
    commit: str | None
    uncommitted: tuple[str, ...]  # paths relative to the checkout's root
    files: int  # in each run's workspace
    runs: tuple[Run, ...] = ()
    pair: tuple[Run, ...] = ()
    control: Run | None = None
    comparison: Comparison | None = None
    control_comparison: Comparison | None = None
    data: tuple[DataFinding, ...] = ()
    changed_data: tuple[str, ...] = ()
    checkout: Checkout | None = None  # None: the evidence is about runs alone
    tracked: frozenset[str] | None = None  # paths relative to the checkout's root that git tracks; None: no git
    machine: Mapping[str, str] = field(default_factory=dict)  # what the gate itself read of this machine (`repro_gate.machine`)
    running_image: str | None = None  # digest reference of the container image that the gate runs in; None: no container, or unknown
    data_problems: tuple[DataProblem, ...] = ()  # of the files that declare data
    gpu_processes: tuple[str, ...] | None = None  # other processes seen on the GPUs during the timed runs; None: nobody looked
    notes: tuple[str, ...] = ()  # what could not be used on the way, and why

    @property
    def root(self) -> Path:
        """The checkout's root, or the spec's folder where the evidence has none."""
        return Path(os.path.realpath(self.checkout.root if self.checkout else self.spec.path.parent))


@dataclass(frozen=True)
class Outcome:
    """What a check found. `kind`: `pass`; `fail` (declared and untrue, or shown to be broken: fails in every profile); `missing` (not
    there: warns in basic, fails in strict); `undeclared` (the spec never mentions it: skipped in basic, fails in strict); `notice` (worth
    knowing: warns in every profile); `skip` (nothing to look at)."""

    kind: str
    message: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""


def passed(message: str, evidence: Sequence[str] = ()) -> Outcome:
    """What the check is about holds."""
    return Outcome("pass", message, tuple(evidence))


def failed(message: str, evidence: Sequence[str] = (), remedy: str = "") -> Outcome:
    """What is declared is untrue, or something is shown to be broken."""
    return Outcome("fail", message, tuple(evidence), remedy)


def missing(message: str, evidence: Sequence[str] = (), remedy: str = "") -> Outcome:
    """What a rerun needs is not there."""
    return Outcome("missing", message, tuple(evidence), remedy)


def undeclared(message: str, evidence: Sequence[str] = (), remedy: str = "") -> Outcome:
    """The spec never mentions what the check is about, which is nothing wrong unless the profile demands it."""
    return Outcome("undeclared", message, tuple(evidence), remedy)


def noticed(message: str, evidence: Sequence[str] = (), remedy: str = "") -> Outcome:
    """Worth knowing, and no reason to fail unless the spec says so."""
    return Outcome("notice", message, tuple(evidence), remedy)


def skipped(message: str, evidence: Sequence[str] = ()) -> Outcome:
    """There was nothing to look at."""
    return Outcome("skip", message, tuple(evidence))


@dataclass(frozen=True)
class Check:
    """One check of the checklist. `title` is the sentence that is true where it passes; it stands in the README's table."""

    id: str
    title: str
    needs: str  # CHECKOUT or RUNS
    look: Callable[[Evidence], Outcome]

    @property
    def category(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    def __call__(self, evidence: Evidence) -> CheckResult:
        """Look, and say the outcome as a status under the spec's profile and severities (waivers come later)."""
        found = self.look(evidence)
        status = _status(found.kind, self.id, evidence.spec)
        return CheckResult(self.id, self.category, status, found.message, found.evidence, found.remedy)


def check(identifier: str, title: str, needs: str = RUNS) -> Callable[[Callable[[Evidence], Outcome]], Check]:
    """Decorator: makes a function from evidence to outcome the check `identifier`."""
    return lambda look: Check(identifier, title, needs, look)


def parted_before(what: str, parts: str, tally: Tally, first: Divergence | None) -> Outcome:
    """`what` differs, after the runs had diverged in something else: `parts` are counted in `tally`, `first` is what diverged first."""
    where = f"{first.kind} {first.name} at step {first.step}" if first is not None else "unknown"
    return noticed(
        f"{what}, after the runs had diverged for another reason",
        (f"{tally.differing} of {tally.tensors} {parts} differ; first to part: {where}",),
        "mend what diverged first",
    )


def shortened(items: Sequence[str], most: int = 99) -> tuple[str, ...]:
    """The first items, and how many more there are."""
    return tuple(items) if len(items) <= most else (*items[:most], f"… and {len(items) - most} more")


def bounded(items: Sequence[str]) -> tuple[str, ...]:
    """The items of evidence that the report is there to record: all of them, up to what a stranger may fill it with."""
    return shortened(items, RECORDED)


def _status(kind: str, identifier: str, spec: Spec) -> str:
    if kind in ("pass", "skip"):
        return kind
    strict = spec.checklist.profile == "strict"
    waived = any(item.check == identifier for item in spec.checklist.waive)  # a waiver has something to say about a warning
    undeclared = "fail" if strict else "warn" if waived else "skip"
    profile = {"fail": "fail", "notice": "warn", "missing": "fail" if strict else "warn", "undeclared": undeclared}
    return spec.checklist.severity.get(identifier, profile[kind])
