"""Claims about the hashes: anyone can make them again, order does not count, and no kind can be taken for another."""

from __future__ import annotations

import hashlib
import json

from hypothesis import assume, given

from repro_gate.baseline.config_hash import Inputs, InputValue
from repro_gate.baseline.tree import hash_inputs, input_hash, root_hash
from tests.support.config_hashes import LEAVES, TEXT, VALUES, exactly

RECIPE: Inputs = {"code": "sha256:ab", "seeds": [42], "steps": 50, "flag/torch.backends.cudnn.benchmark": False, "lockfile": None}
PLATFORM: Inputs = {"python": "3.11.9", "threads": 2}


def test_the_hashes_can_be_made_with_nothing_but_sha256_and_the_page_that_describes_them() -> None:
    def hashed_input(text: str) -> bytes:
        return hashlib.sha256(b"repro-gate/input/v1\0" + text.encode()).digest()

    recipe = [
        hashed_input('["code","sha256:ab"]'),
        hashed_input('["flag/torch.backends.cudnn.benchmark",false]'),
        hashed_input('["lockfile",null]'),
        hashed_input('["seeds",[{"int":"42"}]]'),
        hashed_input('["steps",{"int":"50"}]'),
    ]
    platform = [hashed_input('["python","3.11.9"]'), hashed_input('["threads",{"int":"2"}]')]
    roots = [
        hashlib.sha256(b"repro-gate/recipe/v1\0" + b"".join(sorted(recipe))).digest(),
        hashlib.sha256(b"repro-gate/platform/v1\0" + b"".join(sorted(platform))).digest(),
    ]
    made = hash_inputs(RECIPE, PLATFORM)
    assert (made.recipe, made.platform) == tuple(f"sha256:{root.hex()}" for root in roots)
    assert made.config_hash == "sha256:" + hashlib.sha256(b"repro-gate/config/v1\0" + b"".join(roots)).hexdigest()


def test_the_hashes_of_version_1_never_change() -> None:
    assert hash_inputs(RECIPE, PLATFORM).config_hash == "sha256:0f8f6b2d8b5cc2c343d4aaaa3c000b14bcaf7f1a560f7bc120cc026a5985c615"


@given(LEAVES, LEAVES)
def test_the_order_in_which_inputs_come_does_not_count(recipe: Inputs, platform: Inputs) -> None:
    backwards = [dict(reversed(list(inputs.items()))) for inputs in (recipe, platform)]
    made, again = hash_inputs(recipe, platform), hash_inputs(*backwards)
    assert (made.config_hash, made.recipe, made.platform) == (again.config_hash, again.recipe, again.platform)
    assert json.dumps(list(made.recipe_inputs)) == json.dumps(list(again.recipe_inputs))


@given(LEAVES)
def test_the_same_inputs_have_another_root_as_recipe_than_as_platform(inputs: Inputs) -> None:
    made = hash_inputs(inputs, inputs)
    assert len({made.recipe, made.platform, made.config_hash}) == 3


@given(LEAVES, LEAVES)
def test_recipe_and_platform_cannot_be_exchanged(one: Inputs, other: Inputs) -> None:
    assume({name: exactly(value) for name, value in one.items()} != {name: exactly(value) for name, value in other.items()})
    assert hash_inputs(one, other).config_hash != hash_inputs(other, one).config_hash


@given(LEAVES, TEXT, VALUES)
def test_a_input_that_is_added_or_has_another_value_moves_its_root_alone(inputs: Inputs, name: str, value: InputValue) -> None:
    assume(name not in inputs or exactly(inputs[name]) != exactly(value))
    before, after = hash_inputs(inputs, PLATFORM), hash_inputs({**inputs, name: value}, PLATFORM)
    assert before.recipe != after.recipe and before.config_hash != after.config_hash
    assert before.platform == after.platform


def test_a_input_renamed_or_split_is_another() -> None:
    assert input_hash("a", "b") != input_hash("ab", "") != input_hash("b", "a")
    assert hash_inputs({"a": 1, "b": 2}, {}).recipe != hash_inputs({"a": 2, "b": 1}, {}).recipe
    assert root_hash("recipe", []) != root_hash("recipe", [input_hash("a", None)])
    assert hash_inputs({"x": {"int": "42"}}, {}).recipe != hash_inputs({"x": 42}, {}).recipe
