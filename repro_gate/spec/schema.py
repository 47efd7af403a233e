"""The JSON Schema of `repro.yml`: its text, and what it says of each key. Imports no validator, so
that printing the schema costs little."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

Schema = Mapping[str, Any]


def schema_text() -> str:
    """Return the schema as it is shipped, ready to print."""
    return files("repro_gate.spec").joinpath("schema.json").read_text(encoding="utf-8")


@cache
def schema() -> Schema:
    """Return the schema, parsed, each `$ref` replaced by what it refers to. `$`, the end of a text,
    is Python's `\\Z`: its `$` also matches before a line break. Callers do not change it."""
    parsed = json.loads(re.sub(r'\$(?=[")])', r"\\\\Z", schema_text()))
    inlined: Schema = _inlined(parsed, parsed["$defs"])
    return inlined


def _inlined(part: Any, definitions: Schema) -> Any:
    """Return a part of the schema; what a `$ref` refers to wins over the keywords next to it."""
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    own = {name: _inlined(child, definitions) for name, child in part.items()}
    if name := own.pop("$ref", ""):
        own |= _inlined(definitions[name.removeprefix("#/$defs/")], definitions)
    return own


def every_key(
    part: Schema | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield all keys that the schema knows, as (path, what it says); entries of lists stand under
    `[]`."""
    part = schema() if part is None else part
    for name, child in part.get("properties", {}).items():
        yield (*path, name), child
        yield from every_key(child, (*path, name))
    for branch in part.get("oneOf", ()):
        yield from every_key(branch, path)
    if "items" in part:
        yield from every_key(part["items"], (*path, "[]"))
