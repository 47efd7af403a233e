"""The format of `repro.baseline.yml`, declared once as types with bounds, and what the gate says of
a run beside it, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from repro_gate.baseline.config_hash import ChangedInput
from repro_gate.compare.model import Divergence, SpeedChange, TimedArm
from repro_gate.spec.errors import escaped
from repro_gate.trace.format import MAX_STEP

STATUSES = ("unchanged", "no-op", "changed", "drift", "new-platform")
FILE_NAME = "repro.baseline.yml"
MAX_CURVE = 100  # steps of a loss curve
MAX_SEED = 2**32 - 1
MAX_RUNS = 100  # timed runs of one arm

Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=4_096)]
_Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
_Steps = Annotated[int, Meta(ge=0, le=MAX_STEP)]
_Milliseconds = Annotated[float, Meta(gt=0, le=1e10)]
_Curve = Annotated[
    str,
    Meta(
        max_length=64 * MAX_CURVE,
        pattern=r"\A(?:\d{1,10} (?:-?\d+(?:\.\d+)?(?:e[-+]\d+)?|nan|-?inf)(?:\n|\Z))*\Z",
    ),
]
_Time = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")]


class RecordedResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """What a deterministic run with one seed ended with; None where nothing of the kind was
    recorded.

    `losses` digests the final losses of all processes, `weights` parameters and buffers,
    `optimizer` its state, each as last recorded; `artifacts` digests each artifact by its name.
    `loss_curve` says how far losses changed: lines of `STEP LOSS` of the first process, the loss as
    the shortest decimal of the float that it is. `steps` counts optimizer steps.
    """

    seed: _Seed
    steps: _Steps
    losses: Digest | None
    weights: Digest | None
    optimizer: Digest | None
    artifacts: dict[Text, Digest]
    loss_curve: _Curve

    @property
    def curve(self) -> dict[int, float]:
        """Step -> loss."""
        return {
            int(step): float(loss)
            for step, _, loss in (line.partition(" ") for line in self.loss_curve.splitlines())
        }


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What is recorded for one platform, its root the entry's key in the file. `outcomes` holds one
    result for each seed, `outside` facts that are no inputs (imported distributions, kernel, C
    library): what is looked at first where the same inputs give other bits. `step_times` has the
    pace of each timed run (`compare/cost.py`) in milliseconds, by arm; empty where the cost was not
    measured."""

    platform: Digest
    config_hash: Digest
    recipe: Digest
    recorded: _Time  # UTC, ISO 8601
    tool_version: Text
    outcomes: Annotated[tuple[RecordedResult, ...], Meta(min_length=1)]
    recipe_inputs: dict[Text, Any]
    platform_inputs: dict[Text, Any]
    outside: dict[Text, Text]
    step_times: dict[TimedArm, Annotated[tuple[_Milliseconds, ...], Meta(max_length=MAX_RUNS)]] = {}


@dataclass(frozen=True)
class Baseline:
    """A whole `repro.baseline.yml`: entries by platform root."""

    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BaselineFinding:
    """This gate run compared with the baseline. `message` is one sentence; `changed_inputs` are
    inputs that differ, `outside` facts outside the inputs that do (`name: before -> after`),
    `unlike` the parts of the result whose bits differ (`losses`, `artifact out/a.pt`). `loss_gap`
    is the largest |difference| of losses of one recorded step, None where no step can be compared
    with another; `speed` says how step times have changed since."""

    status: str  # one of STATUSES
    message: str
    changed_inputs: tuple[ChangedInput, ...] = ()
    unlike: tuple[str, ...] = ()
    loss_gap: float | None = None
    outside: tuple[str, ...] = ()
    recorded: str = ""
    remedy: str = ""
    unknown_recipe: bool = (
        False  # of a new platform: no other has this recipe either, so nothing speaks for its bits
    )
    speed: tuple[SpeedChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AgainstFinding:
    """This gate run compared with another ref's checkout, gated in the same call. `status`:
    `unchanged` (same recipe), `no-op` (the recipe inputs changed, results did not), `changed`, or
    `inconclusive` (the ref's own runs could not be compared; `message` says why). `relation` and
    `times_noise` say what a difference is beside the ref's noise floor
    (`noise_floor.beside_noise`), `speed` what the change does to a step."""

    ref: str
    commit: str
    status: str
    message: str
    changed_inputs: tuple[ChangedInput, ...] = ()
    first_divergence: Divergence | None = None
    loss_gap: float | None = None
    relation: str = ""
    times_noise: float | None = None
    speed: tuple[SpeedChange, ...] = ()


def problem_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong, in one printable line, and where below the root (`.outcomes[0].seed`). A key
    in it may be untrusted."""
    message, at, where = escaped(str(error)).rpartition(" - at `$")
    message = message if at else where
    return message[:1].lower() + message[1:200], where.rstrip("`") if at else ""
