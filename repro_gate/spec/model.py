"""The spec as data: one frozen dataclass for each section of `repro.yml`, with the defaults that
work on a laptop.

Built by `spec.loader`, read by everyone. No behaviour lives here; imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta

VARIED = (  # what the second deterministic run differs in where the spec does not say otherwise
    "path",
    "home",
    "tmpdir",
    "hostname",
    "timezone",
    "locale",
    "umask",
    "environment",
    "file-times",
    "clock",
    "listing",
    "hash-seed",
    "memory",
)
# may be varied too, where the spec asks for it: it changes numbers legitimately
THREADS = "threads"


@dataclass(frozen=True, kw_only=True)
class Train:
    """`train:`. Exactly one of `run` (a shell command, `{seed}` is filled in) and `snippet` (inline
    Python) is set."""

    run: str | None = None
    snippet: str | None = None
    working_directory: str = "."  # relative to the folder that holds the spec
    # stop after this many optimizer steps; None: run to the end
    steps: int | None = None
    warmup: int = 5  # steps left out of the timing
    timeout: float = 3600.0  # seconds, for one run
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RandomState:
    """`random-state:`. `seed: 42` is held as `seeds == (42,)`; `seeds: [1, 2, 3]` gates each."""

    seeds: tuple[int, ...] = (42,)


@dataclass(frozen=True)
class AllowedFlag:
    """One entry of `determinism.allow`: a flag that is left off, and why."""

    flag: str
    reason: str


@dataclass(frozen=True)
class Tolerance:
    """`determinism.compare: {loss: …, weights: …}`: the largest absolute difference that still
    passes."""

    loss: Annotated[
        float,
        Meta(description="Largest absolute difference of a loss that passes.", ge=0),
    ]
    weights: Annotated[
        float,
        Meta(
            description="Largest absolute difference of a final weight that passes.",
            ge=0,
        ),
    ]


@dataclass(frozen=True)
class Determinism:
    """`determinism:`. `tolerance is None` means `compare: bitwise`."""

    tolerance: Tolerance | None = None
    allow: tuple[AllowedFlag, ...] = ()
    # a training whose losses or parameters are not finite from its first steps on may pass
    allow_nonfinite: bool = False
    # deterministic runs of each seed; all are compared with the first. 1 only under `--record`
    repeat: int = 2


@dataclass(frozen=True)
class Robustness:
    """`robustness:`. `vary` are the names of what the second deterministic run differs in; empty
    (`false`): it is a plain repeat. `on_dependence` is what a pass is worth that holds only in one
    shell: `warn` or `fail`; None: what the profile says."""

    vary: tuple[str, ...] = VARIED
    on_dependence: str | None = None


@dataclass(frozen=True)
class Capture:
    """`capture:`. `every` is the number of steps between digests; `artifacts` are globs below the
    working directory."""

    every: int = 1
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class CostBudget:
    """`cost:`. A budget fails the gate only if the whole confidence interval lies above it:
    `max_percent` that of the flags, `max_regression_percent` that of the change, with the flags on,
    beside the ref of `--against`."""

    measure: bool = True
    max_percent: float | None = None
    max_regression_percent: float | None = None


@dataclass(frozen=True)
class DataItem:
    """One declared file or folder. `path` is relative to the folder that holds the spec, or
    absolute; digests are lower-case hex.

    An entry of `data:` that names a `.dvc` file stands for the items that it declares; `source`
    then says where (`data/train.bin.dvc:3`), and `md5` is DVC's own, of a folder the digest of its
    listing.
    """

    path: str
    sha256: str | None = None
    md5: str | None = None
    source: tuple[str, int] | None = None


@dataclass(frozen=True)
class Env:
    """`env:`. `lockfile` is relative to the folder that holds the spec; `install` stands beside a
    `lockfile` only."""

    lockfile: str | None = None
    image: str | None = None
    # train with what the lockfile pins, installed on top of the environment that the gate finds
    install: bool = False


@dataclass(frozen=True)
class Hardware:
    """`hardware:`. `device` is `cuda`, `cpu` (hides the GPUs) or None (whatever the training
    picks)."""

    device: str | None = None
    gpus: int | None = None
    gpu_model: str | None = None


@dataclass(frozen=True)
class Resume:
    """`resume:`. Training is stopped at the first `checkpoint` after `after` steps, twice, and goes
    on by `run` (None: `train.run`). `stop` is `kill`, or `term`: asked by SIGTERM to end."""

    after: int
    checkpoint: str
    run: str | None = None
    stop: str = "kill"


@dataclass(frozen=True)
class Equivalent:
    """One entry of `equivalent:`: another way to the same training. `compare` is `bitwise`, or
    `rounding`: within a multiple of what rounding alone does."""

    name: str
    run: str
    compare: str = "bitwise"


@dataclass(frozen=True)
class EffectRule:
    """`effect:`. Which metrics a change may move, and over how many seeds both sides are paired:
    `seeds`, and up to `at_most` until the answer is clear (None: no more). `smallest` is the
    smallest effect that matters, by metric; `fail` is `never` or `worse`."""

    seeds: int = 5
    at_most: int | None = None
    metrics: tuple[str, ...] = ("loss",)
    higher_is_better: tuple[str, ...] = ()
    smallest: Mapping[str, float] = field(default_factory=dict)
    fail: str = "never"


@dataclass(frozen=True)
class Waiver:
    """One entry of `checklist.waive`."""

    check: str
    reason: str
    until: date | None = None


@dataclass(frozen=True)
class Checklist:
    """`checklist:`. `profile` is `basic` or `strict`; `severity` says `warn` or `fail` for a check
    that does not pass, by its id."""

    profile: str = "basic"
    waive: tuple[Waiver, ...] = ()
    severity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineRule:
    """`baseline:`. `on_change` is what a recorded result that the change moves is worth: `notice`
    or `fail`. `largest` (`pass`) is the largest size of a change that passes all the same."""

    on_change: str = "notice"
    largest: str = "none"


@dataclass(frozen=True)
class DiagnosisBounds:
    """`diagnosis:`. How many more runs the search for a cause may make, and in how many seconds."""

    runs: int = 16
    timeout: float = 600.0


@dataclass(frozen=True)
class OperatorsBudget:
    """`operators:`. About how many seconds the operators of the training are measured for."""

    seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A whole `repro.yml`, validated. `path` is the absolute path of the file; relative paths in it
    start at `path.parent`."""

    path: Path
    version: int = 1
    train: Train = Train()
    random_state: RandomState = RandomState()
    determinism: Determinism = Determinism()
    robustness: Robustness = Robustness()
    capture: Capture = Capture()
    cost: CostBudget = CostBudget()
    data: tuple[DataItem, ...] = ()
    env: Env = Env()
    hardware: Hardware = Hardware()
    checklist: Checklist = Checklist()
    resume: Resume | None = None
    equivalent: tuple[Equivalent, ...] = ()
    effect: EffectRule | None = None
    baseline: BaselineRule = BaselineRule()
    # None: `diagnosis: false`
    diagnosis: DiagnosisBounds | None = DiagnosisBounds()
    # None: operators are not measured
    operators: OperatorsBudget | None = None
    # whose spec judges where a base ref is known: `head` (the change's own) or `base`
    policy: str = "head"
    # the folder in which workspaces and traces lie; None: the temporary folder
    scratch: str | None = None

    @property
    def seed(self) -> int:
        """Return the first seed, that of the runs which are timed."""
        return self.random_state.seeds[0]
