"""What a check is: a function that looks at the evidence of one gate run and says one outcome. Each
category is a sibling file.

A check is executed: it looks at the checkout, the process or the trace. A declaration alone never
passes. It says what it found and not how bad that is: the profile, the severities of the spec and
the waivers decide, here and in `run_checks`, in one place for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from repro_gate.checkout.inspection import Checkout
from repro_gate.compare.model import Comparison, Divergence, Tally, about, one_of
from repro_gate.data.declared import DataFinding
from repro_gate.data.formats import DataProblem
from repro_gate.escape import and_more
from repro_gate.runs.launch import Run
from repro_gate.runs.results import Varied
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Refused, Trace

CATEGORIES = ("code", "data", "env", "random-state", "hardware")
STATUSES = ("pass", "warn", "fail", "skip", "waived")
RECORDED = (
    500  # entries of evidence that are recorded in full; the renderers show the first of them
)
CHECKOUT, RUNS = "checkout", "runs"  # what a check needs: files alone, or training that ran


@dataclass(frozen=True)
class EvidenceLine:
    """One entry of a check's evidence."""

    text: Annotated[str, about("What was seen: a sentence, or a value that was read.")]
    location: Annotated[Location | None, about("The line of the checkout that it is about.")] = None

    def __str__(self) -> str:
        return self.text if self.location is None else f"{self.location}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check and what it found."""

    id: Annotated[str, about("Stable name: `category/name`.")]
    category: Annotated[str, about("One of five.", **one_of(CATEGORIES))]
    status: Annotated[str, about("What came of it.", **one_of(STATUSES))]
    message: Annotated[str, about("One sentence.")]
    evidence: Annotated[
        tuple[EvidenceLine, ...], about("What was seen, each with its line.", max_length=RECORDED)
    ] = ()
    remedy: Annotated[str, about("What to do; may be empty.")] = ""


@dataclass(frozen=True)
class NotRobust:
    """What a varied run that is not the same as the first depends on: a sentence, lines of
    evidence, and what to do."""

    message: str
    lines: tuple[EvidenceLine | str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that checks may look at. `pair` are the two deterministic runs of the first seed,
    `control` the reseeded one.

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
    varied: Mapping[int, Varied] = field(default_factory=dict)  # by seed
    not_robust: NotRobust | None = None
    # line -> call that drew from the entropy, of a diagnosis that names a cause
    blamed: Mapping[Location, str] | None = None
    control_comparison: Comparison | None = None
    operators: tuple[
        str, ...
    ] = ()  # what this machine's catalog says of the operators that the training asks for
    refused: tuple[
        Refused, ...
    ] = ()  # every operator that torch refuses, of a run that goes on behind each
    data: tuple[DataFinding, ...] = ()
    changed_data: tuple[str, ...] = ()
    checkout: Checkout | None = None  # None: the evidence is about runs alone
    tracked: frozenset[str] | None = (
        None  # paths relative to the checkout's root that git tracks; None: no git
    )
    # what the gate itself read of this machine (`repro_gate.machine`)
    machine: Mapping[str, str] = field(default_factory=dict)
    running_image: str | None = (
        # digest reference of the container image that the gate runs in; None: no container, or
        # unknown
        None
    )
    data_problems: tuple[DataProblem, ...] = ()  # of the files that declare data
    gpu_processes: tuple[str, ...] | None = (
        None  # other processes seen on the GPUs during the timed runs; None: nobody looked
    )
    notes: tuple[str, ...] = ()  # what could not be used on the way, and why

    @property
    def trained(self) -> tuple[tuple[Run, Trace], ...]:
        """Every process that trained, with its run."""
        return tuple((run, trace) for run in self.runs for trace in run.traces if trace.trained)

    @property
    def folder(self) -> Path:
        """The spec's folder."""
        return Path(os.path.realpath(self.spec.path.parent))

    @property
    def root(self) -> Path:
        """The checkout's root, or the spec's folder where the evidence has none."""
        return Path(
            os.path.realpath(self.checkout.root if self.checkout else self.spec.path.parent)
        )


@dataclass(frozen=True)
class Finding:
    """What a check found. `kind`: `pass`; `fail` (declared and untrue, or shown to be broken: fails
    in every profile); `missing` (what a rerun needs is not there: warns in basic, fails in strict);
    `undeclared` (the spec never mentions it: skipped in basic, fails in strict); `notice` (worth
    knowing: warns in every profile); `skip` (nothing to look at)."""

    kind: str
    message: str
    evidence: Sequence[EvidenceLine | str] = ()
    remedy: str = ""


passed = partial(Finding, "pass")
failed = partial(Finding, "fail")
missing = partial(Finding, "missing")
undeclared = partial(Finding, "undeclared")
noticed = partial(Finding, "notice")
skipped = partial(Finding, "skip")


@dataclass(frozen=True)
class Check:
    """One check of the checklist. `title` is the sentence that is true where it passes; it stands
    in the README's table."""

    id: str
    title: str
    needs: str  # CHECKOUT or RUNS
    traced: bool  # skipped where no process trained
    look: Callable[[Evidence], Finding]

    @property
    def category(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]

    def __call__(self, evidence: Evidence) -> CheckResult:
        """Look, and say the outcome as a status under the spec's profile and severities (waivers
        come later)."""
        found = (
            self.look(evidence)
            if evidence.trained or not self.traced
            else skipped("no run was traced")
        )
        status, lines = _status(found.kind, self.id, evidence.spec), _recorded(found.evidence)
        return CheckResult(
            id=self.id,
            category=self.category,
            status=status,
            message=found.message,
            evidence=lines,
            remedy=found.remedy,
        )


def check(
    identifier: str, title: str, needs: str = RUNS, *, traced: bool = False
) -> Callable[[Callable[[Evidence], Finding]], Check]:
    """Decorator: makes a function from evidence to finding the check `identifier`."""
    return lambda look: Check(identifier, title, needs, traced, look)


def diverged_before(what: str, tensors: str, tally: Tally, first: Divergence | None) -> Finding:
    """`what` differs, and the runs had diverged in something else before: `tensors` are counted in
    `tally`, `first` is the divergence."""
    where = f"{first.kind} {first.name} at step {first.step}" if first is not None else "unknown"
    message = f"{what}, after the runs had diverged for another reason"
    remedy = "mend the first divergence"
    return noticed(
        message,
        (f"{tally.differing} of {tally.tensors} {tensors} differ; first divergence: {where}",),
        remedy,
    )


def _recorded(items: Sequence[EvidenceLine | str]) -> tuple[EvidenceLine, ...]:
    """Return the first items, and how many more there are."""
    found = [
        item if isinstance(item, EvidenceLine) else EvidenceLine(item) for item in items[:RECORDED]
    ]
    if more := len(items) - len(found):
        found[-1] = EvidenceLine(f"… {and_more(more + 1)}")
    return tuple(found)


def _status(kind: str, identifier: str, spec: Spec) -> str:
    if kind in ("pass", "skip"):
        return kind
    strict = spec.checklist.profile == "strict"
    # a waiver has something to say about a warning
    waived = any(item.check == identifier for item in spec.checklist.waive)
    undeclared = "fail" if strict else "warn" if waived else "skip"
    profile = {
        "fail": "fail",
        "notice": "warn",
        "missing": "fail" if strict else "warn",
        "undeclared": undeclared,
    }
    return spec.checklist.severity.get(identifier, profile[kind])
