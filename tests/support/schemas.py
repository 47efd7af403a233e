"""The published formats of what the package writes, made from the types that write and read it.
`python -m tests.support.schemas` writes each `schema.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from repro_gate._version import SCHEMAS_URL
from repro_gate.report.model import Report

# room -> type, title and description
_FORMATS: dict[str, tuple[type, str, str]] = {
    "report": (
        Report,
        "Repro Gate report",
        (
            "What `repro-gate run --json` writes. A part that was not measured is null, "
            "never a made-up value. A list keeps its first entries up to its limit, and the totals "
            "beside it count everything. Readers ignore fields that they do not know: later versions "
            "of v1 add fields and take none away. All text may stem from the training code and must be "
            "escaped where it is printed."
        ),
    ),
}


def path_of(room: str) -> Path:
    """Return the file in a room's folder that is published and installed."""
    return Path(__file__).parents[2] / "repro_gate" / room / "schema.json"


def schema_text(room: str) -> str:
    """Return the JSON Schema (2020-12) of a room's format."""
    kind, title, description = _FORMATS[room]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMAS_URL}/{room}/schema.json",
        "title": title,
        "description": description,
    }
    made = msgspec.json.schema(kind, schema_hook=_number_schema)
    text = json.dumps({**head, **made}, indent=2, ensure_ascii=False) + "\n"
    text = re.sub(r"\\n +", " ", text)  # docstrings go over several lines
    # the end of the text, in Python's words and in ECMAScript's
    return text.replace(r"\\Z", "$")


def _number_schema(kind: type) -> dict[str, Any]:
    """Return the schema of a number: NaN and infinities are the texts `nan`, `inf` and `-inf`."""
    made: dict[str, Any] = {"type": ["number", "string"], "pattern": "^(nan|inf|-inf)$"}
    return {**made, "minimum": 0} if kind.__name__ == "Amount" else made


if __name__ == "__main__":
    for room in _FORMATS:
        path_of(room).write_text(schema_text(room), encoding="utf-8")
