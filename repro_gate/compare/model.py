"""What a comparison finds, as data: distances, divergences, the comparison of two runs, the noise
floor and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

Kind = Literal["rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer", "artifact"]
KINDS = ("rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer", "artifact")
TimedArm = Literal["deterministic", "default"]
STEPS = "steps"  # the name of a divergence in the number of optimizer steps
# of a loss, a learning rate or a file: its type says whether it is a number or a text
Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Distance:
    """max|a-b|, ULP, ||a-b|| and ||a-b|| / ||a|| of two tensors of one dtype and shape, `a` being
    the first run's. A figure that does not exist (a NaN on one side, an integer dtype's ULP) is
    None."""

    max_abs: float | None = None
    max_ulp: int | None = None
    l2: float | None = None
    relative_l2: float | None = None


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """One recorded quantity in which two runs differ. `step` is -1 for state before the first
    optimizer step."""

    step: int
    kind: str  # one of KINDS
    name: str
    process: str = "main"  # which traced process: `main`, `rank0`, …
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    values: tuple[Value, Value] | None = (
        None  # of both runs, where they are short; numbers have a distance, texts have none
    )
    detail: str = ""  # what a digest cannot say: `missing in run 2`, `shape [3] against [4]`
    distance: Distance | None = None


@dataclass(frozen=True)
class Tally:
    """How many distinct named quantities of one kind were compared, and how many differed at any
    step."""

    tensors: int = 0
    differing: int = 0


@dataclass(frozen=True)
class HeatRow:
    """The quantities of one kind in one module, of one process."""

    process: Annotated[str, Meta(description="The traced process: `main`, `rank0`, …")]
    kind: Annotated[Kind, Meta(description="What kind of quantity it is.")]
    module: Annotated[
        str,
        Meta(
            description="The module's path, as far as the map tells modules apart. Untrusted text; "
            "may be empty."
        ),
    ]
    tensors: Annotated[int, Meta(description="Quantities in the row.", ge=0)]
    cells: Annotated[
        str,
        Meta(
            description="A character for each column: blank not recorded, `.` bitwise identical, "
            "`?` different by an unknown distance, else floor(log2) of the relative L2 distance in "
            "ULP as one of `0` to `9`, `a` to `z` (10 to 35), `A` to `Z` (36 to 61), `+` and `-`.",
            max_length=120,
            pattern=r"^[ .?0-9a-zA-Z+-]*\Z",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Where two runs differ, modules by steps."""

    steps: Annotated[int, Meta(description="Optimizer steps of the longer run.", ge=0)]
    width: Annotated[
        int,
        Meta(
            description="Steps of one column; the first column is the state before the first step.",
            ge=1,
        ),
    ]
    depth: Annotated[int, Meta(description="Parts of a module's path that are told apart.", ge=0)]
    rows: Annotated[
        tuple[HeatRow, ...],
        Meta(description="In order of execution, by process.", max_length=1_000),
    ]


@dataclass(frozen=True, kw_only=True)
class GrowthPoint:
    """How far two runs are apart at the end of one step, as two more runs of the same training
    measured it."""

    step: Annotated[int, Meta(description="Optimizer step; -1 before the first.", ge=-1)]
    weight_l2: Annotated[
        float | None,
        Meta(
            description="L2 norm of the difference of all parameters as one vector; null: not a "
            "number."
        ),
    ]
    max_ulp: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Largest ULP of any tensor; null where none has one."),
    ]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs compared, all processes of each. `by_step` lists (step, number of differing
    quantities) where there are any; `losses` holds (step, loss of a, loss of b) of the first traced
    process; `weights` lists the final distances of what differs, largest first. For a looser bar
    than bits: `loss_gaps` holds (step, the largest |difference| of its losses, over all processes
    and backward passes; infinite where only one is NaN); `unmatched` is a quantity that one run
    lacks, or has in another dtype or shape; `unmeasured` counts the parameters that differ where
    they were last recorded and whose final distance is not known."""

    identical: bool
    steps: int
    tensors: int
    differing: int
    first_divergence: Divergence | None = None
    by_kind: Mapping[str, Tally] = field(default_factory=dict)
    by_step: tuple[tuple[int, int], ...] = ()
    differing_steps: int = 0  # steps of both runs in which something differs
    losses: tuple[tuple[int, float, float], ...] = ()
    weights: tuple[Divergence, ...] = ()
    loss_gaps: tuple[tuple[int, float], ...] = ()
    unmatched: Divergence | None = None
    unmeasured: int = 0
    heat_map: HeatMap | None = None
    growth: tuple[GrowthPoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """How far two `default` runs with one seed drift apart. `loss_gap` is the largest |difference|
    of losses of one step, `weight_l2` the L2 norm of the difference of all final parameters taken
    as one vector, `first_step` the step at which they first diverge (None: they never do)."""

    identical: bool
    loss_gap: float | None
    weight_l2: float | None
    weight_relative_l2: float | None
    first_step: int | None
    first_divergence: Divergence | None = None
    losses: tuple[
        tuple[int, float, float], ...
    ] = ()  # (step, loss of the first run, loss of the second)
    heat_map: HeatMap | None = None
    reproducible_by: str = (
        ""  # the one variable that was shown to make the first divergence go away
    )


@dataclass(frozen=True)
class Fingerprint:
    """What one deterministic run was, in short, so that two reports can be compared. `by_step`
    holds (step, 16 bytes as hex) over everything recorded in that step, `by_kind` the same over all
    steps of one kind. `digest` names that of the tensors."""

    seed: int
    by_step: tuple[tuple[int, str], ...]
    by_kind: Mapping[str, str]
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class SpeedChange:
    """How much slower a step of one `arm` (`deterministic`, `default`) became, in percent of what
    it took before, with the 95 % interval; negative is faster. `runs` of either side entered it."""

    arm: TimedArm
    slower_pct: float
    ci95: tuple[float, float]
    runs: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the flags cost, from interleaved runs. Percentages of the default figure; step times in
    milliseconds, memory in bytes. `ci95` is the 95 % interval of `determinism_cost_pct` from
    `pairs` runs of each arm. `suspicious` says why the figure is more likely a mistake of
    measurement than a cost (outside -50 % … +300 %), else None."""

    determinism_cost_pct: float
    ci95: tuple[float, float]
    deterministic_step_ms: float
    default_step_ms: float
    timed_steps: int  # steps of one arm that entered the figure
    memory_cost_pct: float | None = None
    deterministic_peak_bytes: int | None = None
    default_peak_bytes: int | None = None
    suspicious: str | None = None
    memory_ci95: tuple[float, float] | None = None
    pairs: int = 2
