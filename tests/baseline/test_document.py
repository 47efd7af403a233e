"""Claims about a config hash that somebody else wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from repro_gate.baseline.config_hash import Inputs, hash_inputs
from repro_gate.baseline.document import MAX_NAME, MAX_VALUE, made_again, to_json
from repro_gate.errors import UsageError
from repro_gate.report.document import ReportError, config_hash_of, validate
from repro_gate.report.schema import MAX_INPUTS, ConfigHashRow
from tests.support.config_hashes import LEAVES

SAMPLE = hash_inputs(
    {"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2}
)
ZEROS = "sha256:" + "0" * 64
DEEP: object = None
for _ in range(5_000):
    DEEP = [DEEP]


@given(LEAVES, LEAVES)
def test_a_config_hash_comes_back_whole_through_a_text(recipe: Inputs, platform: Inputs) -> None:
    made = hash_inputs(recipe, platform)
    document = json.loads(json.dumps(to_json(made), allow_nan=False, sort_keys=True))
    assert made_again(config_hash_of(validate(document, ConfigHashRow))) == made


@pytest.mark.parametrize(
    "changed",
    [
        {"recipe_inputs": {**SAMPLE.recipe_inputs, "code": "sha256:cd"}},
        {"recipe_inputs": {**SAMPLE.recipe_inputs, "more": None}},
        {"platform_inputs": {**SAMPLE.platform_inputs, "threads": "2"}},
        {"platform_inputs": {"threads": 2}},
        {"recipe_inputs": SAMPLE.platform_inputs, "platform_inputs": SAMPLE.recipe_inputs},
        {"recipe": ZEROS},
        {"platform": ZEROS},
        {"config_hash": ZEROS},
    ],
)
def test_a_config_hash_that_its_inputs_do_not_give_is_refused_in_one_line(
    changed: dict[str, Any],
) -> None:
    words = r"^config_hash\.\w+ is sha256:\w{64}, but what it is made of gives sha256:\w{64}$"
    with pytest.raises(UsageError, match=words) as caught:
        made_again(replace(SAMPLE, **changed))
    assert caught.value.reason_id == "config-hash/forged"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", [2**53]),
        ("seeds", [float("nan")]),
        ("code", "\ud800"),
        ("\ud800", None),
        ("a" * (MAX_NAME + 1), None),
        ("code", "a" * (MAX_VALUE + 1)),
        ("code", [None] * (MAX_VALUE + 1)),
        ("code", DEEP),
        ("\x1b[31m", DEEP),
    ],
)
def test_an_input_that_no_config_hash_is_made_of_is_refused_in_one_line(
    name: str, value: Any
) -> None:
    with pytest.raises(UsageError) as caught:
        made_again(replace(SAMPLE, recipe_inputs={name: value}))
    assert caught.value.reason_id == "config-hash/malformed"
    assert caught.value.message.isprintable() and len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("inputs", 1),
        ("inputs/recipe", []),
        ("inputs/recipe", {str(number): None for number in range(MAX_INPUTS + 1)}),
        ("config_hash", None),
        ("recipe", "sha256:ab"),
        ("recipe", "sha512:" + "0" * 64),
        ("recipe", f"{SAMPLE.recipe}\n"),
    ],
)
def test_what_is_no_config_hash_is_refused_in_one_line(place: str, value: object) -> None:
    document = to_json(SAMPLE)
    part, _, last = place.rpartition("/")
    (document[part] if part else document)[last] = value
    with pytest.raises(ReportError) as caught:
        validate(document, ConfigHashRow)
    assert caught.value.message.isprintable() and len(caught.value.message) < 300
