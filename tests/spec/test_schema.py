"""The schema: sound by itself, in step with the dataclasses, with the documentation and with the
example of the design."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from repro_gate._version import SCHEMAS_URL
from repro_gate.checks import ALL as CHECKS
from repro_gate.spec.loader import FILE_NAME, load_spec
from repro_gate.spec.schema import every_key, schema, schema_text

ROOT = Path(__file__).parents[2]
# not the 34 ids
KEYS = [
    (path, said)
    for path, said in every_key()
    if path[:2] != ("checklist", "severity") or len(path) == 2
]

# The example of design.md, its placeholders (…) filled in.
EXAMPLE = """\
version: 1
train:
  run: python train.py --seed {seed}   # any command for the shell, unmodified ({seed} is filled in); or `snippet: |` with inline Python
  working-directory: .
  steps: 50                # stop after this many optimizer steps; leave out to run to the end
  warmup: 5                # steps left out of the timing
  timeout: 20m             # for one run
  env: {WANDB_MODE: disabled}
random-state:
  seed: 42
determinism:
  compare: bitwise         # or {loss: 1.0e-6, weights: 1.0e-5}
  allow: []                # flags that are left off, each with a reason
capture:
  every: 1                 # steps between digests
  artifacts: [out/*.pt, out/metrics.json]
cost:
  max-percent: 30
code: {}
data:
  - {path: data/train.bin, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}
env:
  lockfile: requirements.lock
  image: ghcr.io/org/train@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
hardware:
  device: cuda             # or cpu (hides the GPUs); left out: whatever the training picks
  gpus: 1
  gpu-model: H100
checklist:
  profile: basic
  waive:
    - {check: env/image-digest, reason: bare-metal runner, until: "2027-06-30"}
"""


def subschemas(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [found for item in part for found in subschemas(item)]
    if not isinstance(part, dict):
        return []
    return [
        part,
        *(
            found
            for key, item in part.items()
            if key not in ("examples", "default")
            for found in subschemas(item)
        ),
    ]


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(dict(schema()))
    assert (
        schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema" and schema()["title"]
    )
    assert json.loads(schema_text()) == json.loads(json.dumps(schema()).replace(r"\\Z", "$"))


def test_the_example_of_the_design_is_accepted_by_the_schema_and_by_the_loader(
    tmp_path: Path,
) -> None:
    assert list(Draft202012Validator(dict(schema())).iter_errors(yaml.safe_load(EXAMPLE))) == []
    (tmp_path / "repro.yml").write_text(EXAMPLE)
    assert load_spec(tmp_path).hardware.gpu_model == "H100"


def test_every_mapping_refuses_unknown_keys() -> None:
    mappings = [part for part in subschemas(schema()) if part.get("type") == "object"]
    assert len(mappings) > 10
    assert all(part["additionalProperties"] is False for part in mappings)


def test_every_default_is_valid() -> None:
    for path, said in KEYS:
        validator = Draft202012Validator({**said, "$defs": schema()["$defs"]})
        assert "default" not in said or validator.is_valid(said["default"]), path


def keys_and_entries(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of every mapping and the entry of every list, wherever it stands; not what `if`,
    `then` and `not` say of keys again."""
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from keys_and_entries(item, f"{path}/{number}")
    elif isinstance(part, dict):
        found = {
            **part.get("properties", {}),
            **part.get("patternProperties", {}),
            **({"[]": part["items"]} if "items" in part else {}),
        }
        yield from ((f"{path}/{name}", child) for name, child in found.items())
        for name in part.keys() - {"examples", "default", "enum", "const", "if", "then", "not"}:
            yield from keys_and_entries(part[name], f"{path}/{name}")


EXPLAINED = dict(sorted(keys_and_entries(schema())))


@pytest.mark.parametrize("path", EXPLAINED)
def test_every_key_and_entry_of_the_whole_schema_is_explained_where_it_stands_with_examples_that_it_takes(
    path: str,
) -> None:
    said = EXPLAINED[path]
    assert isinstance(said["description"], str) and said["description"].endswith("."), said
    validator = Draft202012Validator({**said, "$defs": schema()["$defs"]})
    assert said["examples"] and [
        list(validator.iter_errors(example)) for example in said["examples"]
    ] == [[]] * len(said["examples"])


def test_the_walk_sees_every_key() -> None:
    assert len(EXPLAINED) > len(KEYS) + len(CHECKS)
    assert {
        r"/properties/train/properties/env/^[A-Za-z_][A-Za-z0-9_]*\Z",
        "/properties/data/[]",
    } <= EXPLAINED.keys()


def test_a_severity_says_what_its_check_is_about() -> None:
    severities = schema()["properties"]["checklist"]["properties"]["severity"]["properties"]
    assert list(severities) == [check.id for check in CHECKS]
    for check in CHECKS:
        assert severities[check.id]["description"].endswith(check.title), check.id


def test_the_catalog_entry_and_the_first_line_of_the_page_name_the_schema_by_its_id() -> None:
    text = (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8")
    (entry,) = (
        json.loads(block)
        for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    )
    # as SchemaStore's catalog has them, which refuses the word `schema`
    assert list(entry) == [
        "name",
        "description",
        "fileMatch",
        "url",
    ]
    assert entry["url"] == schema()["$id"] and entry["fileMatch"] == [FILE_NAME]
    assert "schema" not in (entry["name"] + entry["description"]).lower()
    assert f"# yaml-language-server: $schema={schema()['$id']}\n" in text


def test_the_address_of_the_schema_is_where_the_file_lies() -> None:
    assert schema()["$id"] == f"{SCHEMAS_URL}/spec/schema.json"
    below = SCHEMAS_URL.removeprefix("https://raw.githubusercontent.com/repro-gate/repro-gate/v1/")
    assert (ROOT / below / "spec/schema.json").read_text(encoding="utf-8") == schema_text()
    assert (ROOT / below / "report/schema.json").is_file()


def test_every_default_of_the_schema_is_the_default_of_the_dataclass(tmp_path: Path) -> None:
    bare: dict[str, Any] = {"version": 1, "train": {"run": "x"}}
    full: dict[str, Any] = {"version": 1, "train": {"run": "x"}}
    for path, said in KEYS:
        if "default" in said and len(path) == 1:
            full[path[0]] = full.get(path[0]) or json.loads(json.dumps(said["default"]))
        elif "default" in said and len(path) == 2:
            full[path[0]][path[1]] = said["default"]
    assert full["random-state"] == {"seed": 42} and full["train"]["timeout"] == "1h"
    (tmp_path / "bare.yml").write_text(json.dumps(bare))
    (tmp_path / "full.yml").write_text(json.dumps(full))
    assert dataclasses.replace(
        load_spec(tmp_path / "full.yml"), path=tmp_path / "bare.yml"
    ) == load_spec(tmp_path / "bare.yml")


def test_every_key_of_the_schema_stands_in_the_documentation() -> None:
    headings = re.findall(
        r"^#+ `(.+)`$", (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(headings) == sorted(".".join(path).replace(".[]", "[]") for path, _ in KEYS)


def test_the_documentation_names_every_default_and_every_flag() -> None:
    text = (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8")
    flags = schema()["$defs"]["allowed-flag"]["properties"]["flag"]["enum"]
    assert len(flags) == 17
    assert all(f"`{flag}`" in text for flag in flags)
    for path, said in KEYS:
        body = text.split(f" `{'.'.join(path).replace('.[]', '[]')}`\n", 1)[1].split("\n#", 1)[0]
        if isinstance(said.get("default"), (str, int, bool)):
            assert f"Default: `{json.dumps(said['default']).strip(chr(34))}`" in body, path


def test_the_yaml_blocks_of_the_documentation_load(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```yaml\n(.*?)^```",
        (ROOT / "docs/repro-yml.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert blocks
    for block in blocks:
        (tmp_path / "repro.yml").write_text(block)
        load_spec(tmp_path)
