"""The Report: everything the gate says, as data. Each renderer shows this and nothing else.

Records that stand in `report.json` as they are carry their bounds and descriptions here; `schema`
adds the rest of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import Comparison, Cost, Fingerprint, NoiseFloor
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.numbers import excluded
from repro_gate.spec.model import Tolerance

EXIT_CODES: Mapping[str, int] = {"pass": 0, "fail": 1, "inconclusive": 3}

if TYPE_CHECKING:
    Number: TypeAlias = float
    Amount: TypeAlias = float
else:

    class Number(float):
        """A float that may be none: `report.json` has NaN and infinities as the texts `nan`, `inf`
        and `-inf`."""

    class Amount(Number):
        """A Number that is never below zero."""


def about(description: str, **bounds: Any) -> Meta:
    """What a field is, for the published schema, and its bounds."""
    return Meta(description=description, **bounds)


Count = Annotated[int, Meta(ge=0)]
Step = Annotated[int, Meta(ge=-1)]
Names = Annotated[tuple[str, ...], Meta(max_length=1_000)]
Commit = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})\Z")]


@dataclass(frozen=True)
class Reason:
    """One sentence that explains the verdict (in `reasons`) or is worth knowing besides (in
    `notes`)."""

    id: Annotated[str, about("Stable name: `room/name`.")]
    message: Annotated[str, about("One sentence.")]
    remedy: Annotated[str, about("What to do; may be empty.")] = ""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run of the training command."""

    name: Annotated[str, about("`deterministic-1`, `default-1`, …, `reseeded`.")]
    arm: Annotated[
        str, about("What it was started under: `deterministic`, `default`, `reseeded`, …")
    ]
    seed: Annotated[int, about("The seed.")]
    steps: Annotated[Count, about("Optimizer steps made.")]
    seconds: Annotated[Amount, about("Wall time, in seconds.")]
    exit_code: Annotated[
        int | None, about("Exit status; negative is a signal; null where it never ended by itself.")
    ]
    outcome: Annotated[
        str,
        about("How it ended: `finished`, `stopped` (at train.steps), `crashed`, `timed-out`, …"),
    ]
    processes: Annotated[Count, about("Traced processes that trained.")] = 1
    step_seconds: Annotated[
        Amount,
        about("Of the wall time, the optimizer steps of the process that took longest in them."),
    ] = 0.0
    probe_seconds: Annotated[Amount, about("And what the probe took of it in that process.")] = 0.0
    step_ms: Annotated[
        tuple[Amount, ...],
        about(
            "Its step times in milliseconds where it is timed; every n-th of many.", max_length=500
        ),
    ] = ()
    settings: Annotated[Mapping[str, Any], about("Flags as last read back in this run.")] = field(
        default_factory=dict
    )
    log_tail: Annotated[
        tuple[str, ...],
        about("End of its log, where it did not end well.", max_length=200, extra={"keep": "last"}),
    ] = ()
    artifacts: Annotated[Count, about("Artifacts that were kept for comparison.")] = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What was gated."""

    spec: Annotated[str, about("Path of the spec, relative to the checkout.")]
    command: Annotated[str, about("The training command.")]
    commit: Annotated[Commit | None, about("The commit, 40 (or 64) hex digits; null outside git.")]
    uncommitted: Annotated[
        Names, about("Paths with uncommitted changes that were part of the run.")
    ] = ()
    seeds: Annotated[tuple[int, ...], about("The seeds.", max_length=1_000)] = ()
    versions: Annotated[
        Mapping[str, str], about("Versions and devices, as the training reported them.")
    ] = field(default_factory=dict)
    sandbox: Annotated[
        str, about("How far the training was kept from the gate: `same-user`, …")
    ] = "same-user"


@dataclass(frozen=True)
class SeedResult:
    """The answer for one seed of `random-state.seeds`. `runs`: deterministic runs that were
    compared; all are the same where `comparison` is identical. `failed`: those that ended badly,
    and not because of what was varied."""

    seed: int
    comparison: Comparison
    runs: int = 2
    failed: int = 0

    @property
    def bound(self) -> float | None:
        """Return the share of runs, in percent, above which equal runs exclude a fault at 95 %;
        None where they differ or one failed."""
        return (
            round(excluded(self.runs), 1) if self.comparison.identical and not self.failed else None
        )

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Return the options of `repro-gate run` that are enough to see this divergence again; none
        if it takes a whole run."""
        first = self.comparison.first_divergence
        if first is None or first.kind == "artifact" or first.step >= self.comparison.steps:
            return ()
        return ("--seed", str(self.seed), "--steps", str(max(first.step, 0) + 1), "--fail-fast")


@dataclass(frozen=True)
class WeakenedCheck:
    """One thing that the change weakens."""

    key: Annotated[str, about("Key of the spec (`determinism.allow`), or `repro.baseline.yml`.")]
    message: Annotated[str, about("One sentence with the value before and after.")]
    where: Annotated[str, about("`repro.yml:12`, as far as a line can be named; may be empty.")] = (
        ""
    )


@dataclass(frozen=True)
class BaseFinding:
    """What is known of the base ref: which spec judged, and what the change weakens."""

    ref: Annotated[str, about("The base ref. Untrusted text.")]
    commit: Annotated[Commit, about("Its commit, 40 (or 64) hex digits.")]
    policy: Annotated[Literal["head", "base"], about("Whose spec judged.")]
    weakened: Annotated[
        tuple[WeakenedCheck, ...], about("What the change weakens.", max_length=1_000)
    ] = ()


@dataclass(frozen=True)
class Origin:
    """The workflow run that made a report. The action writes it; whoever posts a report of another
    run compares it with that run."""

    repository: Annotated[
        str,
        about(
            "owner/name of the workflow's repository.",
            max_length=200,
            pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+\Z",
        ),
    ]
    head_sha: Annotated[Commit, about("Head of the pull request, or the commit that was pushed.")]
    run_id: Annotated[int, about("Id of the workflow run.", ge=1)]
    run_attempt: Annotated[int, about("Which attempt of that run.", ge=1)]
    name: Annotated[
        str,
        about(
            "Name of the report's folder; tells gates of one spec apart. Untrusted.", max_length=200
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole answer. A part that was not measured is None, never a made-up value."""

    verdict: str
    tool_version: str
    started: str  # UTC, ISO 8601
    seconds: float
    subject: Subject
    reasons: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()
    comparisons: tuple[SeedResult, ...] = ()  # the pair of deterministic runs, one for each seed
    diagnosis: Diagnosis | None = (
        # why the seed of `determinism` diverged; None: nothing diverged, or it was not looked into
        None
    )
    # flags as read back, of the deterministic runs
    settings: Mapping[str, object] = field(default_factory=dict)
    non_finite: tuple[tuple[int, str], ...] = ()  # (step, `nan`/`inf`/`-inf`) of losses, first ten
    noise_floor: NoiseFloor | None = None
    cost: Cost | None = None
    cost_budget_pct: float | None = None
    checklist: tuple[CheckResult, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    fingerprint: Fingerprint | None = None  # of the first deterministic run
    tolerance: Tolerance | None = None  # the spec's, where it does not ask for equal bits
    config_hash: ConfigHash | None = None
    baseline: BaselineFinding | None = (
        # None: there is no baseline, or the runs of this gate run could not be compared with it
        None
    )
    against: AgainstFinding | None = None
    base: BaseFinding | None = None  # None: no base ref is known
    reproduce: str = ""  # one shell command that shows the finding again on a person's own machine
    origin: Origin | None = None  # None outside a workflow

    @property
    def determinism(self) -> SeedResult | None:
        """The seed that the report is about: the first that diverged, else the first."""
        return next(
            (item for item in self.comparisons if not item.comparison.identical),
            self.comparisons[0] if self.comparisons else None,
        )


@dataclass(frozen=True, kw_only=True)
class View:
    """Where a report is shown. Every renderer is one function of a Report and a View that returns
    text, and takes from it what it needs."""

    limit: int | None = (
        None  # of a comment in characters, of a job's summary in bytes; None: what GitHub takes
    )
    run_url: str = ""  # page of the workflow run
    # the run was another one's, such as a fork's: what else it left is not to be opened in a
    # browser
    foreign: bool = False
    server_url: str = "https://github.com"
    width: int = (
        2_000  # columns of a terminal; where there is none, more than any text that a report shows
    )
    encoding: str = "utf-8"  # of the stream that it is printed to
    colour: bool = False
    verbose: bool = (
        False  # also what passed over: checks with nothing to look at, and runs that ended well
    )


PLAIN = View()
