"""The interface of checks: a check is a function from the evidence of one gate run to one finding.
Each category is a sibling file.

A check examines the checkout, the process or the trace; a declaration alone never passes. It
returns what it found, not how bad that is: the profile, the severities of the spec and the waivers
decide that, here and in `run_checks`, in one place for all checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from repro_gate.checkout.inspection import Checkout
from repro_gate.compare.model import Comparison, about, described, one_of, reported
from repro_gate.compare.traces import hosts
from repro_gate.data.declared import DataFinding
from repro_gate.data.dvc import DataProblem
from repro_gate.escape import and_more, counted, listed
from repro_gate.runs.launch import RunResult
from repro_gate.runs.results import Varied
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Drawn, Refused, Trace, Undone

CATEGORIES = ("code", "data", "env", "random-state", "hardware")
STATUSES = ("pass", "warn", "fail", "skip", "waived")
# entries of evidence that are recorded in full; the renderers show the first of them
RECORDED = 500


@dataclass(frozen=True)
@described
class EvidenceLine:
    """One entry of a check's evidence.

    text: What was seen: a sentence, or a value that was read.
    location: The line of the checkout that it is about.
    """

    text: str
    location: Location | None = None

    def __str__(self) -> str:
        return self.text if self.location is None else f"{self.location}: {self.text}"


@reported
class CheckResult:
    """One check and what it found.

    id: Stable name: `category/name`.
    message: One sentence.
    evidence: What was seen, each with its line.
    remedy: What to do; may be empty.
    """

    id: str
    category: Annotated[str, about("One of five.", **one_of(CATEGORIES))]
    status: Annotated[str, about("What came of it.", **one_of(STATUSES))]
    message: str
    evidence: Annotated[tuple[EvidenceLine, ...], Meta(max_length=RECORDED)] = ()
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """What a check found. `kind`: `pass`; `fail` (a declaration is untrue, or something is broken:
    fails in every profile); `missing` (something that a rerun needs is absent: warns in basic,
    fails in strict); `undeclared` (the spec does not mention it: skipped in basic, fails in
    strict); `notice` (worth knowing: warns in every profile); `skip` (there is nothing to
    check)."""

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
# kind of a finding -> status in the basic and in the strict profile
_STATUS = {
    "fail": ("fail", "fail"),
    "missing": ("warn", "fail"),
    "undeclared": ("skip", "fail"),
    "notice": ("warn", "warn"),
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that checks may examine. `pair` are the two deterministic runs of the first seed,
    `control` the reseeded one.

    `runs` is empty if only the checkout is checked (`repro-gate check`).
    """

    spec: Spec
    checkout: Checkout
    runs: tuple[RunResult, ...] = ()
    pair: tuple[RunResult, ...] = ()
    control: RunResult | None = None
    comparison: Comparison | None = None
    varied: Mapping[int, Varied] = field(default_factory=dict)  # by seed
    # those that differ though the plain runs agree; any other differs by chance
    fragile: tuple[Varied, ...] = ()
    # the dependence because of which a varied run differs
    not_robust: Finding | None = None
    # line -> call that drew entropy, if a diagnosis names a cause
    blamed: Mapping[Location, str] | None = None
    # every operator that torch refuses, from a run that continues after each
    refused: tuple[Refused, ...] = ()
    data: tuple[DataFinding, ...] = ()
    changed_data: tuple[str, ...] = ()
    # paths relative to the checkout's root that git tracks; None: no git
    tracked: frozenset[str] | None = None
    # facts that the gate itself read about this machine (`repro_gate.machine`)
    machine: Mapping[str, str] = field(default_factory=dict)
    # digest reference of the image that the gate runs in; None: no container, or unknown
    running_image: str | None = None
    # `nvidia: --gpus all`, `none: …`; empty where nobody said what the host has
    given_gpus: str = ""
    data_problems: tuple[DataProblem, ...] = ()  # of the files that declare data
    # other processes seen on the GPUs during the timed runs; None: nobody looked
    gpu_processes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()  # what could not be used, and why

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Return every process of every run."""
        return tuple(trace for run in self.runs for trace in run.traces)

    @property
    def trained(self) -> tuple[tuple[RunResult, Trace], ...]:
        """Return every process that trained, with its run."""
        return tuple(
            (run, trace) for run in self.runs for trace in run.traces if trace.trained
        )

    @property
    def deterministic(self) -> tuple[tuple[RunResult, Trace], ...]:
        """Return every process of the runs under the flags, of every seed, with its run."""
        return tuple(
            (run, trace)
            for run in self.runs
            for trace in run.traces
            if run.arm.name == "deterministic"
        )

    @property
    def folder(self) -> Path:
        """Return the spec's folder."""
        return Path(os.path.realpath(self.spec.path.parent))

    @property
    def working_directory(self) -> Path:
        """Return the folder of the checkout in which the command starts."""
        return self.folder / self.spec.train.working_directory

    @property
    def root(self) -> Path:
        """Return the checkout's root."""
        return self.checkout.root


@dataclass(frozen=True)
class Subject:
    """What a check examines: only the `checkout`, or the `runs`. Unless the evidence meets the
    condition `is_met`, the check is skipped with the sentence `absent`."""

    name: str
    absent: str = ""
    is_met: Callable[[Evidence], object] = lambda _: True


CHECKOUT = Subject("checkout")
RUNS = Subject("runs")
GIT = Subject(
    "checkout",
    "there is no git repository",
    lambda evidence: evidence.tracked is not None,
)
TRACED = Subject("runs", "no run was traced", lambda evidence: evidence.trained)
PAIR = Subject(
    "runs", "no two runs could be compared", lambda evidence: len(evidence.pair) > 1
)


@dataclass(frozen=True)
class Check:
    """One check of the checklist. `title` is the sentence that is true if it passes; it is in the
    README's table."""

    id: str
    title: str
    subject: Subject
    look: Callable[[Evidence], Finding]

    def __call__(self, evidence: Evidence) -> CheckResult:
        """Return the result under the spec's profile and severities (waivers come later)."""
        is_met = self.subject.is_met(evidence)
        finding = self.look(evidence) if is_met else skipped(self.subject.absent)
        return self.result(finding, evidence.spec)

    def result(self, finding: Finding, spec: Spec) -> CheckResult:
        """Return the result for a finding: only here profile and severities decide. A finding that
        is undeclared and waived warns, so that the waiver has an effect. Long evidence is cut to
        its first entries and the number of the others."""
        checklist = spec.checklist
        status = finding.kind
        if status in _STATUS:
            status = _STATUS[status][checklist.profile == "strict"]
            waived = {item.check for item in checklist.waive}
            status = "warn" if status == "skip" and self.id in waived else status
            status = checklist.severity.get(self.id, status)
        lines = [
            item if isinstance(item, EvidenceLine) else EvidenceLine(item)
            for item in finding.evidence[:RECORDED]
        ]
        if more := len(finding.evidence) - len(lines):
            lines[-1] = EvidenceLine(f"… {and_more(more + 1)}")
        return CheckResult(
            id=self.id,
            category=self.id.partition("/")[0],
            status=status,
            message=finding.message,
            evidence=tuple(lines),
            remedy=finding.remedy,
        )


def check(
    identifier: str, title: str, subject: Subject = RUNS
) -> Callable[[Callable[[Evidence], Finding]], Check]:
    """Return a decorator that turns a function from evidence to finding into the check
    `identifier`."""
    return partial(Check, identifier, title, subject)


def by_process(
    trained: Sequence[tuple[RunResult, Trace]], keys: Iterable[str]
) -> list[tuple[str, dict[str, str]]]:
    """Return the name of each process, with its node where there are several, and the facts of
    `keys` that it recorded."""
    several = len(hosts(trace for _, trace in trained)) > 1
    found = []
    for run, trace in trained:
        name = f"{run.name}: {trace.key} ({trace.pid})"
        if several:
            name += f" on {trace.facts.get('host', 'an unknown node')}"
        facts = {key: trace.facts[key] for key in keys if key in trace.facts}
        found.append((name, facts))
    return found


def differences(facts: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Return `key: value in PLACE, other value in OTHER PLACE` for each key whose values differ.
    `facts` are pairs of a place and its key -> value."""
    lines = []
    for key in dict.fromkeys(key for _, values in facts for key in values):
        places = dict[str, str]()
        for place, values in facts:
            places.setdefault(values.get(key, "not recorded"), place)
        if len(places) > 1:
            texts = [f"{value} in {place}" for value, place in places.items()]
            lines.append(f"{key}: {listed(texts, 4)}")
    return lines


def on_gpu(trace: Trace) -> bool:
    """Return whether a process trained on CUDA."""
    return trace.facts.get("device", "").startswith("cuda")


def at(event: Drawn | Refused | Undone, text: str) -> EvidenceLine:
    """Return an entry of evidence at the line that caused an event."""
    return EvidenceLine(text, Location(event.file, event.line) if event.file else None)


def differ(
    comparison: Comparison, kind: str, things: str, remedy: str
) -> Finding | None:
    """Return the finding on tensors of one kind that differ: a fault if the first divergence is of
    this kind. None if nothing differs, or if the difference counts as no divergence."""
    first = comparison.first_divergence
    tally = comparison.by_kind[kind]
    if first is None or not tally.differing:
        return None
    when = "before the first step" if first.step < 0 else f"at step {first.step}"
    place = f"{first.kind} {first.name} {when}"
    noun = "generator state" if kind == "rng" else kind
    differing = f"differing: {tally.differing} of {counted(tally.tensors, noun)}"
    if first.kind == kind:
        return failed(f"{things} differ, first {place}", (differing,), remedy)
    return noticed(
        f"{things} differ, after the runs had diverged for another reason",
        (f"{differing}; first divergence: {place}",),
        "fix the first divergence",
    )
