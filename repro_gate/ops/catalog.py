"""The catalog of one platform: which torch operators repeat their bits there, as a JSON file that
the gate writes, reads and looks up.

A catalog that is read may be anybody's: it has limits on size and counts, and its texts are escaped
by whoever prints them. `python -m repro_gate.ops.catalog` writes `schema.json` from the types here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from repro_gate._version import SCHEMAS_URL
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, cache_folder, read_whole, replace_file

SCHEMA_ID = "repro-gate/ops/v1"
PATH = Path(__file__).with_name("schema.json")
MAX_BYTES = 32 * 1024 * 1024
MAX_ROWS = 50_000
Device = Literal["cpu", "cuda"]
Direction = Literal["forward", "backward"]
Outcome = Literal["repeats", "differs", "raises", "no-kernel", "uninitialised", "crash", "timeout"]
Documented = Literal["", "deterministic", "raises"]
Scope = Literal["all", "quick", "some"]


def _is(description: str, **bounds: Any) -> Meta:
    return Meta(description=description, **bounds)


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=300)]
Text = Annotated[str, Meta(max_length=1_000)]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """One object. Fields that it does not name are let through: a later version may have added
    them."""


class Platform(_Record, frozen=True, kw_only=True):
    """What the operators were measured on. What does not apply, or cannot be read, is empty."""

    torch: Annotated[Name, _is("Version of torch.")]
    device: Annotated[Device, _is("Where the operators ran.")]
    device_name: Annotated[Name, _is("Model of the GPU, or of the CPU.")]
    python: Annotated[Name, _is("Version of Python.")] = ""
    threads: Annotated[Count, _is("Threads that torch computes with on the CPU.")] = 0
    isa: Annotated[
        Name, _is("Vector instructions that torch's CPU kernels use: `AVX2`, `AVX512`.")
    ] = ""
    driver: Annotated[Name, _is("Version of the NVIDIA driver.")] = ""
    cuda: Annotated[Name, _is("CUDA that torch was built for.")] = ""
    cudnn: Annotated[Name, _is("cuDNN, as torch numbers it.")] = ""
    system: Annotated[Name, _is("Operating system.")] = ""


class Repeats(_Record, frozen=True, kw_only=True):
    """How often each row was executed, at most, and what that excludes."""

    in_process: Annotated[Count, _is("Executions alone, of each arm and size.")]
    contended: Annotated[
        Count, _is("Executions beside other work on the same device, of each arm and size.")
    ]
    again: Annotated[Count, _is("Executions in the second process.")] = 0
    processes: Annotated[Count, _is("Fresh processes.")]
    excludes_rate: Annotated[
        float,
        _is(
            "So many executions without a difference exclude, at 95 %, a higher share that "
            "differs: 1 - 0.05^(1/n).",
            ge=0,
            le=1,
        ),
    ]


class Arm(_Record, frozen=True, kw_only=True):
    """What came of one row, with the determinism flags off or on."""

    outcome: Annotated[
        Outcome,
        _is(
            "`repeats`: all executions gave equal bits; `uninitialised`: memory was read before it "
            "was written."
        ),
    ]
    runs: Annotated[Count, _is("Executions compared.")] = 0
    differing: Annotated[Count, _is("Executions whose bits were not those of the first.")] = 0
    distinct: Annotated[Count, _is("Different results among them all.")] = 0
    max_ulp: Annotated[
        Count | None, _is("Largest distance of two elements, in representable values of the dtype.")
    ] = None
    message: Annotated[Text, _is("The exception's text, or how the process ended. Untrusted.")] = ""


class Price(_Record, frozen=True, kw_only=True):
    """The time with the flags on over the time with them off."""

    ratio: Annotated[float, _is("Of the geometric means, over both processes.", gt=0)]
    low: Annotated[
        float, _is("Lower end: the lower one of the 95 % intervals of the two processes.", gt=0)
    ]
    high: Annotated[float, _is("Upper end: the upper one.", gt=0)]


class Row(_Record, frozen=True, kw_only=True):
    """One case in one dtype and direction."""

    case: Annotated[Name, _is("Name of the case: `kernel/index_add_`.")]
    operator: Annotated[Name, _is("The operator as users know it.")]
    dtype: Annotated[Name, _is("dtype of its inputs.")]
    direction: Annotated[Direction, _is("Whether the operator or its gradient was executed.")]
    off: Annotated[Arm, _is("With the flags off.")]
    on: Annotated[Arm, _is("With the flags on.")]
    kernel: Annotated[
        Name,
        _is(
            "The dispatched operator that the row is about: `aten.index_put_.default`; may be "
            "empty."
        ),
    ] = ""
    form: Annotated[
        Name,
        _is(
            "The arguments of that operator that choose its algorithm: `accumulate=True`; may be "
            "empty."
        ),
    ] = ""
    dispatched: Annotated[
        tuple[Name, ...], _is("Operators dispatched in one execution.", max_length=100)
    ] = ()
    source: Annotated[Name, _is("Where the case comes from: `kernel`, `opinfo`, `user` …")] = ""
    documented: Annotated[
        Documented,
        _is("What torch documents of it under the flag; empty where it is not on torch's list."),
    ] = ""
    size: Annotated[Name, _is("Shapes of its inputs.")] = ""
    random: Annotated[
        bool, _is("Whether it draws from a generator, which was seeded before each execution.")
    ] = False
    price: Annotated[
        Price | None, _is("What the flags cost; null where both processes did not time it.")
    ] = None


class Entry(_Record, frozen=True, kw_only=True):
    """One entry of the list in the documentation of `torch.use_deterministic_algorithms`."""

    entry: Annotated[Text, _is("Its text, or the operator that it is about.")]
    says: Annotated[
        Literal["deterministic", "raises"], _is("What torch says of it under the flag.")
    ]
    case: Annotated[Name | None, _is("A case that measures it; null where none does.")] = None
    here: Annotated[bool, _is("Whether it is about this device.")] = True


class Controls(_Record, frozen=True, kw_only=True):
    """Two operators whose answer is known, measured first: without both of them right there is no
    catalog."""

    races: Annotated[Arm, _is("One that was made to race: it must differ.")]
    repeats: Annotated[Arm, _is("One that cannot differ.")]


class Catalog(_Record, frozen=True, kw_only=True):
    """The whole file."""

    schema: Annotated[Literal["repro-gate/ops/v1"], _is("Name and major version of this format.")]
    repro_gate: Annotated[Name, _is("Version of repro-gate.")]
    date: Annotated[Name, _is("When it was begun: UTC, ISO 8601.")]
    command: Annotated[Text, _is("The command that measured it.")]
    seconds: Annotated[
        float, _is("Wall time, in seconds; that of interrupted starts is not in it.", ge=0)
    ]
    complete: Annotated[
        bool, _is("False where it was interrupted: the rows are those measured until then.")
    ]
    scope: Annotated[
        Scope, _is("`quick`: fewer dtypes and executions; `some`: chosen by `--only` or `--op`.")
    ]
    platform: Platform
    repeats: Repeats
    controls: Controls
    documented: Annotated[tuple[Entry, ...], _is("torch's own list.", max_length=1_000)]
    rows: Annotated[tuple[Row, ...], _is("What was measured.", max_length=MAX_ROWS)]
    notes: Annotated[tuple[Text, ...], _is("What could not be listed.", max_length=100)] = ()

    @property
    def key(self) -> str:
        """`platform_key` of its platform."""
        return platform_key(self.platform)


_DECODER = msgspec.json.Decoder(Catalog)


def read(path: Path) -> Catalog:
    """A catalog from an untrusted file: at most 32 MiB, valid by the schema. Raises UsageError,
    naming the file and what is wrong."""
    name = for_terminal(os.fspath(path), 200)
    try:
        return _DECODER.decode(read_whole(path, MAX_BYTES))
    except Unreadable as error:
        raise UsageError(
            f"{name}: {error}",
            remedy=f"check that {name} is there and readable",
            reason_id="ops/unreadable",
        ) from None
    except RecursionError:
        problem = "nested too deep"
    except (ValueError, msgspec.MsgspecError) as error:  # UnicodeDecodeError is a ValueError
        problem = for_terminal(str(error), 200)
    remedy = (
        "measure it anew with `repro-gate ops --json FILE`; `repro-gate schema --ops` prints what "
        "is expected"
    )
    raise UsageError(
        f"{name}: not a catalog of operators: {problem}", remedy=remedy, reason_id="ops/invalid"
    )


def text(catalog: Catalog) -> str:
    """The file's text: one row a line, so that two catalogs can be compared by eye and by git.
    ASCII."""
    parts = msgspec.to_builtins(catalog)
    rows = parts.pop("rows")
    head = json.dumps(parts, indent=1)[:-2]  # without its last brace
    return f"{head},\n" + ' "rows": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n ]\n}\n"


def write(path: Path, catalog: Catalog) -> None:
    """Replace the file at `path`, whose folder is made where it is missing. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, text(catalog).encode())


def platform_of(
    facts: Mapping[str, str], machine: Mapping[str, str], device: Device | None = None
) -> Platform:
    """The platform by the facts of the training's interpreter (as a trace or `interpreter_facts`
    has them) and of the machine (`read_machine`). `device` is the one that the facts name, where it
    is left out."""
    where: Device = device or ("cuda" if facts.get("device", "").startswith("cuda") else "cpu")
    gpu = where == "cuda"
    threads = facts.get("threads", "")
    return Platform(
        torch=facts.get("torch", ""),
        device=where,
        device_name=facts.get("gpu-model", "") if gpu else machine.get("cpu-model", ""),
        python=facts.get("python", ""),
        threads=int(threads) if threads.isdecimal() and len(threads) < 6 else 0,
        isa=facts.get("cpu-isa", ""),
        driver=machine.get("driver", "") if gpu else "",
        cuda=facts.get("cuda", "") if gpu else "",
        cudnn=facts.get("cudnn", "") if gpu else "",
        system=machine.get("os", ""),
    )


def platform_key(platform: Platform) -> str:
    """The name of the platform's file in the cache: what decides about bits, readable, and a digest
    of it. Python is not part of it."""
    given = platform
    on = (
        (given.driver, given.cuda, given.cudnn)
        if given.device == "cuda"
        else (given.isa, f"{given.threads} threads")
    )
    parts = (given.torch, given.device, given.device_name, *on)
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:12]
    name = f"torch-{given.torch}-{given.device}-{given.device_name}"
    return f"{re.sub(r'[^A-Za-z0-9.+]+', '-', name)[:80]}-{digest}"


def cached_path(environment: Mapping[str, str], platform: Platform) -> Path | None:
    """Where the catalog of a platform is kept, `$XDG_CACHE_HOME/repro-gate/ops/KEY.json`; None
    where there is no home."""
    home = cache_folder(environment)
    return None if home is None else home / "ops" / f"{platform_key(platform)}.json"


def cached(environment: Mapping[str, str], platform: Platform) -> Path | None:
    """The catalog of a platform, if one was measured here."""
    path = cached_path(environment, platform)
    return path if path is not None and path.is_file() else None


def rows_of(
    catalog: Catalog, kernel: str, dtype: str = "", direction: str | None = None
) -> list[Row]:
    """The rows about one dispatched operator: `aten.index_put_.default`, or without its overload,
    or as a trace has it (`aten::index_put_`). In place or not is one kernel. No dtype, or no
    direction: any."""
    wanted = _in_place_or_not(kernel.replace("::", "."))
    return [
        row
        for row in catalog.rows
        if row.kernel and (wanted in (own := _in_place_or_not(row.kernel), own.rpartition(".")[0]))
        if dtype in ("", row.dtype) and direction in (None, row.direction)
    ]


@lru_cache(maxsize=20_000)
def _in_place_or_not(kernel: str) -> str:
    """`aten.index_put.default` for `aten.index_put_.default`."""
    return re.sub(r"_(?=\.|$)", "", kernel)


def schema_text() -> str:
    """The JSON Schema (2020-12) of a catalog, made from `Catalog`."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMAS_URL}/ops/schema.json",
        "title": "Repro Gate catalog of operators",
        "description": "What `repro-gate ops --json` writes. A part that was not measured is null. "
        "Readers ignore fields that they do not know: later versions of v1 add fields and take "
        "none away. Texts may stem from foreign code and must be escaped where printed.",
    }
    text = json.dumps({**head, **msgspec.json.schema(Catalog)}, indent=2) + "\n"
    return re.sub(r"\\n +", " ", text)  # docstrings go over several lines


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
