"""The format of `repro.baseline.yml`, declared once as types with bounds, and what the gate says of
a run beside it, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from repro_gate.baseline.config_hash import ChangedInput, ConfigHash, Digest
from repro_gate.compare.model import (
    Divergence,
    Number,
    SpeedChange,
    TimedArm,
    UpTo1000,
    about,
    one_of,
    reported,
)
from repro_gate.trace.format import MAX_STEP

PARTS = ("steps", "losses", "weights", "optimizer")  # of a recorded result
STATUSES = ("unchanged", "no-op", "changed", "drift", "new-platform")
FILE_NAME = "repro.baseline.yml"
MAX_CURVE = 100  # steps of a loss curve
MAX_SKETCHES = 1_000
MAX_SEED = 2**32 - 1
MAX_RUNS = 100  # timed runs of one arm

_Text = Annotated[str, Meta(max_length=4_096)]
_Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
_Steps = Annotated[int, Meta(ge=0, le=MAX_STEP)]
Loss = float | Literal["nan", "inf", "-inf"]
_Curve = Annotated[dict[_Steps, Loss], Meta(max_length=MAX_CURVE)]
_Milliseconds = Annotated[float, Meta(gt=0, le=1e10)]
_Times = Annotated[tuple[_Milliseconds, ...], Meta(max_length=MAX_RUNS)]
_Time = Annotated[
    str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
]


class SeedResult(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="kebab",
):
    """The metrics of one deterministic run with one seed, and how its losses went."""

    seed: _Seed
    metrics: Annotated[dict[_Text, Loss], Meta(max_length=20)]
    loss_curve: _Curve


class RecordedResult(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename="kebab",
):
    """What a deterministic run with one seed ended with; None if nothing of the kind was
    recorded."""

    seed: _Seed
    steps: _Steps  # of the optimizer
    losses: Digest | None  # of the final losses of all processes
    weights: Digest | None  # of parameters and buffers, as last recorded
    optimizer: Digest | None  # of its state, as last recorded
    artifacts: dict[_Text, Digest]
    # how far losses changed: step -> loss of the first process
    loss_curve: _Curve
    # of first gradients and last values (`compare/sketch.py`)
    sketches: Annotated[dict[_Text, _Text], Meta(max_length=MAX_SKETCHES)] = (
        msgspec.field(default_factory=dict)
    )


class Entry(
    ConfigHash,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename="kebab",
):
    """What is recorded for one platform: the config hash, and what was found under it."""

    config_hash: Digest  # `config-hash` in this file
    recorded: _Time  # UTC, ISO 8601
    tool_version: _Text
    # one for each seed
    outcomes: Annotated[tuple[RecordedResult, ...], Meta(min_length=1)]
    # facts that are no inputs (imported distributions, kernel, C library): the first suspects if
    # the same inputs give other bits
    outside: dict[_Text, _Text]
    # pace of each timed run (`compare/cost.py`) in milliseconds; empty if none was measured
    step_times: dict[TimedArm, _Times] = msgspec.field(default_factory=dict)
    # what the metrics of a change are compared with
    seeds: Annotated[tuple[SeedResult, ...], Meta(max_length=50)] = ()


# a whole `repro.baseline.yml`: entries by platform root; empty if there is none
Baseline = Mapping[str, Entry]
Names = UpTo1000[str]
Commit = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})\Z")]


@reported
class Compared:
    """What a comparison with earlier results says, whatever they were.

    message: One sentence.
    changed_inputs: Inputs in which the two config hashes differ.
    loss_gap: Largest absolute difference of the losses of one step.
    speed: How the time of a step has changed.
    """

    message: str
    changed_inputs: UpTo1000[ChangedInput] = ()
    loss_gap: Number | None = None
    speed: Annotated[tuple[SpeedChange, ...], Meta(max_length=2)] = ()


@reported
class BaselineFinding(Compared):
    """This gate run compared with `repro.baseline.yml`.

    unlike: Results that differ: `losses`, `weights`, `optimizer`, `artifact out/a.pt`.
    outside: Facts outside the inputs that differ: `name: before -> after`.
    recorded: When the baseline's entry was written: UTC, ISO 8601; may be empty.
    remedy: What to do; may be empty.
    unknown_recipe: Of a new platform: no other platform has this recipe either.
    """

    status: Annotated[
        str,
        about(
            "Same inputs and results; other inputs, same results; both differ; same inputs, other "
            "results; nothing recorded here.",
            **one_of(STATUSES),
        ),
    ]
    unlike: Names = ()
    outside: Names = ()
    recorded: str = ""
    remedy: str = ""
    unknown_recipe: bool = False


@reported
class AgainstFinding(Compared):
    """This gate run compared with another ref, gated in the same call.

    ref: The ref as it was named. Untrusted text.
    commit: Its commit, 40 (or 64) hex digits.
    first_divergence: The earliest difference from the other ref, else null.
    """

    ref: str
    commit: Commit
    status: Annotated[
        str,
        about(
            "As beside a baseline; or no answer.",
            **one_of((*STATUSES[:3], "inconclusive")),
        ),
    ]
    first_divergence: Divergence | None = None
