"""The Report: everything the gate says, as data. Each renderer shows this and nothing else.

The records stand in `report.json` as they are: each field's bounds and description make the
published schema, which `python -m tests.support.schemas` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding, Commit, Names
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.change import Change, Equivalence
from repro_gate.compare.model import (
    Amount,
    Comparison,
    Cost,
    Count,
    Fingerprint,
    NoiseFloor,
    Resumption,
    Step,
    Totals,
    UpTo1000,
    about,
    described,
    one_of,
)
from repro_gate.compare.operators import Operators
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.numbers import excluded
from repro_gate.spec.model import Tolerance
from repro_gate.trace.fields import Location

SCHEMA_ID: Literal["repro-gate/report/v1"] = "repro-gate/report/v1"
# `recorded`: one run of `--record`, which was not compared. Whatever asks for a pass refuses it.
EXIT_CODES: Mapping[str, int] = {"pass": 0, "recorded": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True)
@described
class Reason:
    """One sentence that explains the verdict (in `reasons`) or is worth knowing besides (in
    `notes`).

    id: Stable name: `room/name`.
    message: One sentence.
    remedy: What to do; may be empty.
    locations: The lines of the checkout that it is about.
    """

    id: str
    message: str
    remedy: str = ""
    locations: UpTo1000[Location] = ()


@dataclass(frozen=True, kw_only=True)
@described
class RunSummary:
    """One run of the training command.

    name: `deterministic-1`, `default-1`, …, `reseeded`.
    arm: What it was started under: `deterministic`, `default`, `reseeded`, …
    seed: The seed.
    steps: Optimizer steps made.
    seconds: Wall time, in seconds.
    exit_code: Exit status; negative is a signal; null where it never ended by itself.
    outcome: How it ended: `finished`, `stopped` (at train.steps), `crashed`, `timed-out`, …
    processes: Traced processes that trained.
    step_seconds: Of the wall time, the optimizer steps of the process that took longest in
        them.
    probe_seconds: And what the probe took of it in that process.
    settings: Flags as last read back in this run.
    log_tail: End of its log, where it did not end well.
    artifacts: Artifacts that were kept for comparison.
    """

    name: str
    arm: str
    seed: int
    steps: Count
    seconds: Amount
    exit_code: int | None
    outcome: str
    processes: Count = 1
    step_seconds: Amount = 0.0
    probe_seconds: Amount = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    log_tail: Annotated[tuple[str, ...], Meta(max_length=200)] = ()
    artifacts: Count = 0


@dataclass(frozen=True, kw_only=True)
@described
class Subject:
    """What was gated.

    spec: Path of the spec, relative to the checkout.
    command: The training command.
    commit: The commit, 40 (or 64) hex digits; null outside git.
    uncommitted: Paths with uncommitted changes that were part of the run.
    seeds: The seeds.
    versions: Versions and devices, as the training reported them.
    sandbox: How far the training was kept from the gate: `same-user`, …
    machine: What the gate read of the machine that it ran on: `driver`, `gpu.0.uuid`, …
    gpus: What the action's container was given of the host's GPUs; empty elsewhere.
    """

    spec: str
    command: str
    commit: Commit | None
    uncommitted: Names = ()
    seeds: UpTo1000[int] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    sandbox: str = "same-user"
    machine: Mapping[str, str] = field(default_factory=dict)
    gpus: str = ""


@dataclass(frozen=True, kw_only=True)
@described
class SeedTotals(Totals):
    """The answer for one seed.

    seed: The seed that these figures are about.
    runs: Runs with the flags on and this seed that were compared.
    failed: Further ones that ended badly, and not because of what was varied.
    """

    seed: int
    runs: Count = 2
    failed: Count = 0


@dataclass(frozen=True, kw_only=True)
@described
class Determinism(SeedTotals, Comparison):
    """The two runs with the flags on, for the first seed that diverged, else for the first seed.

    determinism_settings: Flags and variables as read back inside the training process.
    bound_pct: Equal runs exclude faults that show in more percent of runs, at 95 %; else null.
    seeds: The answer for each seed of `random-state.seeds`.
    non_finite: Losses that are NaN or infinite, each with its step.
    tolerance: What the spec tolerates; null where it asks for equal bits.
    """

    determinism_settings: Mapping[str, Any] = field(default_factory=dict)
    bound_pct: Amount | None = None
    seeds: UpTo1000[SeedTotals] = ()
    non_finite: UpTo1000[
        tuple[Step, Annotated[str, Meta(**one_of(("nan", "inf", "-inf")))]]
    ] = ()
    tolerance: Tolerance | None = None

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Return the options of `repro-gate run` that are enough to see this divergence again; none
        if it takes a whole run."""
        first = self.first_divergence
        if first is None or first.kind == "artifact" or first.step >= self.steps:
            return ()
        return (
            "--seed",
            str(self.seed),
            "--steps",
            str(max(first.step, 0) + 1),
            "--fail-fast",
        )


def determinism(results: Sequence[Determinism], **measured: Any) -> Determinism | None:
    """Return the answer of all seeds, of which `results` has one each (`measured`: further fields);
    None if nothing was compared."""
    if not results:
        return None
    chosen = next((item for item in results if not item.identical), results[0])
    whole = chosen.identical and not chosen.failed
    names = [item.name for item in fields(SeedTotals)]
    seeds = (
        SeedTotals(**{name: getattr(item, name) for name in names}) for item in results
    )
    return replace(
        chosen,
        bound_pct=round(excluded(chosen.runs), 1) if whole else None,
        seeds=tuple(seeds),
        **measured,
    )


@dataclass(frozen=True)
@described
class WeakenedCheck:
    """One thing that the change weakens.

    key: Key of the spec (`determinism.allow`), or `repro.baseline.yml`.
    message: One sentence with the value before and after.
    location: Its line, beside the spec.
    """

    key: str
    message: str
    location: Location | None = None


@dataclass(frozen=True)
@described
class BaseFinding:
    """What is known of the base ref: which spec judged, and what the change weakens.

    ref: The base ref. Untrusted text.
    commit: Its commit, 40 (or 64) hex digits.
    policy: Whose spec judged.
    weakened: What the change weakens.
    """

    ref: str
    commit: Commit
    policy: Literal["head", "base"]
    weakened: UpTo1000[WeakenedCheck] = ()


@dataclass(frozen=True)
@described
class Origin:
    """The workflow run that made a report. The action writes it; whoever posts a report of another
    run compares it with that run.

    repository: owner/name of the workflow's repository.
    head_sha: Head of the pull request, or the commit that was pushed.
    run_id: Id of the workflow run.
    run_attempt: Which attempt of that run.
    name: Name of the report's folder; tells gates of one spec apart. Untrusted.
    """

    repository: Annotated[
        str, Meta(max_length=200, pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+\Z")
    ]
    head_sha: Commit
    run_id: Annotated[int, Meta(ge=1)]
    run_attempt: Annotated[int, Meta(ge=1)]
    name: Annotated[str, Meta(max_length=200)] = ""


@dataclass(frozen=True, kw_only=True)
@described
class Report:
    """The whole answer, and the whole of `report.json`. A part that was not measured is null, never
    a made-up value.

    tool_version: Version of repro-gate.
    started: When the gate started: UTC, ISO 8601.
    seconds: Wall time of the whole gate, in seconds.
    subject: What was gated.
    reasons: What led to the verdict, most important first.
    notes: What is worth knowing and does not change the verdict.
    diagnosis: Why the runs diverge; null where they do not, and where it was not looked into.
    noise_floor: How far two runs with one seed drift apart without the flags.
    cost: What the flags cost, from steps that alternate within one run, or from whole runs.
    operators: The operators of one step, measured one by one; null unless the spec asks for it.
    checklist: What was verified besides.
    runs: Every execution of the training command, in order.
    fingerprint: Digests of the first deterministic run.
    resume: Stopped and gone on; null where the spec does not ask for it.
    equivalences: Other ways to the same training, as the spec has them.
    baseline: Compared with `repro.baseline.yml`; null where nothing is compared.
    against: Compared with another ref; null where none was named.
    change: How large the change is, beside the other ref, else beside the baseline.
    base: What the change weakens; null where no base is known.
    reproduce: One shell command that shows the finding again on a person's own machine.
    origin: The workflow run that made this report; null outside a workflow.
    determinism: The two runs with the flags on.
    config_hash: One hash of everything that a rerun needs.
    robust: Whether the result is the same in any two shells of one user, whatever the hash seed,
        the clock, the order of listings, …; null if no run was varied.
    schema: Name and major version of this format.
    """

    verdict: Annotated[
        str, about("The answer: exit codes 0, 1 and 3.", **one_of(tuple(EXIT_CODES)))
    ]
    tool_version: str
    started: str
    seconds: Amount
    subject: Subject
    reasons: UpTo1000[Reason] = ()
    notes: UpTo1000[Reason] = ()
    diagnosis: Diagnosis | None = None
    noise_floor: NoiseFloor | None = None
    cost: Cost | None = None
    operators: Operators | None = None
    checklist: UpTo1000[CheckResult] = ()
    runs: UpTo1000[RunSummary] = ()
    fingerprint: Fingerprint | None = None
    resume: Resumption | None = None
    equivalences: Annotated[tuple[Equivalence, ...], Meta(max_length=10)] = ()
    baseline: BaselineFinding | None = None
    against: AgainstFinding | None = None
    change: Change | None = None
    base: BaseFinding | None = None
    reproduce: str = ""
    origin: Origin | None = None
    determinism: Determinism | None = None
    config_hash: ConfigHash | None = None
    robust: bool | None = None
    schema: Literal["repro-gate/report/v1"]

    @property
    def weakened(self) -> tuple[WeakenedCheck, ...]:
        """Return what the change weakens, as far as a base is known."""
        return self.base.weakened if self.base else ()

    @property
    def is_conditional(self) -> bool:
        """Return whether it passes only while something stays the same that differs between two
        shells of one user."""
        return self.verdict == "pass" and self.robust is False

    @property
    def equivalent(self) -> bool | None:
        """Return whether every other way is the same training; None if none was compared."""
        found = [item.equivalent for item in self.equivalences]
        return all(found) if found else None


@dataclass(frozen=True, kw_only=True)
class View:
    """Where a report is shown, for a renderer whose text depends on it: a function of a Report and
    a View."""

    limit: int = 65_536  # characters (code points) of a comment: what GitHub takes
    run_url: str = ""  # page of the workflow run
    page_url: str = ""  # the whole report as a page, which opens in the browser
    # the training may have written the report: what lies beside it is not to be opened in a browser
    by_training: bool = False
    server_url: str = "https://github.com"
    # columns of a terminal; where there is none, more than any text that a report shows
    width: int = 2_000
    encoding: str = "utf-8"  # of the stream that it is printed to
    colour: bool = False
    # also what passed over: checks with nothing to look at, and runs that ended well
    verbose: bool = False


PLAIN = View()
