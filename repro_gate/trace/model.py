"""What a trace holds: every event of the format is a type here, from which msgspec decodes a line
within the bounds of its fields."""

# msgspec hands `frozen` down to the subclasses of a type; mypy does not know it.
# mypy: disable-error-code="misc"
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta

from . import format as fmt
from .blocks import Block, Spool
from .fields import (
    Call,
    Count,
    Digests,
    Figure,
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
    Signed,
    Sketched,
    Step,
    Sums,
    UnmovedRow,
)


class TraceError(Exception):
    """A trace that does not follow the format. The message names file, line and what is wrong."""


class TooLarge(Exception):
    """The traces of a run take more than they may. The message says of what."""


# ruff: noqa: RUF009  it is `field` itself, under a shorter name
def _made(factory: Callable[[], Any]) -> Any:
    """Return a field whose value is made for each object."""
    return field(default_factory=factory)


@dataclass
class Budget:
    """What the traces of one run may take, all processes together, and have taken so far; and the
    one spool for their digests."""

    limits: Mapping[str, float] = field(default_factory=lambda: fmt.MAX_OF_RUN)
    spent: dict[str, float] = _made(lambda: defaultdict(float))
    spool: Spool = _made(Spool)

    def take(self, number: float, what: str) -> None:
        """Count what was taken. Raises TooLarge where that is more than there was."""
        self.spent[what] += number
        if self.spent[what] > self.limits[what]:
            raise TooLarge(f"more than {self.limits[what]:,.12g} {what}")


@dataclass(kw_only=True, repr=False)
class Trace:
    """One process of one run, as far as it was read."""

    path: Path
    pid: int = 0
    key: str = "main"
    argv: tuple[str, ...] = ()
    forked: bool = False
    facts: dict[str, str] = _made(dict)
    blocks: list[Block] = _made(list)
    steps: list[StepMark] = _made(list)
    settings: list[dict[str, Setting]] = _made(list)
    undone: list[Undone] = _made(list)
    distances: list[Measured] = _made(list)
    sketches: list[Sketched] = _made(list)
    network: list[str] = _made(list)
    opened: list[Opened] = _made(list)
    imports: list[Imported] = _made(list)
    # imported distributions, name -> version; None where the run was not asked for them
    distributions: dict[str, str] | None = None
    drawn: list[Drawn] = _made(list)
    spawned: list[Spawned] = _made(list)
    uses: list[Used] = _made(list)  # of factors, where the run was watched
    # of one step, where the run was asked for them
    operators: list[OperatorLine] = _made(list)
    # of one step of the control, the most frequent first
    calls: list[Call] = _made(list)
    refused: list[Refused] = _made(list)  # where the run was to name them
    loaders: list[LoaderSeen] = _made(list)
    # that torch or CUDA read, as they stood at the first step
    variables: dict[str, str] = _made(dict)
    # (kind, name, step, whole): NaN from `step` to the end
    nonfinite: list[tuple[str, str, int, bool]] = _made(list)
    notes: list[tuple[str, str]] = _made(list)
    # (`module` or `attribute`, name, digest): no optimizer updates it
    unmoved: list[tuple[str, str, str]] = _made(list)
    loop: str = ""  # where nothing was recorded: `train.py:12`
    stopped: bool = False  # the last wanted step was taken
    preempted: str = ""  # the checkpoint at which the process waits for its end
    end: str | None = None
    tables: list[tuple[str, tuple[Row, ...]]] = _made(list)
    # of all processes of the run together
    budget: Budget = field(default_factory=Budget, compare=False)
    # blocks of each kind so far in the step of the last one
    at: dict[str, int] = _made(dict)

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


class Hello(Event):
    format: Literal["repro-gate/trace/v3"]
    nonce: Short
    pid: Line
    argv: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    forked: bool


class Facts(Event):
    facts: Annotated[dict[Short, Name], Meta(max_length=200)]


class Table(Event):
    kind: Kind
    rows: Annotated[tuple[Row, ...], Meta(max_length=fmt.MAX_ROWS)]


class BlockLine(Event, tag="block"):
    step: Step
    table: Count
    digests: bytes
    values: Annotated[tuple[Short, ...], Meta(max_length=fmt.MAX_ROWS)] = ()


class Flags(Event):
    settings: Annotated[dict[Short, Setting], Meta(max_length=200)]


class StepMark(Event, tag="step"):
    """The end of one optimizer step: training time and the probe's own time in milliseconds, peak
    memory in bytes, the reading of flags. `behind`, in an alternating run: all workers of a
    DataLoader were at work as a batch was asked for."""

    step: Count
    ms: Milliseconds
    probe_ms: Milliseconds
    peak_bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    flags: Count
    behind: bool = False


class Seen(Event):
    """What the probe noticed beside tensors. The trace has a list under its tag, which takes the
    event, or the `rows` that it has, as many as `format.LIMITS` says."""

    @property
    def site(self) -> tuple[str, int]:
        """Return the file and the line of an event that a line made."""
        return self.file, self.line  # type: ignore[attr-defined]


class Undone(Seen):
    """A line of training code that gave a determinism flag another value. `late`: a variable, which
    its library had read by then."""

    flag: Short
    value: Short
    file: Name
    line: Line
    step: Step
    late: bool = False


class Distances(Seen):
    rows: tuple[Measured, ...]


class Sketches(Seen):
    rows: tuple[Sketched, ...]


class Network(Seen):
    rows: tuple[Name, ...]


class OpenedFiles(Seen, tag="opened"):
    rows: tuple[Opened, ...]


class Imports(Seen):
    rows: tuple[Imported, ...]


class Distributions(Event):
    versions: Annotated[dict[Short, Short], Meta(max_length=fmt.MAX_DISTRIBUTIONS)]


class Drawn(Seen):
    """A draw from the operating system's entropy by a line of the workspace: `source` is the call
    (`uuid.uuid4`, `random.Random()`), with BY_LIBRARY and a module behind it where an installed
    library made it on the line's behalf."""

    source: Short
    file: Name
    line: Line


class Spawned(Seen):
    """A line of the workspace that started a process; `pid` is this process's own where the child's
    is not known (`os.system`)."""

    pid: Line
    file: Name
    line: Line


class Used(Seen, tag="uses"):
    """What one line got from one factor during one step: how often, and a digest of the answers.
    `call` is the call as it is written. `direct`: the line called it itself, by whatever name the
    standard library or NumPy has for it; else a library did, for its own ends. `outside`: the
    answers came from outside the process, and nothing pins them."""

    step: Step
    factor: Short
    source: Short
    file: Name
    line: Line
    call: Short
    count: Count
    digest: Short
    direct: bool = True
    outside: bool = False
    process: Short = ""  # whose trace it is, named by who compares several


class OperatorLine(Seen, tag="operators"):
    """One operator that torch dispatched. `simple`: a view or element-wise. `form` digests its
    arguments but for the elements of tensors, which lie on `device`. `distinct`: outputs of
    replays, by how they were run."""

    op: Short
    count: Count
    phase: Literal["forward", "backward", "optimizer"]
    node: Short
    file: Name
    line: Line
    inputs: Digests
    outputs: Digests
    simple: bool
    form: Short = ""
    device: Short = "cpu"
    distinct: Annotated[dict[Short, Count], Meta(max_length=10)] | None = None
    # of the first output, if the run was asked for it: its sketch, and the size of one rounding
    sums: Sums | None = None
    rounding: Figure = None
    process: Short = ""  # as in Used


class Calls(Seen):
    rows: tuple[Call, ...]


class Refused(Seen):
    """An operator that torch refuses under the flag, by the name that its refusal has, and the line
    of its forward."""

    op: Short
    phase: Literal["forward", "backward", "optimizer"]
    file: Name
    line: Line


class LoaderSeen(Seen, tag="loaders"):
    """One torch DataLoader, in order of first batches. `base_seed`: its first epoch's."""

    workers: Count
    base_seed: Signed | None


class Variables(Event):
    values: Annotated[dict[Short, Name], Meta(max_length=fmt.MAX_VARIABLES)]


class Nonfinite(Seen):
    rows: tuple[tuple[Kind, Name, Step, bool], ...]


class Unmoved(Seen):
    rows: tuple[UnmovedRow, ...]


class Notes(Seen):
    rows: tuple[tuple[Short, Name], ...]


class Loop(Event):
    place: Name


class Stopped(Event):
    steps: Count


class Preempted(Event):
    """The process may be ended: it has done its steps. One that is to be killed has made a
    checkpoint, and waits."""

    steps: Count
    checkpoint: Name


class End(Event):
    steps: Count
    reason: Literal["steps", "exit", "exception"]


class Resumed(Event):
    steps: Count


EVENTS = {*Event.__subclasses__(), *Seen.__subclasses__()} - {Seen}
DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Union[tuple(EVENTS)])
