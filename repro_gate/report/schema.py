"""The published format of `report.json`, made from the records of the Report. `python -m
repro_gate.report.schema` writes `schema.json`; `document` writes and reads reports by it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from repro_gate._version import SCHEMAS_URL
from repro_gate.compare.model import about
from repro_gate.report.model import Report

PATH = Path(__file__).with_name("schema.json")
MAX_INPUTS = 20_000  # of one root of the config hash

Root = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Inputs = Annotated[Mapping[str, Any], Meta(max_length=MAX_INPUTS)]


class InputsRow(msgspec.Struct, frozen=True):
    """The inputs by root and name, each as it is hashed."""

    recipe: Annotated[Inputs, about("Inputs of the recipe, by name.")]
    platform: Annotated[Inputs, about("Inputs of the platform, by name.")]


class ConfigHashRow(msgspec.Struct, frozen=True):
    """One hash of everything that a rerun needs, its two roots, and the inputs under them."""

    config_hash: Annotated[Root, about("Root of recipe and platform.")]
    recipe: Annotated[Root, about("Root of code, data, lockfile, seed and flags.")]
    platform: Annotated[Root, about("Root of image, driver, CUDA, cuDNN, GPU and SM count.")]
    inputs: Annotated[
        InputsRow, about("Each input as it is hashed. Whole numbers from 2**53 on are text.")
    ]


@dataclass(frozen=True, kw_only=True)
class Document(Report):
    """The whole of `report.json`."""

    schema: Annotated[
        Literal["repro-gate/report/v1"], about("Name and major version of this format.")
    ] = field()
    config_hash: Annotated[
        ConfigHashRow | None, about("One hash of everything that a rerun needs.")
    ] = None  # type: ignore[assignment]


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
