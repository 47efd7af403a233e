"""Claims about the config hash as JSON: it comes back whole, and nothing forged or corrupt is taken
for one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given

from repro_gate.baseline.config_hash import Inputs, hash_inputs
from repro_gate.baseline.document import MAX_INPUTS, MAX_VALUE, from_json, to_json
from repro_gate.errors import UsageError
from tests.support.config_hashes import LEAVES

SAMPLE = to_json(
    hash_inputs(
        {"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2}
    )
)
ZEROS = "sha256:" + "0" * 64
GONE = object()
DEEP: object = None
for _ in range(5_000):
    DEEP = [DEEP]


def edited(place: str, value: object) -> dict[str, Any]:
    """The sample with one value replaced or, if it is GONE, taken out."""
    document = copy.deepcopy(dict(SAMPLE))
    *path, last = place.split("/")
    part: Any = document
    for name in path:
        part = part[name]
    part.pop(last) if value is GONE else part.update({last: value})
    return document


@given(LEAVES, LEAVES)
def test_a_config_hash_comes_back_whole_through_a_text(recipe: Inputs, platform: Inputs) -> None:
    made = hash_inputs(recipe, platform)
    document = to_json(made)
    back = from_json(json.loads(json.dumps(document, allow_nan=False, sort_keys=True)))
    assert to_json(back) == document
    assert back == made


def test_inputs_stand_as_they_are_hashed() -> None:
    assert SAMPLE["inputs"]["recipe"] == {"code": "sha256:ab", "seeds": [42], "steps": None}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("inputs/recipe/code", "sha256:cd"),
        ("inputs/platform/threads", "2"),
        ("inputs/recipe/more", None),
        ("inputs/platform/python", GONE),
        ("recipe", ZEROS),
        ("platform", ZEROS),
        ("config_hash", ZEROS),
        ("inputs", dict(zip(("platform", "recipe"), SAMPLE["inputs"].values(), strict=True))),
    ],
)
def test_a_config_hash_that_its_inputs_do_not_give_is_refused_in_one_line(
    place: str, value: object
) -> None:
    with pytest.raises(
        UsageError,
        match=r"^config_hash\.\w+ is sha256:\w{64}, but what it is made of gives sha256:\w{64}$",
    ) as caught:
        from_json(edited(place, value))
    assert caught.value.reason_id == "config-hash/forged"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("inputs", GONE),
        ("inputs", 1),
        ("inputs/recipe", GONE),
        ("inputs/third", {}),
        ("inputs/\x1b[31m\n - at `$\n", {}),
        ("inputs/recipe", []),
        ("inputs/recipe/seeds", [2**53]),
        ("inputs/recipe/seeds", [float("nan")]),
        ("inputs/recipe/code", "\ud800"),
        ("inputs/recipe/\ud800", None),
        (f"inputs/recipe/{'a' * 9_000}", None),
        ("inputs/recipe/code", "a" * (MAX_VALUE + 1)),
        ("inputs/recipe/code", [None] * (MAX_VALUE + 1)),
        ("inputs/recipe/code", DEEP),
        ("inputs/recipe", {str(number): None for number in range(MAX_INPUTS + 1)}),
        ("config_hash", GONE),
        ("recipe", "sha256:ab"),
        ("recipe", "sha512:" + "0" * 64),
        ("recipe", f"{SAMPLE['recipe']}\n"),
    ],
)
def test_a_corrupt_config_hash_is_refused_in_one_line(place: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(edited(place, value))
    assert caught.value.reason_id == "config-hash/malformed" and caught.value.message.startswith(
        "config_hash"
    )
    assert caught.value.message.isprintable() and len(caught.value.message) < 300
