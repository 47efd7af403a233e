"""The JSON Schema of `repro.yml`: its text, and what it says of a key.
Standard library only, so that printing the
schema costs no import of a validator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from repro_gate.spec.errors import KeyPath

Schema = Mapping[str, Any]


def schema_text() -> str:
    """The schema as it is shipped, ready to print."""
    return files("repro_gate.spec").joinpath("schema.json").read_text(encoding="utf-8")


@cache
def schema() -> Schema:
    """The schema, parsed. `$`, the end of a text, is Python's `\\Z`: its `$` also matches before a
    line break. Callers do not change it."""
    loaded: dict[str, Any] = json.loads(re.sub(r'\$(?=[")])', r"\\\\Z", schema_text()))
    return loaded


def property_at(path: KeyPath) -> Schema | None:
    """What the schema says of the key at `path`, its `$ref` merged in under its own title and
    examples; None for an unknown key."""
    here: Schema = schema()
    for part in path:
        if isinstance(part, int):
            found = resolved(here).get("items")
        else:
            shape = mapping_shape(here)
            found = shape.get("properties", {}).get(part) or next(
                iter(shape.get("patternProperties", {}).values()), None
            )
        if not isinstance(found, dict):
            return None
        here = found
    return resolved(here)


def resolved(part: Schema) -> Schema:
    """The subschema with its `$ref` merged in; its own keywords win."""
    name = part.get("$ref")
    return {**schema()["$defs"][name.removeprefix("#/$defs/")], **part} if name else part


def mapping_shape(part: Schema) -> Schema:
    """The subschema itself, or where it is a choice, the branch that is a mapping."""
    whole = resolved(part)
    branches = [*whole.get("oneOf", ()), *whole.get("anyOf", ())]
    return (
        whole
        if "properties" in whole
        else next((resolved(b) for b in branches if "properties" in b), whole)
    )


def every_key(
    part: Schema | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """All keys that the schema knows, as (path, what it says); entries of lists stand under
    `[]`."""
    shape = mapping_shape(schema() if part is None else part)
    for name, child in shape.get("properties", {}).items():
        yield (*path, name), resolved(child)
        yield from every_key(child, (*path, name))
    if "items" in shape and "properties" in mapping_shape(shape["items"]):
        yield from every_key(shape["items"], (*path, "[]"))
