"""What a comparison finds, as data: distances, divergences, the comparison of two runs, the noise
floor and the cost. The records stand in `report.json` as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from repro_gate.trace.fields import Location, Short

Record = TypeVar("Record")
if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    Number: TypeAlias = float
    Amount: TypeAlias = float
else:

    def dataclass_transform(**_):
        """Return a decorator that does nothing: what it says is for type checkers."""
        return lambda decorator: decorator

    class Number(float):
        """A float that may be none: `report.json` has NaN and infinities as the texts `nan`, `inf`
        and `-inf`."""

    class Amount(Number):
        """A Number that is never below zero."""


def about(description: str, **bounds: Any) -> Meta:
    """Return what a field is, for the published schema, and its bounds."""
    return Meta(description=description, **bounds)


def described(record: type[Record]) -> type[Record]:
    """Give each field of a record the description that its docstring has of it, as a line `name:
    description` behind the text."""
    text, *fields = re.split(r"\n\s*(?=\w+: )", record.__doc__ or "")
    record.__doc__ = text.strip()
    kinds = record.__annotations__
    for name, _, description in (item.partition(": ") for item in fields):
        meaning = Meta(description=" ".join(description.split()))
        kinds[name] = Annotated[kinds[name], meaning]
    return record


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(field,)
)
def reported(record: type[Record]) -> type[Record]:
    """Make a described record a frozen dataclass of keyword-only fields."""
    return dataclass(frozen=True, kw_only=True)(described(record))


def one_of(values: Sequence[str]) -> dict[str, Any]:
    """Return the bounds of a text that is one of these."""
    return {
        "pattern": rf"^({'|'.join(values)})\Z",
        "extra_json_schema": {"enum": list(values)},
    }


KINDS = (
    "rng",
    "batch",
    "buffer",
    "loss",
    "gradient",
    "parameter",
    "optimizer",
    "artifact",
)
Kind = Annotated[str, Meta(**one_of(KINDS))]
TimedArm = Literal["deterministic", "default"]
STEPS = "steps"  # the name of a divergence in the number of optimizer steps
# of a loss, a learning rate or a file: its type says whether it is a number or a text
Value: TypeAlias = bool | int | float | str


Count = Annotated[int, Meta(ge=0)]
_Entry = TypeVar("_Entry")
UpTo1000: TypeAlias = Annotated[tuple[_Entry, ...], Meta(max_length=1_000)]
UpTo10000: TypeAlias = Annotated[tuple[_Entry, ...], Meta(max_length=10_000)]
Step = Annotated[int, Meta(ge=-1)]
Interval = tuple[Number, Number]
Digest = Annotated[
    str, about("16 bytes of SHA-256 as hex digits.", pattern=r"^[0-9a-f]{32}\Z")
]
Losses = Annotated[
    tuple[tuple[Step, Number, Number], ...],
    about("Step, loss of the first run, loss of the second.", max_length=10_000),
]


@dataclass(frozen=True)
@described
class Distance:
    """max|a-b|, ULP, ||a-b|| and ||a-b|| / ||a|| of two tensors of one dtype and shape, `a` being
    the first run's. A figure that does not exist (a NaN on one side, an integer dtype's ULP) is
    None.

    max_abs: Largest absolute difference of two elements.
    max_ulp: Largest number of representable values of the dtype between two elements.
    l2: L2 norm of the difference.
    relative_l2: L2 norm of the difference over that of the first run's tensor.
    """

    max_abs: Number | None = None
    max_ulp: Count | None = None
    l2: Number | None = None
    relative_l2: Number | None = None


@reported
class Divergence(Distance):
    """One recorded quantity in which two runs differ, and how far.

    step: Optimizer step, from 0; -1 is state before the first step.
    kind: What kind of quantity it is.
    name: The name that a person knows: `blocks.3.attn.weight`. Untrusted text.
    process: The traced process, and thread in it: `main`, `rank0`, `main/Thread-1`, …
    dtype: Type of the elements.
    shape: Size of each dimension.
    values: Both values, where they are short: numbers, or untrusted text.
    detail: What a digest cannot say: `missing in run 2`. May be empty.
    node: Host of that process in the later run; empty where all ran on one. Untrusted text.
    """

    step: Step
    kind: Kind
    name: str
    process: str = "main"
    dtype: str | None = None
    shape: tuple[Count, ...] | None = None
    values: tuple[Value, Value] | None = None
    detail: str = ""
    node: str = ""

    @property
    def measured(self) -> bool:
        """Return whether any distance is known."""
        return (self.max_abs, self.max_ulp, self.l2, self.relative_l2) != (None,) * 4


@dataclass(frozen=True)
@described
class Tally:
    """How many distinct named quantities of one kind were compared, and how many differed at any
    step.

    tensors: Compared.
    differing: Differing at any step.
    """

    tensors: Count = 0
    differing: Count = 0


@dataclass(frozen=True)
@described
class HeatRow:
    """The quantities of one kind in one module, of one process.

    process: The traced process: `main`, `rank0`, …
    kind: What kind of quantity it is.
    module: The module's path, as far as the map tells modules apart. Untrusted text; may be empty.
    tensors: Quantities in the row.
    cells: A character for each column: blank not recorded, `.` bitwise identical, `?` different by
        an unknown distance, else floor(log2) of the relative L2 distance in ULP as one of `0` to
        `9`, `a` to `z` (10 to 35), `A` to `Z` (36 to 61), `+` and `-`.
    """

    process: str
    kind: Kind
    module: str
    tensors: Count
    cells: Annotated[str, Meta(max_length=120, pattern=r"^[ .?0-9a-zA-Z+-]*\Z")]


@reported
class HeatMap:
    """Where two runs differ, modules by steps.

    steps: Optimizer steps of the longer run.
    width: Steps of one column; the first column is the state before the first step.
    depth: Parts of a module's path that are told apart.
    rows: In order of execution, by process.
    """

    steps: Count
    width: Annotated[int, Meta(ge=1)]
    depth: Count
    rows: UpTo1000[HeatRow]


@reported
class GrowthPoint:
    """How far two runs are apart at the end of one step, as two more runs of the same training
    measured it.

    step: Optimizer step; -1 before the first.
    weight_l2: L2 norm of the difference of all parameters as one vector; null: not a number.
    max_ulp: Largest ULP of any tensor; null if none has one.
    """

    step: Step
    weight_l2: float | None
    max_ulp: Count | None


@reported
class Totals:
    """How much of two runs was compared, and how much of it differs.

    identical: Whether every compared quantity is bitwise identical in both runs.
    steps: Optimizer steps compared.
    tensors: Distinct named quantities compared, of all kinds.
    differing: How many of `tensors` differ at any step.
    differing_steps: Optimizer steps in which something differs.
    first_divergence: The earliest difference, in order of execution; null if there is none.
    """

    identical: bool
    steps: Count
    tensors: Count
    differing: Count
    differing_steps: Count = 0
    first_divergence: Divergence | None = None


@reported
class Comparison(Totals):
    """Two runs compared, all processes of each.

    by_kind: Counts for each kind of quantity.
    by_step: Each step at which something differs, and how much does.
    weights: Final distances of what differs, largest first.
    loss_gaps: Step, and the largest absolute difference of its losses, over all processes and
        backward passes.
    unmatched: A quantity that one run lacks, or has in another dtype or shape.
    unmeasured: Parameters that differ at the end by an unknown distance.
    heat_map: Where the two runs differ, modules by steps; null if nothing was traced.
    growth: The steps at which the distance was measured.
    """

    by_kind: Mapping[Kind, Tally] = field(default_factory=dict)
    by_step: UpTo10000[tuple[Step, Count]] = ()
    losses: Losses = ()  # of the first traced process
    weights: UpTo1000[Divergence] = ()
    loss_gaps: UpTo10000[tuple[Step, Number]] = ()  # infinite where only one is NaN
    unmatched: Divergence | None = None
    unmeasured: Count = 0
    heat_map: HeatMap | None = None
    growth: Annotated[tuple[GrowthPoint, ...], Meta(max_length=200)] = ()


@reported
class NoiseFloor:
    """How far two `default` runs with one seed drift apart.

    identical: True: this workload is bitwise identical here without the flags.
    loss_gap: Largest absolute difference of the losses of one step.
    weight_l2: L2 norm of the difference of all final parameters as one vector.
    weight_relative_l2: `weight_l2` over the L2 norm of the first run's parameters.
    first_step: The step at which they first diverge.
    first_divergence: The earliest difference; null if there is none.
    heat_map: Where the two runs differ, modules by steps.
    """

    identical: bool
    loss_gap: Number | None
    weight_l2: Number | None
    weight_relative_l2: Number | None
    first_step: Step | None
    first_divergence: Divergence | None = None
    losses: Losses = ()
    heat_map: HeatMap | None = None


@dataclass(frozen=True)
@described
class Fingerprint:
    """Digests of the first deterministic run, by which `repro-gate compare` compares two
    reports.

    seed: The run's seed.
    by_step: Step, and digest of everything recorded in it.
    by_kind: All steps of each kind.
    digest: What digested the tensors: `xxh3-128`, or `sha256-128` without xxhash.
    """

    seed: int
    by_step: UpTo10000[tuple[Step, Digest]]
    by_kind: Mapping[Kind, Digest]
    digest: Annotated[str, Meta(pattern=r"^[a-z0-9+-]{0,100}\Z")] = ""


COMPONENTS = (
    "parameters",
    "buffers",
    "optimizer-state",
    "step-count",
    "param-groups",
    "scheduler",
    "scaler",
    "ema",
    "rng:python",
    "rng:numpy",
    "rng:torch",
    "rng:cuda",
    "batches",
    "gradients",
    "artifact",
    "unrecorded",
    "scratch",
    "checkpoint",
)
Component = Annotated[str, Meta(**one_of(COMPONENTS))]


@dataclass(frozen=True)
@described
class NotRestored:
    """One component of a training that a checkpoint did not bring back.

    component: What it is.
    message: What differs. Untrusted text.
    locations: Lines that it comes from, where they are known.
    """

    component: Component
    message: str
    locations: Annotated[tuple[Location, ...], Meta(max_length=10)] = ()


@described
class Leg(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"begins": "from", "ends": "to"},
):
    """One leg of a training that was stopped and went on, beside the run that never was.

    number: From 1.
    begins: Steps of the reference that were done before it.
    ends: Steps of the reference that are done after it.
    identical: Whether its steps are bitwise identical to the reference's.
    not_restored: What differs before its first step.
    first_divergence: The earliest difference from the reference; null where there is none.
    """

    number: Count
    begins: Count
    ends: Count
    identical: bool
    not_restored: Annotated[tuple[NotRestored, ...], Meta(max_length=100)] = ()
    first_divergence: Divergence | None = None


@reported
class Resumption:
    """A training that was stopped at checkpoints and went on, beside one that never was.

    identical: Whether every leg is the same training.
    legs: In order.
    not_restored: Components that no leg after the first got back.
    """

    identical: bool
    legs: Annotated[tuple[Leg, ...], Meta(max_length=10)]
    not_restored: Annotated[tuple[Component, ...], Meta(max_length=100)] = ()


@reported
class Apart:
    """One quantity in which another way of training is apart from the reference.

    step: Optimizer step; -1 is before the first.
    kind: What kind of quantity it is.
    name: Its name in the reference. Untrusted text.
    roundings: In multiples of what rounding alone does; null where bits are compared.
    """

    step: Step
    kind: Kind
    name: str
    roundings: Amount | None = None

    @property
    def place(self) -> Divergence:
        """Return where it is, as a divergence without distances."""
        return Divergence(step=self.step, kind=self.kind, name=self.name)


@reported
class SpeedChange:
    """How much slower a step of one arm is now than before.

    arm: With the flags, or without.
    slower_pct: In percent of the step time before; negative is faster.
    ci95: 95 % interval of `slower_pct`: low, high.
    runs: Runs of either side that entered it.
    """

    arm: TimedArm
    slower_pct: Number
    ci95: Interval
    runs: Count


@reported
class Estimate:
    """How much slower a step is with all flags than without them, or without one of them.

    cost_pct: In percent; negative is faster.
    ci95: 95 % interval of `cost_pct`: low, high.
    flag: The one flag that was off; empty: all were.
    """

    cost_pct: Number
    ci95: Interval
    flag: str = ""


@reported
class GpuState:
    """What nvidia-smi read of a GPU before or after a timed run. What it does not know is null.

    run: The run's name.
    arm: Its arm: `deterministic`, `default` or `alternating`.
    when: `before` the run or `after` it.
    gpu: The GPU's UUID.
    sm_mhz: Clock of its SMs.
    memory_mhz: Clock of its memory.
    celsius: Temperature.
    watts: Power.
    slowed: Why its clocks are lower than they could be; `idle` where nothing runs, `unknown` where
        the driver does not say.
    """

    run: Short
    arm: Short
    when: Literal["before", "after"]
    gpu: Short
    sm_mhz: Amount | None
    memory_mhz: Amount | None
    celsius: Amount | None
    watts: Amount | None
    slowed: Annotated[tuple[Short, ...], Meta(max_length=20)]


@reported
class Cost:
    """What the flags cost, from runs in which they alternate from step to step; if these cannot
    tell, from whole runs.

    determinism_cost_pct: How much slower a step is with the flags, in percent; negative is faster;
        null if runs scatter too much for a figure.
    ci95: 95 % interval of `determinism_cost_pct`, in percent: low, high.
    deterministic_step_ms: Step time with the flags on, in milliseconds.
    default_step_ms: Step time with the flags off, in milliseconds.
    timed_steps: Steps of one arm that entered the figure, warm-up left out.
    memory_cost_pct: How much more peak memory the flags need, in percent.
    deterministic_peak_bytes: Peak memory with the flags on, in bytes.
    default_peak_bytes: Peak memory with the flags off, in bytes.
    suspicious: Why the figure is more likely a mistake of measurement (outside -50 % … +300 %).
    memory_ci95: 95 % interval of `memory_cost_pct`, in percent.
    max_percent: The budget, `cost.max-percent` of the spec, in percent.
    deterministic_scatter_pct: How much slower the slowest run with the flags is than the fastest.
    default_scatter_pct: The same of the runs without the flags.
    flags: Of the cost, what each flag takes that shows a cost of its own.
    other: The cost measured in the other way, of whole runs or, if these decide, of alternating
        steps; null if that was not measured.
    why: Why whole runs decide; empty if alternating steps do.
    slow_steps: Steps left out of the figure, since they took five times the median or more.
    probe_pct: How long the probe took in the runs that were compared, in percent of their steps.
    undigested: Whether whole runs were done anew for the cost, without digests in timed steps,
        since the probe took more than 10 %.
    gpus: The GPUs that were trained on, before and after each timed run.
    """

    determinism_cost_pct: Number | None
    ci95: Interval
    deterministic_step_ms: Amount
    default_step_ms: Amount
    timed_steps: Count
    memory_cost_pct: Number | None = None
    deterministic_peak_bytes: Count | None = None
    default_peak_bytes: Count | None = None
    suspicious: str | None = None
    memory_ci95: Interval | None = None
    max_percent: Number | None = None
    deterministic_scatter_pct: Number = 0.0
    default_scatter_pct: Number = 0.0
    flags: tuple[Estimate, ...] = ()
    other: Estimate | None = None
    why: str = ""
    slow_steps: Count = 0
    probe_pct: Amount = 0.0
    undigested: bool = False
    gpus: Annotated[tuple[GpuState, ...], Meta(max_length=1_000)] = ()
