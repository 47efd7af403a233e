"""What a comparison finds, as data: distances, divergences, the comparison of two runs, the noise
floor and the cost. The records stand in `report.json` as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

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
    """Return what a field is, for the published schema, and its bounds."""
    return Meta(description=description, **bounds)


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
class Distance:
    """max|a-b|, ULP, ||a-b|| and ||a-b|| / ||a|| of two tensors of one dtype and shape, `a` being
    the first run's. A figure that does not exist (a NaN on one side, an integer dtype's ULP) is
    None."""

    max_abs: Annotated[
        Number | None, about("Largest absolute difference of two elements.")
    ] = None
    max_ulp: Annotated[
        Count | None,
        about(
            "Largest number of representable values of the dtype between two elements."
        ),
    ] = None
    l2: Annotated[Number | None, about("L2 norm of the difference.")] = None
    relative_l2: Annotated[
        Number | None,
        about("L2 norm of the difference over that of the first run's tensor."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Divergence(Distance):
    """One recorded quantity in which two runs differ, and how far."""

    step: Annotated[
        Step, about("Optimizer step, from 0; -1 is state before the first step.")
    ]
    kind: Annotated[Kind, about("What kind of quantity it is.")]
    name: Annotated[
        str,
        about("The name that a person knows: `blocks.3.attn.weight`. Untrusted text."),
    ]
    process: Annotated[
        str,
        about(
            "The traced process, and thread in it: `main`, `rank0`, `main/Thread-1`, …"
        ),
    ] = "main"
    dtype: Annotated[str | None, about("Type of the elements.")] = None
    shape: Annotated[tuple[Count, ...] | None, about("Size of each dimension.")] = None
    values: Annotated[
        tuple[Value, Value] | None,
        about("Both values, where they are short: numbers, or untrusted text."),
    ] = None
    detail: Annotated[
        str, about("What a digest cannot say: `missing in run 2`. May be empty.")
    ] = ""

    @property
    def measured(self) -> bool:
        """Return whether any distance is known."""
        return (self.max_abs, self.max_ulp, self.l2, self.relative_l2) != (None,) * 4


@dataclass(frozen=True)
class Tally:
    """How many distinct named quantities of one kind were compared, and how many differed at any
    step."""

    tensors: Annotated[Count, about("Compared.")] = 0
    differing: Annotated[Count, about("Differing at any step.")] = 0


@dataclass(frozen=True)
class HeatRow:
    """The quantities of one kind in one module, of one process."""

    process: Annotated[str, about("The traced process: `main`, `rank0`, …")]
    kind: Annotated[Kind, about("What kind of quantity it is.")]
    module: Annotated[
        str,
        about(
            "The module's path, as far as the map tells modules apart. Untrusted text; "
            "may be empty."
        ),
    ]
    tensors: Annotated[Count, about("Quantities in the row.")]
    cells: Annotated[
        str,
        about(
            "A character for each column: blank not recorded, `.` bitwise identical, "
            "`?` different by an unknown distance, else floor(log2) of the relative L2 distance in "
            "ULP as one of `0` to `9`, `a` to `z` (10 to 35), `A` to `Z` (36 to 61), `+` and `-`.",
            max_length=120,
            pattern=r"^[ .?0-9a-zA-Z+-]*\Z",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Where two runs differ, modules by steps."""

    steps: Annotated[Count, about("Optimizer steps of the longer run.")]
    width: Annotated[
        int,
        about(
            "Steps of one column; the first column is the state before the first step.",
            ge=1,
        ),
    ]
    depth: Annotated[Count, about("Parts of a module's path that are told apart.")]
    rows: Annotated[
        tuple[HeatRow, ...],
        about("In order of execution, by process.", max_length=1_000),
    ]


@dataclass(frozen=True, kw_only=True)
class GrowthPoint:
    """How far two runs are apart at the end of one step, as two more runs of the same training
    measured it."""

    step: Annotated[Step, about("Optimizer step; -1 before the first.")]
    weight_l2: Annotated[
        float | None,
        about(
            "L2 norm of the difference of all parameters as one vector; null: not a number."
        ),
    ]
    max_ulp: Annotated[
        Count | None,
        about("Largest ULP of any tensor; null if none has one."),
    ]


@dataclass(frozen=True, kw_only=True)
class Totals:
    """How much of two runs was compared, and how much of it differs."""

    identical: Annotated[
        bool,
        about("Whether every compared quantity is bitwise identical in both runs."),
    ]
    steps: Annotated[Count, about("Optimizer steps compared.")]
    tensors: Annotated[
        Count, about("Distinct named quantities compared, of all kinds.")
    ]
    differing: Annotated[Count, about("How many of `tensors` differ at any step.")]
    differing_steps: Annotated[
        Count, about("Optimizer steps in which something differs.")
    ] = 0
    first_divergence: Annotated[
        Divergence | None,
        about("The earliest difference, in order of execution; null if there is none."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Comparison(Totals):
    """Two runs compared, all processes of each."""

    by_kind: Annotated[
        Mapping[Kind, Tally], about("Counts for each kind of quantity.")
    ] = field(default_factory=dict)
    by_step: Annotated[
        tuple[tuple[Step, Count], ...],
        about(
            "Each step at which something differs, and how much does.",
            max_length=10_000,
        ),
    ] = ()
    losses: Losses = ()  # of the first traced process
    weights: Annotated[
        tuple[Divergence, ...],
        about("Final distances of what differs, largest first.", max_length=1_000),
    ] = ()
    loss_gaps: Annotated[
        tuple[tuple[Step, Number], ...],
        about(
            "Step, and the largest absolute difference of its losses, over all processes and "
            "backward passes.",
            max_length=10_000,
        ),
    ] = ()  # infinite where only one is NaN
    unmatched: Annotated[
        Divergence | None,
        about("A quantity that one run lacks, or has in another dtype or shape."),
    ] = None
    unmeasured: Annotated[
        Count, about("Parameters that differ at the end by an unknown distance.")
    ] = 0
    heat_map: Annotated[
        HeatMap | None,
        about(
            "Where the two runs differ, modules by steps; null if nothing was traced."
        ),
    ] = None
    growth: Annotated[
        tuple[GrowthPoint, ...],
        about("The steps at which the distance was measured.", max_length=200),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """How far two `default` runs with one seed drift apart."""

    identical: Annotated[
        bool, about("True: this workload is bitwise identical here without the flags.")
    ]
    loss_gap: Annotated[
        Number | None, about("Largest absolute difference of the losses of one step.")
    ]
    weight_l2: Annotated[
        Number | None,
        about("L2 norm of the difference of all final parameters as one vector."),
    ]
    weight_relative_l2: Annotated[
        Number | None,
        about("`weight_l2` over the L2 norm of the first run's parameters."),
    ]
    first_step: Annotated[Step | None, about("The step at which they first diverge.")]
    first_divergence: Annotated[
        Divergence | None, about("The earliest difference; null if there is none.")
    ] = None
    losses: Losses = ()
    heat_map: Annotated[
        HeatMap | None, about("Where the two runs differ, modules by steps.")
    ] = None


@dataclass(frozen=True)
class Fingerprint:
    """Digests of the first deterministic run, by which `repro-gate compare` compares two
    reports."""

    seed: Annotated[int, about("The run's seed.")]
    by_step: Annotated[
        tuple[tuple[Step, Digest], ...],
        about("Step, and digest of everything recorded in it.", max_length=10_000),
    ]
    by_kind: Annotated[Mapping[Kind, Digest], about("All steps of each kind.")]
    digest: Annotated[
        str,
        about(
            "What digested the tensors: `xxh3-128`, or `sha256-128` without xxhash.",
            pattern=r"^[a-z0-9+-]{0,100}\Z",
        ),
    ] = ""


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


@dataclass(frozen=True)
class NotRestored:
    """One component of a training that a checkpoint did not bring back."""

    component: Annotated[str, about("What it is.", **one_of(COMPONENTS))]
    message: Annotated[str, about("What differs. Untrusted text.")]


class Leg(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"begins": "from", "ends": "to"},
):
    """One leg of a training that was stopped and went on, beside the run that never was."""

    number: Annotated[Count, about("From 1.")]
    begins: Annotated[Count, about("Steps of the reference that were done before it.")]
    ends: Annotated[Count, about("Steps of the reference that are done after it.")]
    identical: Annotated[
        bool, about("Whether its steps are bitwise identical to the reference's.")
    ]
    not_restored: Annotated[
        tuple[NotRestored, ...],
        about("What differs before its first step.", max_length=100),
    ] = ()
    first_divergence: Annotated[
        Divergence | None,
        about("The earliest difference from the reference; null where there is none."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A training that was stopped at checkpoints and went on, beside one that never was."""

    identical: Annotated[bool, about("Whether every leg is the same training.")]
    legs: Annotated[tuple[Leg, ...], about("In order.", max_length=10)]
    not_restored: Annotated[
        tuple[Annotated[str, Meta(**one_of(COMPONENTS))], ...],
        about("Components that no leg after the first got back.", max_length=100),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Apart:
    """One quantity in which another way of training is apart from the reference."""

    step: Annotated[Step, about("Optimizer step; -1 is before the first.")]
    kind: Annotated[Kind, about("What kind of quantity it is.")]
    name: Annotated[str, about("Its name in the reference. Untrusted text.")]
    roundings: Annotated[
        Amount | None,
        about(
            "In multiples of what rounding alone does; null where bits are compared."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Another way to the same training, beside the first deterministic run."""

    name: Annotated[str, about("As the spec has it.")]
    compare: Annotated[Literal["bitwise", "rounding"], about("How it is compared.")]
    equivalent: Annotated[bool, about("Whether it is the same training.")]
    steps: Annotated[
        Count, about("Steps compared: later ones say nothing, rounding has grown.")
    ]
    worst: Annotated[
        Apart | None, about("What is farthest apart; null where bits are compared.")
    ] = None
    first: Annotated[
        Apart | None, about("The first that is too far apart; null if nothing is.")
    ] = None
    detail: Annotated[
        str, about("What no distance says: another number of steps. May be empty.")
    ] = ""
    likely: Annotated[
        str, about("Why, where the traces show it. Untrusted text; may be empty.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class SpeedChange:
    """How much slower a step of one arm is now than before."""

    arm: Annotated[TimedArm, about("With the flags, or without.")]
    slower_pct: Annotated[
        Number, about("In percent of the step time before; negative is faster.")
    ]
    ci95: Annotated[Interval, about("95 % interval of `slower_pct`: low, high.")]
    runs: Annotated[Count, about("Runs of either side that entered it.")]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the flags cost, from interleaved runs."""

    determinism_cost_pct: Annotated[
        Number,
        about(
            "How much slower a step is with the flags, in percent; negative is faster."
        ),
    ]
    ci95: Annotated[
        Interval,
        about("95 % interval of `determinism_cost_pct`, in percent: low, high."),
    ]
    deterministic_step_ms: Annotated[
        Amount, about("Step time with the flags on, in milliseconds.")
    ]
    default_step_ms: Annotated[
        Amount, about("Step time with the flags off, in milliseconds.")
    ]
    timed_steps: Annotated[
        Count, about("Steps of one arm that entered the figure, warm-up left out.")
    ]
    memory_cost_pct: Annotated[
        Number | None, about("How much more peak memory the flags need, in percent.")
    ] = None
    deterministic_peak_bytes: Annotated[
        Count | None, about("Peak memory with the flags on, in bytes.")
    ] = None
    default_peak_bytes: Annotated[
        Count | None, about("Peak memory with the flags off, in bytes.")
    ] = None
    suspicious: Annotated[
        str | None,
        about(
            "Why the figure is more likely a mistake of measurement (outside -50 % … +300 %)."
        ),
    ] = None
    memory_ci95: Annotated[
        Interval | None, about("95 % interval of `memory_cost_pct`, in percent.")
    ] = None
    pairs: Annotated[Count, about("Runs of each arm that entered the figure.")] = 2
    max_percent: Annotated[
        Number | None, about("The budget, `cost.max-percent` of the spec, in percent.")
    ] = None
