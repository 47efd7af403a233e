"""The published format of `report.json`, made from the records of the Report. `python -m
repro_gate.report.schema` writes `schema.json`; `document` writes and reads reports by it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from repro_gate._version import SCHEMAS_URL
from repro_gate.compare.model import about
from repro_gate.report.model import Report

PATH = Path(__file__).with_name("schema.json")


@dataclass(frozen=True, kw_only=True)
class Document(Report):
    """The whole of `report.json`."""

    schema: Annotated[
        Literal["repro-gate/report/v1"], about("Name and major version of this format.")
    ] = field()


def schema_text() -> str:
    """Return the JSON Schema (2020-12) of `report.json`, made from `Document`."""
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
    # the end of the text, in Python's words and in ECMAScript's
    return text.replace(r"\\Z", "$")


def _number_schema(kind: type) -> dict[str, Any]:
    """Return the schema of a number: NaN and infinities are the texts `nan`, `inf` and `-inf`."""
    made: dict[str, Any] = {"type": ["number", "string"], "pattern": "^(nan|inf|-inf)$"}
    return {**made, "minimum": 0} if kind.__name__ == "Amount" else made


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
