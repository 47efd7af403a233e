"""The Report: everything the gate says, as data. Each renderer (JSON, terminal, Markdown) shows this and nothing else.

Built by `gate.run_gate`. Field names that reach `report.json` are fixed by the published schema beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import Comparison, Cost, Fingerprint, NoiseFloor
from repro_gate.spec.model import Tolerance

VERDICTS = ("pass", "fail", "inconclusive")
EXIT_CODES: Mapping[str, int] = {"pass": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Reason:
    """One sentence that explains the verdict (in `reasons`) or is worth knowing besides (in `notes`). `id` is stable: `room/name`."""

    id: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class RunSummary:
    """One run of the training command. `settings` are the flags as read back in the process (the last readings)."""

    name: str  # `deterministic-1`, `default-1`, …, `reseeded`
    arm: str
    seed: int
    steps: int
    seconds: float
    exit_code: int | None
    outcome: str  # `finished`, `stopped` (at train.steps), `crashed`, `timed-out`, `killed`, `out-of-memory`, `interrupted`, `untraced`
    processes: int = 1  # traced processes that trained
    settings: Mapping[str, object] = field(default_factory=dict)
    log_tail: tuple[str, ...] = ()  # the end of what it printed; only kept where the run did not end well
    artifacts: int = 0


@dataclass(frozen=True)
class Subject:
    """What was gated."""

    spec: str  # path of the spec, relative to the checkout
    command: str
    commit: str | None  # 40 hex digits, None outside git
    uncommitted: tuple[str, ...] = ()  # paths with uncommitted changes that were part of the run
    seeds: tuple[int, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # python, torch, cuda, device … as the training process reported them
    isolation: str = "same-user"


@dataclass(frozen=True)
class SeedResult:
    """The answer for one seed of `random-state.seeds`."""

    seed: int
    comparison: Comparison


@dataclass(frozen=True)
class WeakenedCheck:
    """One thing that a change weakens than its base does. `key` is the spec's (`determinism.allow`), or `repro.baseline.yml`."""

    key: str
    message: str  # a sentence with the value before and after
    where: str = ""  # `repro.yml:12`, as far as a line can be named


@dataclass(frozen=True)
class BaseFinding:
    """What is known of the base ref: which spec judged (`policy`), and what the change weakens."""

    ref: str
    commit: str
    policy: str  # `head` or `base`
    weakened: tuple[WeakenedCheck, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The workflow run that made a report. Written by the action; whoever posts a report of another run compares it with that run."""

    repository: str  # owner/name: the one that the workflow belongs to
    head_sha: str  # the head of the pull request, or the commit that was pushed
    run_id: int
    run_attempt: int
    name: str = ""  # tells gates of one spec apart (a matrix over runners): the name of the folder that the report is written to


@dataclass(frozen=True)
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
    settings: Mapping[str, object] = field(default_factory=dict)  # flags as read back, of the deterministic runs
    non_finite: tuple[tuple[int, str], ...] = ()  # (step, `nan`/`inf`/`-inf`) of losses, first ten
    noise_floor: NoiseFloor | None = None
    cost: Cost | None = None
    cost_budget_pct: float | None = None
    checklist: tuple[CheckResult, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    fingerprint: Fingerprint | None = None  # of the first deterministic run
    tolerance: Tolerance | None = None  # the spec's, where it does not ask for equal bits
    config_hash: ConfigHash | None = None
    baseline: BaselineFinding | None = None  # None: there is no baseline, or the runs of this gate run could not be compared with it
    against: AgainstFinding | None = None
    base: BaseFinding | None = None  # None: no base ref is known
    reproduce: str = ""  # one shell command that shows the finding again on a person's own machine
    origin: Origin | None = None  # None outside a workflow

    @property
    def determinism(self) -> SeedResult | None:
        """The seed that the report is about: the first that diverged, else the first."""
        return next((item for item in self.comparisons if not item.comparison.identical), self.comparisons[0] if self.comparisons else None)
