"""What `repro.lock` holds and what the gate says about it, as data. Imports only the address's and the analysis' data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro_gate.baseline.config_hash import LeafMove, Leaves
from repro_gate.compare.model import Divergence

STATUSES = ("unchanged", "no-op", "changed", "drift", "new-platform")
FILE_NAME = "repro.lock"


@dataclass(frozen=True)
class Outcome:
    """The bits that a deterministic run ended with. Digests are `sha256:` and 64 hex digits, None where nothing of the kind was recorded.

    `losses` digests the final losses of all processes, `weights` parameters and buffers, `optimizer` its state, each as last recorded;
    `artifacts` digests each artifact's leaves by its name. `loss_curve` holds (step, loss as hex float) of the first process, at most 100
    steps evenly spread with the last among them, to say how far losses moved. `steps` counts optimizer steps.
    """

    seed: int
    steps: int
    losses: str | None
    weights: str | None
    optimizer: str | None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    loss_curve: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """What is recorded for one platform root. `outside` are facts that are no leaves (imported distributions, kernel, C library), by name:
    what is looked at first where the same address gives other bits."""

    config_hash: str
    recipe: str
    platform: str
    recipe_leaves: Leaves
    platform_leaves: Leaves
    outcomes: tuple[Outcome, ...]  # one for each seed
    outside: Mapping[str, str]
    recorded: str  # UTC, ISO 8601
    tool_version: str


@dataclass(frozen=True)
class LockFile:
    """A whole `repro.lock`: entries by platform root."""

    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True)
class LockFinding:
    """This gating held against the lock. `message` is one sentence; `moved` are leaves that differ, `outside` facts outside the leaves
    that do (`name: before -> after`), `unlike` the parts of the outcome whose bits differ (`losses`, `artifact out/a.pt`).
    `loss_gap` is the largest |difference| of losses of one recorded step, None where no step can be held against another."""

    status: str  # one of STATUSES
    message: str
    moved: tuple[LeafMove, ...] = ()
    unlike: tuple[str, ...] = ()
    loss_gap: float | None = None
    outside: tuple[str, ...] = ()
    recorded: str = ""
    remedy: str = ""
    unknown_recipe: bool = False  # of a new platform: no other has this recipe either, so nothing speaks for its bits


@dataclass(frozen=True)
class AgainstFinding:
    """This gating held against another ref's checkout, gated in the same call. `status`: `unchanged` (same recipe), `no-op` (the recipe
    moved, the bits did not), `changed`, or `inconclusive` (the ref's own runs could not be compared; `message` says why)."""

    ref: str
    commit: str
    status: str
    message: str
    moved: tuple[LeafMove, ...] = ()
    first_divergence: Divergence | None = None
    loss_gap: float | None = None
