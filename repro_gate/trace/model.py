"""What a trace holds: every event of the format is a type here, from which msgspec decodes a line within the bounds of its fields.

`add` puts an event into the `Trace` of its process and checks what depends on earlier lines; it raises ValueError.
"""

from __future__ import annotations

import posixpath
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta

from . import format as fmt

MAX_FIRST = 1000  # settings undone, connections and notes of one process: the first are kept
MAX_NONFINITE = 1000
Name = Annotated[str, Meta(max_length=fmt.MAX_NAME)]
Short = Annotated[str, Meta(max_length=200)]
Step = Annotated[int, Meta(ge=-1, le=fmt.MAX_STEP)]
Count = Annotated[int, Meta(ge=0, le=fmt.MAX_STEP)]
Line = Annotated[int, Meta(ge=0, le=1 << 31)]
Few = Annotated[int, Meta(ge=0, le=1 << 20)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e10)]
Figure = Union[Annotated[float, Meta(ge=0, le=sys.float_info.max)], None]  # of a distance; None: it does not exist
Size = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]  # of a dimension: what any reader of JSON can hold
Shape = Annotated[tuple[Size, ...], Meta(max_length=64)]
Dtype = Annotated[str, Meta(max_length=100)]
Kind = Literal["rng", "batch", "buffer", "loss", "gradient", "parameter", "optimizer"]
Row = tuple[Name, Dtype, Shape]
UnmovedRow = tuple[
    Literal["module", "attribute"], Annotated[str, Meta(max_length=fmt.MAX_UNMOVED_NAME)], Annotated[str, Meta(max_length=32)]
]
MeasuredRow = tuple[Kind, Name, Dtype, Shape, Figure, Union[Annotated[int, Meta(ge=0)], None], Figure, Figure]
Setting = Union[Name, bool, int, float, None]  # the value of a flag


class TraceError(Exception):
    """A trace that does not follow the format. The message names file, line and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Digests of one kind at one moment: `digests` holds 16 bytes for each row of the table; `values` losses and the
    numbers of an optimizer, as hex floats."""

    step: int
    kind: str
    at: int
    rows: tuple[Row, ...]
    digests: bytes
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The distance of one tensor to its counterpart in the reference run; figures that do not exist are None."""

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
    distributions: dict[str, str] | None = None  # imported distributions, name -> version; None where the run was not asked for them
    drawn: list[Drawn] = field(default_factory=list)
    loaders: list[LoaderSeen] = field(default_factory=list)
    records: list[Records] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # that torch or CUDA read, as they stood at the first step
    nonfinite: list[tuple[str, str, int, bool]] = field(default_factory=list)  # (kind, name, step, whole): NaN from `step` to the end
    notes: list[tuple[str, str]] = field(default_factory=list)
    unmoved: list[tuple[str, str, str]] = field(default_factory=list)  # (`module` or `attribute`, name, digest): no optimizer moves it
    stopped: bool = False  # the last wanted step was taken
    end: str | None = None
    tables: list[tuple[str, tuple[Row, ...]]] = field(default_factory=list, repr=False)
    at: dict[str, int] = field(default_factory=dict, repr=False)  # blocks of each kind so far in the step of the last one

    @property
    def trained(self) -> bool:
        """Whether this process recorded anything to compare."""
        return bool(self.steps or self.blocks)


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="e", tag=str.lower):
    """One line. A class is called as its event is, or names its tag."""

    def add(self, trace: Trace) -> None:
        raise NotImplementedError


class Hello(Event, frozen=True):
    format: Literal["repro-gate/trace/v1"]
    nonce: Short
    pid: Line
    key: Short
    argv: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    forked: bool

    def add(self, trace: Trace) -> None:
        trace.pid, trace.key, trace.argv, trace.forked = self.pid, self.key, self.argv, self.forked


class Facts(Event, frozen=True):
    facts: Annotated[dict[Short, Name], Meta(max_length=200)]

    def add(self, trace: Trace) -> None:
        trace.facts.update(self.facts)
        trace.key = trace.facts.get("process", trace.key)


class Table(Event, frozen=True):
    id: int
    kind: Kind
    rows: Annotated[tuple[Row, ...], Meta(max_length=fmt.MAX_ROWS)]

    def add(self, trace: Trace) -> None:
        _in_order("tables", self.id, len(trace.tables), fmt.MAX_TABLES)
        trace.tables.append((self.kind, self.rows))


class BlockLine(Event, frozen=True, tag="block"):
    step: Step
    kind: Kind
    table: Count
    at: Count
    digests: bytes
    values: Annotated[tuple[Annotated[str, Meta(max_length=40)], ...], Meta(max_length=fmt.MAX_ROWS)] = ()

    def add(self, trace: Trace) -> None:
        kind, rows = trace.tables[self.table]
        if self.kind != kind:
            raise ValueError("its table is of another kind")
        if len(self.digests) != fmt.DIGEST_BYTES * len(rows):
            raise ValueError(f"{len(self.digests)} bytes of digests for {len(rows)} rows")
        for value in self.values:
            float.fromhex(value)
        last = trace.blocks[-1].step if trace.blocks else -1
        if self.step < last:
            raise ValueError(f"step {self.step} after step {last}")
        if self.step > last:
            trace.at = {}
        if self.at != trace.at.get(kind, 0):
            raise ValueError(f"block {self.at} of its kind where {trace.at.get(kind, 0)} was due")
        trace.at[kind] = self.at + 1
        trace.blocks.append(Block(step=self.step, kind=kind, at=self.at, rows=rows, digests=self.digests, values=self.values))


class Flags(Event, frozen=True):
    id: int
    settings: Annotated[dict[Short, Setting], Meta(max_length=200)]

    def add(self, trace: Trace) -> None:
        _in_order("readings", self.id, len(trace.settings), 10_000)
        for value in self.settings.values():
            _in_range(value, -(1 << 63), (1 << 64) - 1)
        trace.settings.append(self.settings)


class StepMark(Event, frozen=True, tag="step"):
    """The end of one optimizer step: training time and the probe's own time in milliseconds, peak memory in bytes, the reading of flags."""

    step: Count
    ms: Milliseconds
    probe_ms: Milliseconds
    peak_bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    flags: Count

    def add(self, trace: Trace) -> None:
        if self.step != len(trace.steps):
            raise ValueError(f"step {self.step} where {len(trace.steps)} was due")
        trace.settings[self.flags]
        trace.steps.append(self)


class Undone(Event, frozen=True):
    """A line of training code that set a determinism flag to another value than the arm's."""

    flag: Short
    value: Short
    file: Name
    line: Line
    step: Step

    def add(self, trace: Trace) -> None:
        if len(trace.undone) < MAX_FIRST:
            trace.undone.append(self)


class Distance(Event, frozen=True):
    step: Step
    rows: Annotated[tuple[MeasuredRow, ...], Meta(max_length=fmt.MAX_ROWS)]

    def add(self, trace: Trace) -> None:
        for kind, name, dtype, shape, max_abs, max_ulp, l2, reference in self.rows:
            _in_range(max_ulp, 0, 1 << 65)
            found = Measured(
                step=self.step,
                kind=kind,
                name=name,
                dtype=dtype,
                shape=shape,
                max_abs=max_abs,
                max_ulp=max_ulp,
                l2=l2,
                reference_l2=reference,
            )
            trace.distances.append(found)


class Network(Event, frozen=True):
    address: Annotated[str, Meta(max_length=300)]

    def add(self, trace: Trace) -> None:
        if len(trace.network) < MAX_FIRST:
            trace.network.append(self.address)


class OpenedFiles(Event, frozen=True, tag="opened"):
    files: Annotated[tuple[tuple[Name, bool, Name, bool], ...], Meta(max_length=fmt.MAX_OPENED)]

    def add(self, trace: Trace) -> None:
        _at_most("files", len(trace.opened) + len(self.files), fmt.MAX_OPENED)
        for path, inside, by, left in self.files:
            if inside and (path in ("", ".", "..") or path.startswith(("/", "../"))):
                raise ValueError("no path below a folder")
            _normal(path, inside)
            trace.opened.append(Opened(path, inside, by, left))


class Imports(Event, frozen=True):
    modules: Annotated[tuple[tuple[Name, Name, Short], ...], Meta(max_length=fmt.MAX_IMPORTS)]

    def add(self, trace: Trace) -> None:
        _at_most("modules", len(trace.imports) + len(self.modules), 2 * fmt.MAX_IMPORTS)
        for name, path, distribution in self.modules:
            _normal(path)
            trace.imports.append(Imported(name, path, distribution))


class Distributions(Event, frozen=True):
    versions: Annotated[dict[Short, Short], Meta(max_length=fmt.MAX_DISTRIBUTIONS)]

    def add(self, trace: Trace) -> None:
        if trace.distributions is not None:
            raise ValueError("they are written once")
        trace.distributions = self.versions


class Drawn(Event, frozen=True):
    """A draw from the operating system's entropy by a line of the workspace: `source` is the call (`uuid.uuid4`, `random.Random()`)."""

    source: Short
    file: Name
    line: Line

    def add(self, trace: Trace) -> None:
        _at_most("draws", len(trace.drawn) + 1, fmt.MAX_DRAWN)
        trace.drawn.append(self)


class LoaderSeen(Event, frozen=True, tag="loader"):
    """One torch DataLoader, `number` in order of first batches: how many worker processes it has, and the base seed that they were given in
    its first epoch (None where it could not be read; drawn too where there are no workers). `dataset` numbers the data set that it draws
    whole, the same for all loaders of one data set (None where it draws a part of one, or that could not be told)."""

    number: int
    workers: Few
    base_seed: int | None
    dataset: Few | None

    def add(self, trace: Trace) -> None:
        _in_order("loaders", self.number, len(trace.loaders), fmt.MAX_LOADERS)
        _in_range(self.base_seed, -(1 << 63), (1 << 64) - 1)
        trace.loaders.append(self)


class Records(Event, frozen=True):
    """Digests (8 bytes each, in the order of first sight, no digest twice) of the records that one DataLoader handed out, or several that
    were made for the same records (a new one for each epoch), under the number of the first. `role`: `train` where a backward pass or an
    optimizer's step followed a batch of it, handed out with gradients on, before the next batch of any loader, else `evaluation`. `whole`
    is False where there were more than the probe keeps of one process, or a batch that it could not read."""

    loader: Count
    role: Literal["train", "evaluation"]
    digests: bytes
    whole: bool

    def add(self, trace: Trace) -> None:
        trace.loaders[self.loader]
        if any(item.loader == self.loader for item in trace.records):
            raise ValueError(f"the records of loader {self.loader} are written once")
        if len(self.digests) % fmt.RECORD_BYTES or len(self.digests) > fmt.RECORD_BYTES * fmt.MAX_RECORDS:
            raise ValueError(f"{len(self.digests)} bytes are no digests of at most {fmt.MAX_RECORDS} records")
        trace.records.append(self)


class Variables(Event, frozen=True):
    values: Annotated[dict[Short, Name], Meta(max_length=fmt.MAX_VARIABLES)]

    def add(self, trace: Trace) -> None:
        trace.variables = self.values


class Nonfinite(Event, frozen=True):
    rows: tuple[tuple[Kind, Name, Step, bool], ...]

    def add(self, trace: Trace) -> None:
        _at_most("tensors", len(trace.nonfinite) + len(self.rows), MAX_NONFINITE)
        trace.nonfinite += self.rows


class Unmoved(Event, frozen=True):
    rows: Annotated[tuple[UnmovedRow, ...], Meta(max_length=fmt.MAX_UNMOVED)]

    def add(self, trace: Trace) -> None:
        trace.unmoved = list(self.rows)


class Note(Event, frozen=True):
    id: Annotated[str, Meta(max_length=100)]
    message: Name

    def add(self, trace: Trace) -> None:
        if len(trace.notes) < MAX_FIRST:
            trace.notes.append((self.id, self.message))


class Stopped(Event, frozen=True):
    steps: Count

    def add(self, trace: Trace) -> None:
        if self.steps != len(trace.steps):
            raise ValueError(f"it counts {self.steps} steps, the trace holds {len(trace.steps)}")
        trace.stopped = trace.stopped or type(self) is Stopped


class End(Stopped, frozen=True):
    reason: Literal["steps", "exit", "exception"]

    def add(self, trace: Trace) -> None:
        super().add(trace)
        trace.end = self.reason


class Resumed(Stopped, frozen=True):
    def add(self, trace: Trace) -> None:
        super().add(trace)
        trace.end = None


def _at_most(what: str, number: int, limit: int) -> None:
    if number > limit:
        raise ValueError(f"more than {limit} {what}")


def _in_order(what: str, number: int, due: int, limit: int) -> None:
    if number != due or due >= limit:
        raise ValueError(f"{what} are numbered from 0 in order, {limit} at most")


def _in_range(value: object, low: int, high: int) -> None:
    """Bounds that msgspec does not take: they are no 64-bit integers."""
    if isinstance(value, int) and not low <= value <= high:
        raise ValueError(f"no whole number in {low}..{high}")


def _normal(path: str, relative: bool = False) -> None:
    if posixpath.normpath(path) != path or (not relative and not path.startswith("/")):
        raise ValueError("no absolute path in its shortest form")


EVENTS: tuple[type[Event], ...] = (*Event.__subclasses__(), *Stopped.__subclasses__())
DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Union[EVENTS])
