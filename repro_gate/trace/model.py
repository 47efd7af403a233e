"""What a trace holds: every event of the format is a type here, from which msgspec decodes a line
within the bounds of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta

from . import format as fmt
from .blocks import Block, Spool
from .fields import (
    Count,
    DispatchedRow,
    Few,
    Imported,
    Kind,
    Line,
    Measured,
    Milliseconds,
    Name,
    Opened,
    Row,
    Setting,
    Short,
    Step,
    UnmovedRow,
)


class TraceError(Exception):
    """A trace that does not follow the format. The message names file, line and what is wrong."""


class TooLarge(Exception):
    """The traces of a run take more than they may. The message says of what."""


@dataclass
class Budget:
    """What the traces of one run may take, all processes together, and have taken so far; and the
    one spool for their digests."""

    limits: Mapping[str, float] = field(default_factory=lambda: fmt.MAX_OF_RUN)
    spent: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(fmt.MAX_OF_RUN, 0.0)
    )
    spool: Spool = field(default_factory=Spool)

    def take(self, number: float, what: str) -> None:
        """Count what was taken. Raises TooLarge where that is more than there was."""
        self.spent[what] += number
        if self.spent[what] > self.limits[what]:
            raise TooLarge(f"more than {self.limits[what]:,.12g} {what}")


@dataclass(kw_only=True)
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
    settings: list[dict[str, Setting]] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    distances: list[Measured] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    distributions: dict[str, str] | None = (
        None  # imported distributions, name -> version; None where the run was not asked for them
    )
    drawn: list[Drawn] = field(default_factory=list)
    spawned: list[Spawned] = field(default_factory=list)
    uses: list[Used] = field(
        default_factory=list
    )  # of factors, where the run was watched
    # of one step, where the run was asked for them
    operators: list[OperatorLine] = field(default_factory=list)
    dispatched: list[DispatchedRow] = field(
        default_factory=list
    )  # of one step of the control
    refused: list[Refused] = field(
        default_factory=list
    )  # where the run was to name them
    loaders: list[LoaderSeen] = field(default_factory=list)
    # that torch or CUDA read, as they stood at the first step
    variables: dict[str, str] = field(default_factory=dict)
    # (kind, name, step, whole): NaN from `step` to the end
    nonfinite: list[tuple[str, str, int, bool]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    # (`module` or `attribute`, name, digest): no optimizer updates it
    unmoved: list[tuple[str, str, str]] = field(default_factory=list)
    loop: str = ""  # where nothing was recorded: `train.py:12`
    stopped: bool = False  # the last wanted step was taken
    end: str | None = None
    tables: list[tuple[str, tuple[Row, ...]]] = field(default_factory=list, repr=False)
    # of all processes of the run together
    budget: Budget = field(default_factory=Budget, repr=False, compare=False)
    # blocks of each kind so far in the step of the last one
    at: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def trained(self) -> bool:
        return bool(self.steps or self.blocks)


class Event(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="e",
    tag=str.lower,
):
    """One line. A class is called as its event is, or names its tag."""


class Hello(Event, frozen=True):
    format: Literal["repro-gate/trace/v3"]
    nonce: Short
    pid: Line
    key: Short
    argv: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    forked: bool


class Facts(Event, frozen=True):
    facts: Annotated[dict[Short, Name], Meta(max_length=200)]


class Table(Event, frozen=True):
    kind: Kind
    rows: Annotated[tuple[Row, ...], Meta(max_length=fmt.MAX_ROWS)]


class BlockLine(Event, frozen=True, tag="block"):
    step: Step
    table: Count
    digests: bytes
    values: Annotated[
        tuple[Annotated[str, Meta(max_length=40)], ...], Meta(max_length=fmt.MAX_ROWS)
    ] = ()


class Flags(Event, frozen=True):
    settings: Annotated[dict[Short, Setting], Meta(max_length=200)]


class StepMark(Event, frozen=True, tag="step"):
    """The end of one optimizer step: training time and the probe's own time in milliseconds, peak
    memory in bytes, the reading of flags."""

    step: Count
    ms: Milliseconds
    probe_ms: Milliseconds
    peak_bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    flags: Count


class Seen(Event, frozen=True):
    """What the probe noticed beside tensors. The trace has a list under its tag, which takes as
    many as `format.LIMITS` says."""

    def items(self) -> Sequence[Any]:
        """Return what the list takes: the event, or the rows that it has."""
        return (self,)


class SeenRows(Seen, frozen=True):
    rows: Sequence[Any]

    def items(self) -> Sequence[Any]:
        return self.rows


class At:
    """The place of an event that a line made."""

    __slots__ = ()
    file: str
    line: int

    @property
    def site(self) -> tuple[str, int]:
        """Return the file and the line."""
        return self.file, self.line


class Undone(Seen, At, frozen=True):
    """A line of training code that gave a determinism flag another value. `late`: a variable, which
    its library had read by then."""

    flag: Short
    value: Short
    file: Name
    line: Line
    step: Step
    late: bool = False


class Distance(Event, frozen=True):
    step: Step
    rows: Annotated[tuple[Measured, ...], Meta(max_length=fmt.MAX_ROWS)]


class Network(Seen, frozen=True):
    address: Annotated[str, Meta(max_length=300)]

    def items(self) -> Sequence[str]:
        return (self.address,)


class OpenedFiles(SeenRows, frozen=True, tag="opened"):
    rows: tuple[Opened, ...]


class Imports(SeenRows, frozen=True):
    rows: tuple[Imported, ...]


class Distributions(Event, frozen=True):
    versions: Annotated[dict[Short, Short], Meta(max_length=fmt.MAX_DISTRIBUTIONS)]


class Drawn(Seen, frozen=True):
    """A draw from the operating system's entropy by a line of the workspace: `source` is the call
    (`uuid.uuid4`, `random.Random()`), with BY_LIBRARY and a module behind it where an installed
    library made it on the line's behalf."""

    source: Short
    file: Name
    line: Line


class Spawned(Seen, frozen=True):
    """A line of the workspace that started a process; `pid` is this process's own where the child's
    is not known (`os.system`)."""

    pid: Line
    file: Name
    line: Line


class Used(Seen, At, frozen=True, tag="uses"):
    """What one line got from one factor during one step: how often, and a digest of the answers.
    `call` is the call as it is written. `direct`: the line called it itself, by whatever name the
    standard library or NumPy has for it; else a library did, for its own ends. `outside`: the
    answers came from outside the process, and nothing pins them."""

    step: Step
    factor: Annotated[str, Meta(max_length=32)]
    source: Short
    file: Name
    line: Line
    call: Short
    count: Count
    digest: Short
    direct: bool = True
    outside: bool = False
    process: Short = ""  # whose trace it is, named by who compares several


class OperatorLine(Seen, At, frozen=True, tag="operators"):
    """One operator that torch dispatched. `simple`: a view or element-wise. `distinct`: outputs of
    replays, by how they were run."""

    op: Short
    count: Count
    phase: Literal["forward", "backward", "optimizer"]
    node: Short
    file: Name
    line: Line
    inputs: Annotated[
        tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=100)
    ]
    outputs: Annotated[
        tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=100)
    ]
    simple: bool
    distinct: Union[Annotated[dict[Short, Count], Meta(max_length=10)], None] = None
    process: Short = ""  # as in Used


class Dispatched(SeenRows, frozen=True):
    """The operators of one step: name, dtype of its first floating-point tensor, pass, form
    (`dispatch.form`), how often."""

    rows: tuple[DispatchedRow, ...]


class Refused(Seen, frozen=True):
    """An operator that torch refuses under the flag, by the name that its refusal has, and the line
    of its forward."""

    op: Short
    phase: Literal["forward", "backward", "optimizer"]
    file: Name
    line: Line
    step: Step


class LoaderSeen(Seen, frozen=True, tag="loaders"):
    """One torch DataLoader, `number` in order of first batches. `base_seed`: its first epoch's."""

    number: int
    workers: Few
    base_seed: int | None


class Variables(Event, frozen=True):
    values: Annotated[dict[Short, Name], Meta(max_length=fmt.MAX_VARIABLES)]


class Nonfinite(SeenRows, frozen=True):
    rows: tuple[tuple[Kind, Name, Step, bool], ...]


class Unmoved(SeenRows, frozen=True):
    rows: tuple[UnmovedRow, ...]


class Note(Seen, frozen=True, tag="notes"):
    id: Annotated[str, Meta(max_length=100)]
    message: Name

    def items(self) -> Sequence[tuple[str, str]]:
        return ((self.id, self.message),)


class Stopped(Event, frozen=True):
    steps: Count


class End(Event, frozen=True):
    steps: Count
    reason: Literal["steps", "exit", "exception"]


class Resumed(Event, frozen=True):
    steps: Count


EVENTS = (*Event.__subclasses__(), *Seen.__subclasses__(), *SeenRows.__subclasses__())
DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(
    Union[tuple(kind for kind in EVENTS if kind not in (Seen, SeenRows))]
)
