"""The catalog of one platform: which torch operators repeat their bits there, as a JSON file that
is written, read and looked up. Its rows are what the worker measures.

A catalog that is read may be anybody's: it has limits on size and counts, and its texts are escaped
by whoever prints them. `python -m tests.support.schemas` writes `schema.json` from the types here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, cache_folder, read_whole, replace_file
from repro_gate.report import numbers

MAX_BYTES = 32 * 1024 * 1024
MAX_ROWS = 50_000
DEAR = 1.25  # a price is told from here on, with the whole interval above
ENDED = {"crash", "timeout"}
Device = Literal["cpu", "cuda"]
Direction = Literal["forward", "backward"]
Outcome = Literal[
    "repeats", "differs", "raises", "no-kernel", "uninitialised", "crash", "timeout"
]


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=300)]
Text = Annotated[str, Meta(max_length=1_000)]
Ratio = Annotated[float, Meta(gt=0)]
Times = Annotated[tuple[Annotated[float, Meta(ge=0, le=1e9)], ...], Meta(max_length=99)]
Key = tuple[Name, Name, Direction]  # case, dtype, direction


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object. Fields that it does not name are let through: a later version may have added
    them."""


class Platform(_Record, frozen=True, kw_only=True):
    """What the operators were measured on: versions of torch, Python, the NVIDIA `driver`, the CUDA
    that torch was built for, and cuDNN, as torch numbers it; the kind of device and its model
    (`device_name`); on a CPU the `threads` that torch computes with and the vector instructions of
    its kernels (`isa`, such as `AVX512`); the operating `system`. What does not apply, or cannot be
    read, is empty."""

    torch: Name
    device: Device
    device_name: Name
    python: Name = ""
    threads: Count = 0
    isa: Name = ""
    driver: Name = ""
    cuda: Name = ""
    cudnn: Name = ""
    system: Name = ""


class Arm(_Record, frozen=True, kw_only=True):
    """What came of one row, with the determinism flags off or on. `outcome`: `repeats` is equal
    bits each time, `uninitialised` that memory was read before it was written. `runs`: executions
    compared. `differing`: those whose bits were not those of the first. `max_ulp`: largest distance
    of two elements, in representable values of the dtype. `message`: the exception's text, or how
    the process ended; untrusted. `digests`: of each size's first result, only while it is
    measured."""

    outcome: Outcome
    runs: Count = 0
    differing: Count = 0
    max_ulp: Count | None = None
    message: Text = ""
    digests: Annotated[tuple[Name, ...], Meta(max_length=9)] = ()

    def __str__(self) -> str:
        if self.outcome == "differs":
            far = f", up to {numbers.ulps(self.max_ulp)}" if self.max_ulp else ""
            return f"differs in {numbers.of(self.differing, self.runs)} runs{far}"
        if self.outcome == "repeats":
            return f"repeats in {numbers.count(self.runs, 'run')}"
        ended = self.outcome in ENDED
        return f"{self.outcome}: {self.message}" if ended else self.outcome


class Price(_Record, frozen=True, kw_only=True):
    """The time with the flags on over the time with them off: the `ratio` of the geometric means,
    over both processes, from the lower end of their two 95 % intervals (`low`) to the upper end
    (`high`)."""

    ratio: Ratio
    low: Ratio
    high: Ratio

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


class Row(_Record, frozen=True, kw_only=True):
    """One case (source and operator: `kernel/index_add_`, `opinfo/addmm`) with inputs of one dtype,
    of which the operator or its gradient was executed (`direction`), with the flags `off` and `on`.
    `kernel`: the dispatched operator that the row is about, `aten.index_put_.default`; empty if
    several may be what differs. `form`: its arguments that choose the algorithm, `accumulate=True`;
    may be empty. `documented`: what torch documents of it under the flag; empty if it is not on
    torch's list. `price`: what the flags cost; null unless both processes timed it. `inputs` (a
    digest of them), `off_ms` and `on_ms`: only while it is measured."""

    case: Name
    dtype: Name
    direction: Direction
    off: Arm
    on: Arm
    kernel: Name = ""
    form: Name = ""
    documented: Literal["", "deterministic", "raises"] = ""
    price: Price | None = None
    inputs: Name = ""
    off_ms: Times = ()
    on_ms: Times = ()

    @property
    def key(self) -> Key:
        """Return which row it is."""
        return self.case, self.dtype, self.direction

    @property
    def operator(self) -> str:
        """Return the operator as users know it."""
        return self.case.partition("/")[2]

    @property
    def outcomes(self) -> tuple[Outcome, Outcome]:
        """Return what it came to with the flags off and on."""
        return self.off.outcome, self.on.outcome

    @property
    def ratio(self) -> float:
        """Return the price's, 0 without one."""
        return 0.0 if self.price is None else self.price.ratio

    @property
    def dear(self) -> bool:
        """Return whether the flags surely make it slower."""
        return self.price is not None and self.price.low > DEAR


class Catalog(_Record, frozen=True, kw_only=True):
    """The whole file. `schema`: name and major version of this format. `repro_gate`: version of
    repro-gate. `date`: when the measurement began, UTC, ISO 8601. `command`: what measured it.
    `seconds`: its wall time. `complete`: false if it was interrupted, and the rows are those
    measured until then. `scope`: `some` is what `--only` or `--op` chose. `notes`: what was not
    measured."""

    schema: Literal["repro-gate/ops/v1"]
    repro_gate: Name
    date: Name
    command: Text
    seconds: Annotated[float, Meta(ge=0)]
    complete: bool
    scope: Literal["all", "some"]
    platform: Platform
    rows: Annotated[tuple[Row, ...], Meta(max_length=MAX_ROWS)]
    notes: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()


_DECODER = msgspec.json.Decoder(Catalog)


def read(path: Path) -> Catalog:
    """Read a catalog from an untrusted file: at most 32 MiB, valid by the schema. Raises
    UsageError, naming the file and what is wrong."""
    name = for_terminal(os.fspath(path), 200)
    try:
        return _DECODER.decode(read_whole(path, MAX_BYTES))
    except Unreadable as error:
        problem = str(error)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        problem = f"not a catalog of operators: {for_terminal(str(error), 200)}"
    raise UsageError(
        f"{name}: {problem}",
        remedy="measure it anew with `repro-gate ops --json FILE`",
        reason_id="ops/unreadable",
    )


def text(catalog: Catalog) -> str:
    """Return the file's text: one row a line, so that two catalogs can be compared by eye and by
    git. ASCII."""
    parts = msgspec.to_builtins(catalog)
    rows = ",\n  ".join(map(json.dumps, parts.pop("rows")))
    head = json.dumps(parts, indent=1)[:-2]  # without its last brace
    return f'{head},\n "rows": [\n  {rows}\n ]\n}}\n'


def write(path: Path, catalog: Catalog) -> None:
    """Replace the file at `path`, whose folder is made if it is missing. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, text(catalog).encode())


def platform_of(facts: Mapping[str, str], machine: Mapping[str, str]) -> Platform:
    """Return the platform by the facts of the training's interpreter (as a trace or the worker has
    them) and of the machine (`read_machine`)."""
    known = defaultdict(str, {**facts, **machine})
    on_gpu = known["device"].startswith("cuda")
    of_device = ("driver", "cuda", "cudnn") if on_gpu else ()
    threads = known["threads"][:5]
    return Platform(
        device="cuda" if on_gpu else "cpu",
        device_name=known["gpu-model" if on_gpu else "cpu-model"],
        threads=int(threads) if threads.isdecimal() else 0,
        isa=known["cpu-isa"],
        system=known["os"],
        **{name: known[name] for name in ("torch", "python", *of_device)},
    )


def cached_path(environment: Mapping[str, str], platform: Platform) -> Path | None:
    """Return where the catalog of a platform is cached, `$XDG_CACHE_HOME/repro-gate/ops/KEY.json`;
    None if there is no home. The key is a digest of what decides about bits, which Python does
    not."""
    home = cache_folder(environment)
    if home is None:
        return None
    own: tuple[object, ...] = (platform.isa, platform.threads)
    if platform.device == "cuda":
        own = (platform.driver, platform.cuda, platform.cudnn)
    key = repr((platform.torch, platform.device_name, *own))
    digest = hashlib.sha256(key.encode()).hexdigest()
    return home / "ops" / f"{platform.device}-{digest[:16]}.json"
