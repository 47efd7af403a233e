"""The catalog of one platform: which torch operators repeat their bits there, as a JSON file that
is written, read and looked up. Its rows are what the worker measures.

A catalog that is read may be anybody's: it has limits on size and counts, and its texts are escaped
by whoever prints them. `python -m repro_gate.ops.catalog` writes `schema.json` from the types here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from repro_gate._version import SCHEMAS_URL
from repro_gate.compare.model import about
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, cache_folder, read_whole, replace_file
from repro_gate.report import numbers

PATH = Path(__file__).with_name("schema.json")
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
Milliseconds = Annotated[float, Meta(ge=0, le=1e9)]
Times = Annotated[
    tuple[Milliseconds, ...], about("Only while it is measured.", max_length=99)
]
Key = tuple[Name, Name, Direction]  # case, dtype, direction


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object. Fields that it does not name are let through: a later version may have added
    them."""


class Platform(_Record, frozen=True, kw_only=True):
    """What the operators were measured on. What does not apply, or cannot be read, is empty."""

    torch: Annotated[Name, about("Version of torch.")]
    device: Annotated[Device, about("Where the operators ran.")]
    device_name: Annotated[Name, about("Model of the GPU, or of the CPU.")]
    python: Annotated[Name, about("Version of Python.")] = ""
    threads: Annotated[Count, about("Threads that torch computes with on the CPU.")] = 0
    isa: Annotated[
        Name, about("Vector instructions of torch's CPU kernels: `AVX512`.")
    ] = ""
    driver: Annotated[Name, about("Version of the NVIDIA driver.")] = ""
    cuda: Annotated[Name, about("CUDA that torch was built for.")] = ""
    cudnn: Annotated[Name, about("cuDNN, as torch numbers it.")] = ""
    system: Annotated[Name, about("Operating system.")] = ""


class Arm(_Record, frozen=True, kw_only=True):
    """What came of one row, with the determinism flags off or on."""

    outcome: Annotated[
        Outcome,
        about(
            "`repeats`: equal bits each time; `uninitialised`: memory was read before written."
        ),
    ]
    runs: Annotated[Count, about("Executions compared.")] = 0
    differing: Annotated[
        Count, about("Executions whose bits were not those of the first.")
    ] = 0
    max_ulp: Annotated[
        Count | None,
        about(
            "Largest distance of two elements, in representable values of the dtype."
        ),
    ] = None
    message: Annotated[
        Text, about("The exception's text, or how the process ended. Untrusted.")
    ] = ""
    digests: Annotated[
        tuple[Name, ...],
        about("Of each size's first result; only while measured.", max_length=9),
    ] = ()

    def __str__(self) -> str:
        if self.outcome == "differs":
            far = (
                "" if self.max_ulp is None else f", up to {numbers.ulps(self.max_ulp)}"
            )
            return f"differs in {numbers.of(self.differing, self.runs)} runs{far}"
        if self.outcome == "repeats":
            return f"repeats in {numbers.count(self.runs, 'run')}"
        return (
            f"{self.outcome}: {self.message}" if self.outcome in ENDED else self.outcome
        )


class Price(_Record, frozen=True, kw_only=True):
    """The time with the flags on over the time with them off."""

    ratio: Annotated[float, about("Of the geometric means, over both processes.", gt=0)]
    low: Annotated[
        float, about("The lower end of the two processes' 95 % intervals.", gt=0)
    ]
    high: Annotated[float, about("Their upper end.", gt=0)]

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


class Row(_Record, frozen=True, kw_only=True):
    """One case in one dtype and direction."""

    case: Annotated[
        Name, about("Source and operator: `kernel/index_add_`, `opinfo/addmm`.")
    ]
    dtype: Annotated[Name, about("dtype of its inputs.")]
    direction: Annotated[
        Direction, about("Whether the operator or its gradient was executed.")
    ]
    off: Annotated[Arm, about("With the flags off.")]
    on: Annotated[Arm, about("With the flags on.")]
    kernel: Annotated[
        Name,
        about(
            "The dispatched operator that the row is about: `aten.index_put_.default`."
        ),
    ] = ""
    form: Annotated[
        Name,
        about(
            "Its arguments that choose the algorithm: `accumulate=True`; may be empty."
        ),
    ] = ""
    documented: Annotated[
        Literal["", "deterministic", "raises"],
        about(
            "What torch documents of it under the flag; empty if it is not on torch's list."
        ),
    ] = ""
    price: Annotated[
        Price | None, about("What the flags cost; null unless both processes timed it.")
    ] = None
    inputs: Annotated[
        Name, about("Digest of its inputs; only while it is measured.")
    ] = ""
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
    """The whole file."""

    schema: Annotated[
        Literal["repro-gate/ops/v1"], about("Name and major version of this format.")
    ]
    repro_gate: Annotated[Name, about("Version of repro-gate.")]
    date: Annotated[Name, about("When it was begun: UTC, ISO 8601.")]
    command: Annotated[Text, about("The command that measured it.")]
    seconds: Annotated[
        float,
        about("Wall time, in seconds; that of interrupted starts is not in it.", ge=0),
    ]
    complete: Annotated[
        bool,
        about("False if it was interrupted: the rows are those measured until then."),
    ]
    scope: Annotated[
        Literal["all", "quick", "some"],
        about(
            "`quick`: fewer dtypes and executions; `some`: chosen by `--only` or `--op`."
        ),
    ]
    platform: Platform
    rows: Annotated[tuple[Row, ...], about("What was measured.", max_length=MAX_ROWS)]
    notes: Annotated[
        tuple[Text, ...], about("What was not measured.", max_length=100)
    ] = ()


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
    device: Device = "cuda" if facts.get("device", "").startswith("cuda") else "cpu"
    threads = facts.get("threads", "")
    of_the_gpu = {name: facts.get(name, "") for name in ("cuda", "cudnn")}
    of_the_gpu["driver"] = machine.get("driver", "")
    cpu, gpu = machine.get("cpu-model", ""), facts.get("gpu-model", "")
    return Platform(
        torch=facts.get("torch", ""),
        device=device,
        device_name=gpu if device == "cuda" else cpu,
        python=facts.get("python", ""),
        threads=int(threads[:5]) if threads.isdecimal() else 0,
        isa=facts.get("cpu-isa", ""),
        system=machine.get("os", ""),
        **(of_the_gpu if device == "cuda" else {}),
    )


def cached_path(environment: Mapping[str, str], platform: Platform) -> Path | None:
    """Return where the catalog of a platform is cached, `$XDG_CACHE_HOME/repro-gate/ops/KEY.json`;
    None if there is no home. The key is what decides about bits, readable, and a digest of it.
    Python is not part of it."""
    home = cache_folder(environment)
    if home is None:
        return None
    parts = ["torch", platform.torch, platform.device, platform.device_name]
    if platform.device == "cuda":
        parts += [platform.driver, platform.cuda, platform.cudnn]
    else:
        parts += [platform.isa, f"{platform.threads} threads"]
    digest = hashlib.sha256(
        "\0".join(parts).encode("utf-8", "backslashreplace")
    ).hexdigest()
    name = re.sub(r"[^A-Za-z0-9.+]+", "-", "-".join(parts))[:80]
    return home / "ops" / f"{name}-{digest[:12]}.json"


def schema_text() -> str:
    """Return the JSON Schema (2020-12) of a catalog, made from `Catalog`."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMAS_URL}/ops/schema.json",
        "title": "Repro Gate catalog of operators",
        "description": "What `repro-gate ops --json` writes. Fields with a default may be missing. "
        "Readers ignore fields that they do not know: later versions of v1 add fields and take "
        "none away. Texts may stem from foreign code and must be escaped where printed.",
    }
    schema = json.dumps({**head, **msgspec.json.schema(Catalog)}, indent=2) + "\n"
    return re.sub(r"\\n +", " ", schema)  # docstrings go over several lines


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
