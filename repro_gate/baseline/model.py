"""What `repro.baseline.yml` holds and what the gate says about it, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro_gate.baseline.config_hash import ChangedInput, Inputs
from repro_gate.compare.model import Divergence

STATUSES = ("unchanged", "no-op", "changed", "drift", "new-platform")
FILE_NAME = "repro.baseline.yml"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The bits that a deterministic run ended with. Digests are `sha256:` and 64 hex digits, None where nothing of the kind was recorded.

    `losses` digests the final losses of all processes, `weights` parameters and buffers, `optimizer` its state, each as last recorded;
    `artifacts` digests each artifact's inputs by its name. `loss_curve` holds (step, loss as hex float) of the first process, at most 100
    steps evenly spread with the last among them, to say how far losses changed. `steps` counts optimizer steps.
    """

    seed: int
    steps: int
    losses: str | None
    weights: str | None
    optimizer: str | None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    loss_curve: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is recorded for one platform root. `outside` are facts that are no inputs (imported distributions, kernel, C library), by name:
    what is looked at first where the same config hash gives other bits."""

    config_hash: str
    recipe: str
    platform: str
    recipe_inputs: Inputs
    platform_inputs: Inputs
    outcomes: tuple[Outcome, ...]  # one for each seed
    outside: Mapping[str, str]
    recorded: str  # UTC, ISO 8601
    tool_version: str


@dataclass(frozen=True)
class Baseline:
    """A whole `repro.baseline.yml`: entries by platform root."""

    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BaselineFinding:
    """This gate run compared with the baseline. `message` is one sentence; `changed_inputs` are inputs that differ, `outside` facts outside
    the inputs that do (`name: before -> after`), `unlike` the parts of the outcome whose bits differ (`losses`, `artifact out/a.pt`).
    `loss_gap` is the largest |difference| of losses of one recorded step, None where no step can be compared with another."""

    status: str  # one of STATUSES
    message: str
    changed_inputs: tuple[ChangedInput, ...] = ()
    unlike: tuple[str, ...] = ()
    loss_gap: float | None = None
    outside: tuple[str, ...] = ()
    recorded: str = ""
    remedy: str = ""
    unknown_recipe: bool = False  # of a new platform: no other has this recipe either, so nothing speaks for its bits


@dataclass(frozen=True, kw_only=True)
class AgainstFinding:
    """This gate run compared with another ref's checkout, gated in the same call. `status`: `unchanged` (same recipe), `no-op` (the recipe
    inputs changed, results did not), `changed`, or `inconclusive` (the ref's own runs could not be compared; `message` says why)."""

    ref: str
    commit: str
    status: str
    message: str
    changed_inputs: tuple[ChangedInput, ...] = ()
    first_divergence: Divergence | None = None
    loss_gap: float | None = None
