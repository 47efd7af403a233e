"""The schema: sound by itself, in step with the dataclasses and with the documentation."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from repro_gate._version import SCHEMAS_URL
from repro_gate.checks import ALL as CHECKS
from repro_gate.spec.loader import FILE_NAME, load_spec
from repro_gate.spec.schema import schema as with_references


def every_key(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all keys that the schema knows, as (path, what it says); entries of lists stand under
    `[]`."""
    for name, child in part.get("properties", {}).items():
        yield (*path, name), child
        yield from every_key(child, (*path, name))
    for branch in part.get("oneOf", ()):
        yield from every_key(branch, path)
    if "items" in part:
        yield from every_key(part["items"], (*path, "[]"))


def inlined(part: Any, definitions: Any) -> Any:
    """A part of the schema, each `$ref` replaced by what it refers to."""
    if isinstance(part, list):
        return [inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    own = {name: inlined(child, definitions) for name, child in part.items()}
    if name := own.pop("$ref", ""):
        own |= inlined(definitions[name.removeprefix("#/$defs/")], definitions)
    return own


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = inlined(with_references(), with_references()["$defs"])
    return found


ROOT = Path(__file__).parents[2]
# not the 34 ids
KEYS = [
    (path, said)
    for path, said in every_key(schema())
    if path[:2] != ("checklist", "severity") or len(path) == 2
]


def parts(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping of the schema by its path; not what `if`, `then` and `not` say of keys again."""
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from parts(item, f"{path}/{number}")
    elif isinstance(part, dict):
        yield path, part
        for name in part.keys() - {"examples", "default", "enum", "const", "if", "then", "not"}:
            yield from parts(part[name], f"{path}/{name}")


PARTS = dict(sorted(parts(schema())))
# a key of a mapping, or the entry of a list
EXPLAINED = {
    path: part
    for path, part in PARTS.items()
    if re.search(r"/(properties|patternProperties)/[^/]+$|/items$|/severity/properties/", path)
}


def test_the_schema_is_valid_refuses_unknown_keys_and_explains_every_key_with_examples() -> None:
    Draft202012Validator.check_schema(dict(schema()))
    mappings = [part for part in PARTS.values() if part.get("type") == "object"]
    assert len(mappings) > 10
    assert all(part["additionalProperties"] is False for part in mappings)
    for path, said in EXPLAINED.items():
        assert isinstance(said["description"], str) and said["description"].endswith("."), path
        validator = Draft202012Validator(said)
        assert said["examples"] and all(map(validator.is_valid, said["examples"])), path
        assert "default" not in said or validator.is_valid(said["default"]), path
    # the walk sees every key
    assert len(EXPLAINED) > len(KEYS) + len(CHECKS)
    variable = r"/properties/train/properties/env/patternProperties/^[A-Za-z_][A-Za-z0-9_]*\Z"
    assert {variable, "/properties/data/items"} <= EXPLAINED.keys()
    severities = schema()["properties"]["checklist"]["properties"]["severity"]["properties"]
    assert list(severities) == [check.id for check in CHECKS]
    for check in CHECKS:
        assert severities[check.id]["description"].endswith(check.title), check.id


def test_the_schema_lies_at_its_id_which_the_catalog_entry_and_the_page_name() -> None:
    text = (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    entry = json.loads(block)
    # as SchemaStore's catalog has them
    assert list(entry) == ["name", "description", "fileMatch", "url"]
    assert entry["url"] == schema()["$id"] == f"{SCHEMAS_URL}/spec/schema.json"
    assert entry["fileMatch"] == [FILE_NAME]
    assert f"# yaml-language-server: $schema={schema()['$id']}\n" in text
    below = SCHEMAS_URL.removeprefix("https://raw.githubusercontent.com/repro-gate/repro-gate/v1/")
    for room in ("spec", "report"):
        assert (ROOT / below / room / "schema.json").is_file()


def test_every_default_of_the_schema_is_the_default_of_the_dataclass(tmp_path: Path) -> None:
    full: dict[str, Any] = {"version": 1, "train": {"run": "x"}}
    (tmp_path / "bare.yml").write_text(json.dumps(full))
    for path, said in KEYS:
        if "default" in said and len(path) == 1:
            full[path[0]] = full.get(path[0]) or json.loads(json.dumps(said["default"]))
        elif "default" in said and len(path) == 2:
            full[path[0]][path[1]] = said["default"]
    assert full["random-state"] == {"seed": 42} and full["train"]["timeout"] == "1h"
    (tmp_path / "full.yml").write_text(json.dumps(full))
    bare, found = (load_spec(tmp_path / f"{name}.yml") for name in ("bare", "full"))
    assert dataclasses.replace(found, path=bare.path) == bare


def test_the_documentation_names_every_key_and_its_blocks_load(tmp_path: Path) -> None:
    text = (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8")
    names = [".".join(path).replace(".[]", "[]") for path, _ in KEYS]
    assert sorted(re.findall(r"^#+ `(.+)`$", text, re.MULTILINE)) == sorted(names)
    flags = schema()["$defs"]["allowed-flag"]["properties"]["flag"]["enum"]
    assert len(flags) == 22
    assert all(f"`{flag}`" in text for flag in flags)
    for name, (_, said) in zip(names, KEYS, strict=True):
        body = text.split(f" `{name}`\n", 1)[1].split("\n#", 1)[0]
        if isinstance(said.get("default"), (str, int, bool)):
            assert f"Default: `{json.dumps(said['default']).strip(chr(34))}`" in body, name
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "repro.yml").write_text(block)
        load_spec(tmp_path)
        document = json.loads(json.dumps(yaml.safe_load(block), default=str))  # dates are texts
        assert list(Draft202012Validator(dict(schema())).iter_errors(document)) == [], block
