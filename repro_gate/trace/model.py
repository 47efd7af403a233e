"""What a trace holds, as data: one `Trace` for each process of a run. Made by `events`, given out by `reader`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .fields import Row

Settings = Mapping[str, bool | int | float | str | None]


class TraceError(Exception):
    """A trace that does not follow the format. The message names file, line and what is wrong."""


@dataclass(frozen=True)
class Block:
    """Digests of one kind at one moment: `digests` holds 16 bytes for each row of the table; `values` losses and the
    numbers of an optimizer, as hex floats."""

    step: int
    kind: str
    at: int
    rows: tuple[Row, ...]
    digests: bytes
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepMark:
    """The end of one optimizer step: training time and the probe's own time in milliseconds, peak memory in bytes."""

    step: int
    ms: float
    probe_ms: float
    peak_bytes: int
    flags: int


@dataclass(frozen=True)
class Undone:
    """A line of training code that set a determinism flag to another value than the arm's."""

    flag: str
    value: str
    file: str
    line: int
    step: int


@dataclass(frozen=True)
class Measured:
    """The distance of one tensor to its twin in the reference run; figures that do not exist are None."""

    step: int
    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float | None
    max_ulp: int | None
    l2: float | None
    reference_l2: float | None


@dataclass(frozen=True)
class Opened:
    """A file that existed before the run and was opened for reading. `inside`: in the workspace, `path` relative to its root; else
    absolute, neither declared data nor part of the interpreter or the system. `by` is the nearest line of the workspace on the stack
    (`train.py:12`), or empty. `left`: it lies outside, holds something, and was made or changed after the gate run had begun."""

    path: str
    inside: bool
    by: str = ""
    left: bool = False


@dataclass(frozen=True)
class Imported:
    """A module of the checkout that did not come from the run's workspace: `path` lies in the original checkout, or in the installed copy
    `distribution`."""

    module: str
    path: str
    distribution: str = ""


@dataclass(frozen=True)
class Drawn:
    """A draw from the operating system's entropy by a line of the workspace: `source` is the call (`uuid.uuid4`, `random.Random()`)."""

    source: str
    file: str
    line: int


@dataclass(frozen=True)
class LoaderSeen:
    """One torch DataLoader, `number` in order of first batches: how many worker processes it has, and the base seed that they were given in
    its first epoch (None where it could not be read; drawn too where there are no workers). `dataset` numbers the data set that it draws
    whole, the same for all loaders of one data set (None where it draws a part of one, or that could not be told)."""

    number: int
    workers: int
    base_seed: int | None = None
    dataset: int | None = None


@dataclass(frozen=True)
class Records:
    """Digests (8 bytes each, in the order of first sight, no digest twice) of the records that one DataLoader handed out, or several that
    were made for the same records (a new one for each epoch), under the number of the first. `role`: `train`
    where a backward pass or an optimizer's step followed a batch of it, handed out with gradients on, before the next batch of any loader,
    else `evaluation`. `whole` is False where there were more than the probe keeps of one process, or a
    batch that it could not read."""

    loader: int
    role: str
    digests: bytes
    whole: bool = True


@dataclass
class Trace:
    """One process of one run, as far as it was read."""

    path: Path
    pid: int = 0
    key: str = "main"
    argv: tuple[str, ...] = ()
    forked: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    steps: list[StepMark] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    distances: list[Measured] = field(default_factory=list)
    kept: list[tuple[int, str]] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    distributions: dict[str, str] | None = None  # imported distributions, name -> version; None where the run was not asked for them
    drawn: list[Drawn] = field(default_factory=list)
    loaders: list[LoaderSeen] = field(default_factory=list)
    records: list[Records] = field(default_factory=list)
    variables: dict[str, str] = field(
        default_factory=dict
    )  # environment variables that torch or CUDA read, as they stood at the first step
    nonfinite: list[tuple[str, str, int, bool]] = field(default_factory=list)  # (kind, name, step, whole): NaN from `step` to the end
    notes: list[tuple[str, str]] = field(default_factory=list)
    beside: list[tuple[str, str, str]] = field(default_factory=list)  # (`module` or `attribute`, name, digest)
    stopped: bool = False  # the last wanted step was taken
    end: str | None = None

    @property
    def trained(self) -> bool:
        """Whether this process recorded anything to compare."""
        return bool(self.steps or self.blocks)
