"""The published format of `report.json`: each field's type, bounds and description. `python -m
repro_gate.report.schema` writes `schema.json` from it; `document` writes and reads reports by
it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from repro_gate._version import SCHEMAS_URL
from repro_gate.compare.model import GrowthPoint, HeatMap, Kind, TimedArm, Value
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report.model import (
    Amount,
    BaseFinding,
    Commit,
    Count,
    Names,
    Number,
    Origin,
    Reason,
    RunSummary,
    Step,
    Subject,
    about,
)

SCHEMA_ID = "repro-gate/report/v1"
PATH = Path(__file__).with_name("schema.json")
MAX_INPUTS = 20_000  # of one root of the config hash

Losses = Annotated[
    tuple[tuple[Step, Number, Number], ...],
    about("Step, loss of the first run, loss of the second.", max_length=10_000),
]
Digest = Annotated[str, about("16 bytes of SHA-256 as hex digits.", pattern=r"^[0-9a-f]{32}\Z")]
Root = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Interval = tuple[Number, Number]


class _Row(msgspec.Struct, frozen=True):
    """One object of the document. Fields that it does not name are let through: a later version may
    have added them."""


class DivergenceRow(_Row, frozen=True, kw_only=True):
    """One recorded quantity in which two runs differ, and how far."""

    step: Annotated[Step, about("Optimizer step, from 0; -1 is state before the first step.")]
    kind: Annotated[Kind, about("What kind of quantity it is.")]
    name: Annotated[
        str, about("The name that a person knows: `blocks.3.attn.weight`. Untrusted text.")
    ]
    process: Annotated[
        str, about("The traced process, and thread in it: `main`, `rank0`, `main/Thread-1`, …")
    ] = "main"
    dtype: Annotated[str | None, about("Type of the elements.")] = None
    shape: Annotated[tuple[Count, ...] | None, about("Size of each dimension.")] = None
    values: Annotated[
        tuple[Value, Value] | None,
        about("Both values, where they are short: numbers, or untrusted text."),
    ] = None
    detail: Annotated[str, about("What a digest cannot say: `missing in run 2`. May be empty.")] = (
        ""
    )
    max_abs: Annotated[Number | None, about("Largest absolute difference of two elements.")] = None
    max_ulp: Annotated[
        Count | None,
        about("Largest number of representable values of the dtype between two elements."),
    ] = None
    l2: Annotated[Number | None, about("L2 norm of the difference.")] = None
    relative_l2: Annotated[
        Number | None, about("L2 norm of the difference over that of the first run's tensor.")
    ] = None


class TallyRow(_Row, frozen=True):
    """Counts of one kind of quantity."""

    tensors: Annotated[Count, about("Compared.")]
    differing: Annotated[Count, about("Differing at any step.")]


class _Tallies(_Row, frozen=True, kw_only=True):
    identical: Annotated[
        bool, about("Whether every compared quantity is bitwise identical in both runs.")
    ]
    steps: Annotated[Count, about("Optimizer steps compared.")]
    tensors: Annotated[Count, about("Distinct named quantities compared, of all kinds.")]
    differing: Annotated[Count, about("How many of `tensors` differ at any step.")]
    differing_steps: Annotated[Count, about("Optimizer steps in which something differs.")] = 0
    first_divergence: Annotated[
        DivergenceRow | None,
        about("The earliest difference, in order of execution; null where there is none."),
    ]


class SeedRow(_Tallies, frozen=True, kw_only=True):
    """The answer for one seed."""

    seed: Annotated[int, about("The seed.")]
    runs: Annotated[Count, about("Runs with the flags on and this seed that were compared.")] = 2
    failed: Annotated[
        Count,
        about(
            "Further ones that ended badly, but for a varied run that fails because of what was "
            "varied."
        ),
    ] = 0


class ComparisonRow(_Tallies, frozen=True, kw_only=True):
    """Two runs compared, as `repro-gate compare --json` writes it."""

    by_kind: Annotated[Mapping[Kind, TallyRow], about("Counts for each kind of quantity.")] = {}
    weights: Annotated[
        tuple[DivergenceRow, ...],
        about("Final distances of what differs, largest first.", max_length=1_000),
    ] = ()
    losses: Losses = ()
    heat_map: Annotated[
        HeatMap | None,
        about("Where the two runs differ, modules by steps; null where nothing was traced."),
    ] = None
    growth: Annotated[
        tuple[GrowthPoint, ...],
        about("The steps at which the distance was measured.", max_length=200),
    ] = ()


class StepRow(_Row, frozen=True):
    """One step at which something differs."""

    step: Annotated[Step, about("Optimizer step; -1 before the first.")]
    differing: Annotated[Count, about("Quantities that differ at this step.")]


class NonFiniteRow(_Row, frozen=True):
    """One loss that is NaN or infinite."""

    step: Annotated[Step, about("Optimizer step.")]
    value: Annotated[Literal["nan", "inf", "-inf"], about("The loss.")]


class ToleranceRow(_Row, frozen=True):
    """The tolerance that the spec asks for."""

    loss: Annotated[float, about("Largest absolute difference of a loss that passes.", ge=0)]
    weights: Annotated[
        float, about("Largest absolute difference of a final weight that passes.", ge=0)
    ]


class DeterminismRow(ComparisonRow, frozen=True, kw_only=True):
    """The two runs with the flags on, for the first seed that diverged, else for the first seed."""

    determinism_settings: Annotated[
        Mapping[str, Any], about("Flags and variables as read back inside the training process.")
    ]
    runs: Annotated[Count, about("Runs with the flags on and this seed that were compared.")]
    failed: Annotated[
        Count,
        about(
            "Further ones that ended badly, but for a varied run that fails because of what was "
            "varied."
        ),
    ] = 0
    bound_pct: Annotated[
        Amount | None,
        about("Equal runs exclude faults that show in more percent of runs, at 95 %; else null."),
    ] = None
    seed: Annotated[int | None, about("The seed that these figures are about.")] = None
    seeds: Annotated[
        tuple[SeedRow, ...],
        about("The answer for each seed of `random-state.seeds`.", max_length=1_000),
    ] = ()
    by_step: Annotated[
        tuple[StepRow, ...],
        about("The steps at which something differs, in order", max_length=10_000),
    ] = ()
    non_finite: Annotated[
        tuple[NonFiniteRow, ...], about("Losses that are NaN or infinite.", max_length=1_000)
    ] = ()
    tolerance: Annotated[
        ToleranceRow | None, about("What the spec tolerates; null where it asks for equal bits.")
    ] = None


class NoiseFloorRow(_Row, frozen=True, kw_only=True):
    """How far two runs with one seed drift apart without the flags."""

    loss_gap: Annotated[
        Number | None, about("Largest absolute difference of the losses of one step.")
    ]
    weight_l2: Annotated[
        Number | None, about("L2 norm of the difference of all final parameters as one vector.")
    ]
    identical: Annotated[
        bool, about("True: this workload is bitwise identical here without the flags.")
    ] = False
    weight_relative_l2: Annotated[
        Number | None, about("`weight_l2` over the L2 norm of the first run's parameters.")
    ] = None
    first_step: Annotated[Step | None, about("The step at which they first diverge.")] = None
    first_divergence: Annotated[
        DivergenceRow | None, about("The earliest difference; null where there is none.")
    ] = None
    reproducible_by: Annotated[
        str,
        about("The one variable shown to make the first difference go away (`PYTHONHASHSEED`)."),
    ] = ""
    losses: Losses = ()
    heat_map: Annotated[HeatMap | None, about("Where the two runs differ, modules by steps.")] = (
        None
    )


class CostRow(_Row, frozen=True, kw_only=True):
    """What the flags cost, from interleaved runs."""

    determinism_cost_pct: Annotated[
        Number, about("How much slower a step is with the flags, in percent; negative is faster.")
    ]
    ci95: Annotated[
        Interval, about("95 % interval of `determinism_cost_pct`, in percent: low, high.")
    ]
    deterministic_step_ms: Annotated[Amount, about("Step time with the flags on, in milliseconds.")]
    default_step_ms: Annotated[Amount, about("Step time with the flags off, in milliseconds.")]
    timed_steps: Annotated[
        Count, about("Steps of one arm that entered the figure, warm-up left out.")
    ] = 0
    memory_cost_pct: Annotated[
        Number | None, about("How much more peak memory the flags need, in percent.")
    ] = None
    memory_ci95: Annotated[
        Interval | None, about("95 % interval of `memory_cost_pct`, in percent.")
    ] = None
    deterministic_peak_bytes: Annotated[
        Count | None, about("Peak memory with the flags on, in bytes.")
    ] = None
    default_peak_bytes: Annotated[
        Count | None, about("Peak memory with the flags off, in bytes.")
    ] = None
    suspicious: Annotated[
        str | None, about("Why the figure is more likely a mistake of measurement.")
    ] = None
    pairs: Annotated[Count, about("Runs of each arm that entered the figure.")] = 2
    max_percent: Annotated[
        Number | None, about("The budget, `cost.max-percent` of the spec, in percent.")
    ] = None


class CheckRow(_Row, frozen=True, kw_only=True):
    """One check and what it found."""

    id: Annotated[str, about("Stable name: `category/name`.")]
    category: Annotated[
        Literal["code", "data", "env", "random-state", "hardware"], about("One of five.")
    ]
    status: Annotated[Literal["pass", "warn", "fail", "skip", "waived"], about("What came of it.")]
    message: Annotated[str, about("One sentence.")]
    evidence: Annotated[
        tuple[str, ...], about("`path:line`, or values that were read.", max_length=500)
    ] = ()
    remedy: Annotated[str, about("What to do; may be empty.")] = ""


class InputsRow(_Row, frozen=True):
    """The inputs by root and name, each as it is hashed."""

    recipe: Annotated[
        Mapping[str, Any], about("Inputs of the recipe, by name.", max_length=MAX_INPUTS)
    ]
    platform: Annotated[
        Mapping[str, Any], about("Inputs of the platform, by name.", max_length=MAX_INPUTS)
    ]


class ConfigHashRow(_Row, frozen=True):
    """One hash of everything that a rerun needs, its two roots, and the inputs under them."""

    config_hash: Annotated[Root, about("Root of recipe and platform.")]
    recipe: Annotated[Root, about("Root of code, data, lockfile, seed and flags.")]
    platform: Annotated[Root, about("Root of image, driver, CUDA, cuDNN, GPU and SM count.")]
    inputs: Annotated[
        InputsRow, about("Each input as it is hashed. Whole numbers from 2**53 on are text.")
    ]


class ChangedInputRow(_Row, frozen=True):
    """One input in which two config hashes differ."""

    root: Annotated[Literal["recipe", "platform"], about("The root that the input belongs to.")]
    name: Annotated[str, about("Name of the input, such as `data/train.bin`. Untrusted text.")]
    before: Annotated[
        str | None, about("The value before, as text; null where the input was not there.")
    ]
    after: Annotated[str | None, about("The value after, as text; null where the input is gone.")]


ChangedInputs = Annotated[
    tuple[ChangedInputRow, ...],
    about("Inputs in which the two config hashes differ.", max_length=1_000),
]


class SpeedRow(_Row, frozen=True, kw_only=True):
    """How much slower a step of one arm is now than before."""

    arm: Annotated[TimedArm, about("With the flags, or without.")]
    slower_pct: Annotated[Number, about("In percent of the step time before; negative is faster.")]
    ci95: Annotated[Interval, about("95 % interval of `slower_pct`: low, high.")]
    runs: Annotated[Count, about("Runs of either side that entered it.")]


class BaselineRow(_Row, frozen=True, kw_only=True):
    """This gate run compared with `repro.baseline.yml`."""

    status: Annotated[
        Literal["unchanged", "no-op", "changed", "drift", "new-platform"],
        about(
            "Same inputs and results; other inputs, same results; both differ; same inputs, other "
            "results; nothing recorded here."
        ),
    ]
    message: Annotated[str, about("One sentence.")]
    changed_inputs: ChangedInputs = ()
    unlike: Annotated[
        Names, about("Results that differ: `losses`, `weights`, `optimizer`, `artifact out/a.pt`.")
    ] = ()
    loss_gap: Annotated[
        Number | None, about("Largest absolute difference of the losses of one recorded step.")
    ] = None
    outside: Annotated[
        Names, about("Facts outside the inputs that differ: `name: before -> after`.")
    ] = ()
    recorded: Annotated[
        str, about("When the baseline's entry was written: UTC, ISO 8601; may be empty.")
    ] = ""
    remedy: Annotated[str, about("What to do; may be empty.")] = ""
    unknown_recipe: Annotated[
        bool, about("Of a new platform: no other platform has this recipe either.")
    ] = False
    speed: Annotated[
        tuple[SpeedRow, ...],
        about("How step times have changed since the entry was recorded.", max_length=2),
    ] = ()


class AgainstRow(_Row, frozen=True, kw_only=True):
    """This gate run compared with another ref, gated in the same call."""

    ref: Annotated[str, about("The ref as it was named. Untrusted text.")]
    commit: Annotated[Commit, about("Its commit, 40 (or 64) hex digits.")]
    status: Annotated[
        Literal["unchanged", "no-op", "changed", "inconclusive"],
        about("As beside a baseline; or no answer."),
    ]
    message: Annotated[str, about("One sentence.")]
    changed_inputs: ChangedInputs = ()
    first_divergence: Annotated[
        DivergenceRow | None, about("The earliest difference from the other ref, else null.")
    ] = None
    loss_gap: Annotated[
        Number | None, about("Largest absolute difference of the losses of one step.")
    ] = None
    relation: Annotated[
        Literal["identical", "within-noise", "beyond-noise", ""],
        about(
            "Bitwise identical, or different beside the noise floor of the other ref; empty where "
            "that was not measured."
        ),
    ] = ""
    times_noise: Annotated[
        Number | None, about("The loss gap over that of the other ref's noise floor.")
    ] = None
    speed: Annotated[
        tuple[SpeedRow, ...], about("What the change does to the time of a step.", max_length=2)
    ] = ()


class FingerprintRow(_Row, frozen=True):
    """Digests of the first deterministic run, by which `repro-gate compare` compares two
    reports."""

    seed: Annotated[int, about("The run's seed.")]
    by_step: Annotated[
        tuple[tuple[Step, Digest], ...],
        about("Step, and digest of everything recorded in it.", max_length=10_000),
    ]
    by_kind: Annotated[Mapping[Kind, Digest], about("All steps of each kind.")]
    digest: Annotated[
        str,
        about(
            "What digested the tensors: `xxh3-128`, or `sha256-128` without xxhash.", max_length=100
        ),
    ] = ""


class Document(_Row, frozen=True, kw_only=True):
    """The whole of `report.json`."""

    schema: Annotated[
        Literal["repro-gate/report/v1"], about("Name and major version of this format.")
    ]
    verdict: Annotated[
        Literal["pass", "fail", "inconclusive"], about("The answer: exit codes 0, 1 and 3.")
    ]
    reasons: Annotated[
        tuple[Reason, ...],
        about("What led to the verdict, most important first.", max_length=1_000),
    ]
    notes: Annotated[
        tuple[Reason, ...],
        about("What is worth knowing and does not change the verdict.", max_length=1_000),
    ]
    determinism: Annotated[DeterminismRow | None, about("The two runs with the flags on.")]
    diagnosis: Annotated[
        Diagnosis | None,
        about("Why the runs diverge; null where they do not, and where it was not looked into."),
    ]
    noise_floor: Annotated[
        NoiseFloorRow | None, about("How far two runs with one seed drift apart without the flags.")
    ]
    cost: Annotated[CostRow | None, about("What the flags cost, from interleaved runs.")]
    checklist: Annotated[
        tuple[CheckRow, ...], about("What was verified besides.", max_length=1_000)
    ]
    config_hash: Annotated[
        ConfigHashRow | None, about("One hash of everything that a rerun needs.")
    ]
    runs: Annotated[
        tuple[RunSummary, ...],
        about("Every execution of the training command, in order.", max_length=1_000),
    ]
    subject: Annotated[Subject, about("What was gated.")]
    reproduce: Annotated[
        str, about("One shell command that shows the finding again on a person's own machine.")
    ]
    tool_version: Annotated[str, about("Version of repro-gate.")]
    started: Annotated[str, about("When the gate started: UTC, ISO 8601.")]
    seconds: Annotated[Amount, about("Wall time of the whole gate, in seconds.")]
    baseline: Annotated[
        BaselineRow | None,
        about("Compared with `repro.baseline.yml`; null where nothing is compared."),
    ] = None
    against: Annotated[
        AgainstRow | None, about("Compared with another ref; null where none was named.")
    ] = None
    base: Annotated[
        BaseFinding | None, about("What the change weakens; null where no base is known.")
    ] = None
    fingerprint: Annotated[
        FingerprintRow | None, about("Digests of the first deterministic run.")
    ] = None
    origin: Annotated[
        Origin | None, about("The workflow run that made this report; null outside a workflow.")
    ] = None


def schema_text() -> str:
    """The JSON Schema (2020-12) of `report.json`, made from `Document`."""
    made = msgspec.json.schema(Document, schema_hook=_number_schema)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMAS_URL}/report/schema.json",
        "title": "Repro Gate report",
        "description": "What `repro-gate run --json` writes. A part that was not measured is null, "
        "never a made-up value. A list keeps its first entries up to its limit, and the totals "
        "beside it count everything. Readers ignore fields that they do not know: later versions "
        "of v1 add fields and take none away. All text may stem from the training code and must be "
        "escaped where it is printed.",
    }
    text = json.dumps({**head, **made}, indent=2, ensure_ascii=False) + "\n"
    text = re.sub(r"\\n +", " ", text)  # docstrings go over several lines
    return text.replace(r"\\Z", "$")  # the end of the text, in Python's words and in ECMAScript's


def _number_schema(kind: type) -> dict[str, Any]:
    """NaN and infinities are the texts `nan`, `inf` and `-inf`."""
    made: dict[str, Any] = {"type": ["number", "string"], "pattern": "^(nan|inf|-inf)$"}
    return {**made, "minimum": 0} if kind.__name__ == "Amount" else made


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
