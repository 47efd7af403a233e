"""The Report: everything the gate says, as data. Each renderer shows this and nothing else.

The records stand in `report.json` as they are: each field's bounds and description make the
published schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from msgspec import Meta

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding, Commit, Names
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import (
    Amount,
    Comparison,
    Cost,
    Count,
    Equivalence,
    Fingerprint,
    NoiseFloor,
    Resumption,
    Step,
    Totals,
    about,
    one_of,
)
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.numbers import excluded
from repro_gate.spec.model import Tolerance
from repro_gate.trace.fields import Location

SCHEMA_ID: Literal["repro-gate/report/v1"] = "repro-gate/report/v1"
EXIT_CODES: Mapping[str, int] = {"pass": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Reason:
    """One sentence that explains the verdict (in `reasons`) or is worth knowing besides (in
    `notes`)."""

    id: Annotated[str, about("Stable name: `room/name`.")]
    message: Annotated[str, about("One sentence.")]
    remedy: Annotated[str, about("What to do; may be empty.")] = ""
    locations: Annotated[
        tuple[Location, ...],
        about("The lines of the checkout that it is about.", max_length=1_000),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run of the training command."""

    name: Annotated[str, about("`deterministic-1`, `default-1`, …, `reseeded`.")]
    arm: Annotated[
        str,
        about("What it was started under: `deterministic`, `default`, `reseeded`, …"),
    ]
    seed: Annotated[int, about("The seed.")]
    steps: Annotated[Count, about("Optimizer steps made.")]
    seconds: Annotated[Amount, about("Wall time, in seconds.")]
    exit_code: Annotated[
        int | None,
        about(
            "Exit status; negative is a signal; null where it never ended by itself."
        ),
    ]
    outcome: Annotated[
        str,
        about(
            "How it ended: `finished`, `stopped` (at train.steps), `crashed`, `timed-out`, …"
        ),
    ]
    processes: Annotated[Count, about("Traced processes that trained.")] = 1
    step_seconds: Annotated[
        Amount,
        about(
            "Of the wall time, the optimizer steps of the process that took longest in them."
        ),
    ] = 0.0
    probe_seconds: Annotated[
        Amount, about("And what the probe took of it in that process.")
    ] = 0.0
    settings: Annotated[
        Mapping[str, Any], about("Flags as last read back in this run.")
    ] = field(default_factory=dict)
    log_tail: Annotated[
        tuple[str, ...],
        about("End of its log, where it did not end well.", max_length=200),
    ] = ()
    artifacts: Annotated[Count, about("Artifacts that were kept for comparison.")] = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What was gated."""

    spec: Annotated[str, about("Path of the spec, relative to the checkout.")]
    command: Annotated[str, about("The training command.")]
    commit: Annotated[
        Commit | None, about("The commit, 40 (or 64) hex digits; null outside git.")
    ]
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


Seed = Annotated[int, about("The seed that these figures are about.")]
Compared = Annotated[
    Count, about("Runs with the flags on and this seed that were compared.")
]
Failed = Annotated[
    Count,
    about("Further ones that ended badly, and not because of what was varied."),
]


@dataclass(frozen=True, kw_only=True)
class SeedTotals(Totals):
    """The answer for one seed."""

    seed: Seed
    runs: Compared = 2
    failed: Failed = 0


@dataclass(frozen=True, kw_only=True)
class Determinism(Comparison):
    """The two runs with the flags on, for the first seed that diverged, else for the first seed."""

    seed: Seed
    runs: Compared = 2
    failed: Failed = 0
    determinism_settings: Annotated[
        Mapping[str, Any],
        about("Flags and variables as read back inside the training process."),
    ] = field(default_factory=dict)
    bound_pct: Annotated[
        Amount | None,
        about(
            "Equal runs exclude faults that show in more percent of runs, at 95 %; else null."
        ),
    ] = None
    seeds: Annotated[
        tuple[SeedTotals, ...],
        about("The answer for each seed of `random-state.seeds`.", max_length=1_000),
    ] = ()
    non_finite: Annotated[
        tuple[tuple[Step, Annotated[str, Meta(**one_of(("nan", "inf", "-inf")))]], ...],
        about("Losses that are NaN or infinite, each with its step.", max_length=1_000),
    ] = ()
    tolerance: Annotated[
        Tolerance | None,
        about("What the spec tolerates; null where it asks for equal bits."),
    ] = None

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


def determinism(results: Sequence[SeedResult], **measured: Any) -> Determinism | None:
    """Return the answer of all seeds (`measured`: further fields); None if nothing was compared."""
    if not results:
        return None
    chosen = next(
        (item for item in results if not item.comparison.identical), results[0]
    )
    whole = chosen.comparison.identical and not chosen.failed
    return Determinism(
        **vars(chosen.comparison),
        seed=chosen.seed,
        runs=chosen.runs,
        failed=chosen.failed,
        bound_pct=round(excluded(chosen.runs), 1) if whole else None,
        seeds=tuple(map(_totals, results)),
        **measured,
    )


def _totals(result: SeedResult) -> SeedTotals:
    totals = {
        item.name: getattr(result.comparison, item.name) for item in fields(Totals)
    }
    return SeedTotals(
        **totals, seed=result.seed, runs=result.runs, failed=result.failed
    )


@dataclass(frozen=True)
class WeakenedCheck:
    """One thing that the change weakens."""

    key: Annotated[
        str, about("Key of the spec (`determinism.allow`), or `repro.baseline.yml`.")
    ]
    message: Annotated[str, about("One sentence with the value before and after.")]
    location: Annotated[Location | None, about("Its line, beside the spec.")] = None


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
    head_sha: Annotated[
        Commit, about("Head of the pull request, or the commit that was pushed.")
    ]
    run_id: Annotated[int, about("Id of the workflow run.", ge=1)]
    run_attempt: Annotated[int, about("Which attempt of that run.", ge=1)]
    name: Annotated[
        str,
        about(
            "Name of the report's folder; tells gates of one spec apart. Untrusted.",
            max_length=200,
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole answer, and the whole of `report.json`. A part that was not measured is None, never
    a made-up value."""

    verdict: Annotated[
        str, about("The answer: exit codes 0, 1 and 3.", **one_of(tuple(EXIT_CODES)))
    ]
    tool_version: Annotated[str, about("Version of repro-gate.")]
    started: Annotated[str, about("When the gate started: UTC, ISO 8601.")]
    seconds: Annotated[Amount, about("Wall time of the whole gate, in seconds.")]
    subject: Annotated[Subject, about("What was gated.")]
    reasons: Annotated[
        tuple[Reason, ...],
        about("What led to the verdict, most important first.", max_length=1_000),
    ] = ()
    notes: Annotated[
        tuple[Reason, ...],
        about(
            "What is worth knowing and does not change the verdict.", max_length=1_000
        ),
    ] = ()
    diagnosis: Annotated[
        Diagnosis | None,
        about(
            "Why the runs diverge; null where they do not, and where it was not looked into."
        ),
    ] = None
    noise_floor: Annotated[
        NoiseFloor | None,
        about("How far two runs with one seed drift apart without the flags."),
    ] = None
    cost: Annotated[
        Cost | None, about("What the flags cost, from interleaved runs.")
    ] = None
    checklist: Annotated[
        tuple[CheckResult, ...], about("What was verified besides.", max_length=1_000)
    ] = ()
    runs: Annotated[
        tuple[RunSummary, ...],
        about("Every execution of the training command, in order.", max_length=1_000),
    ] = ()
    fingerprint: Annotated[
        Fingerprint | None, about("Digests of the first deterministic run.")
    ] = None
    resume: Annotated[
        Resumption | None,
        about("Stopped and gone on; null where the spec does not ask for it."),
    ] = None
    equivalences: Annotated[
        tuple[Equivalence, ...],
        about("Other ways to the same training, as the spec has them.", max_length=10),
    ] = ()
    baseline: Annotated[
        BaselineFinding | None,
        about("Compared with `repro.baseline.yml`; null where nothing is compared."),
    ] = None
    against: Annotated[
        AgainstFinding | None,
        about("Compared with another ref; null where none was named."),
    ] = None
    base: Annotated[
        BaseFinding | None,
        about("What the change weakens; null where no base is known."),
    ] = None
    reproduce: Annotated[
        str,
        about(
            "One shell command that shows the finding again on a person's own machine."
        ),
    ] = ""
    origin: Annotated[
        Origin | None,
        about("The workflow run that made this report; null outside a workflow."),
    ] = None
    determinism: Annotated[
        Determinism | None, about("The two runs with the flags on.")
    ] = None
    config_hash: Annotated[
        ConfigHash | None, about("One hash of everything that a rerun needs.")
    ] = None
    schema: Annotated[
        Literal["repro-gate/report/v1"], about("Name and major version of this format.")
    ] = SCHEMA_ID

    @property
    def equivalent(self) -> bool | None:
        """Return whether every other way is the same training; None if none was compared."""
        found = [item.equivalent for item in self.equivalences]
        return all(found) if found else None


@dataclass(frozen=True, kw_only=True)
class View:
    """Where a report is shown. Every renderer is one function of a Report and a View that returns
    text, and takes from it what it needs."""

    limit: int = 65_536  # characters (code points) of a comment: what GitHub takes
    run_url: str = ""  # page of the workflow run
    # the run was another one's, such as a fork's: what else it left is not to be opened in a
    # browser
    foreign: bool = False
    server_url: str = "https://github.com"
    # columns of a terminal; where there is none, more than any text that a report shows
    width: int = 2_000
    encoding: str = "utf-8"  # of the stream that it is printed to
    colour: bool = False
    # also what passed over: checks with nothing to look at, and runs that ended well
    verbose: bool = False


PLAIN = View()
