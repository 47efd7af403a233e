"""Claims about the config hash."""

from __future__ import annotations

import math

import pytest
import rfc8785
from hypothesis import given

from repro_gate.baseline import config_hash as module
from repro_gate.baseline.config_hash import (
    Inputs,
    InputValue,
    hash_inputs,
    input_hash,
    plain,
)
from repro_gate.errors import UsageError
from tests.support.config_hashes import LEAVES, TEXT, VALUES

RECIPE: Inputs = {"code": "sha256:ab", "seeds": [42], "steps": 50, "lockfile": None}
RECIPE = {**RECIPE, "flag/torch.backends.cudnn.benchmark": False}


def written(value: InputValue) -> bytes:
    return rfc8785.dumps(plain(value))


def test_the_hashes_of_version_1_never_change() -> None:
    found = hash_inputs(RECIPE, {"python": "3.11.9", "threads": 2}).config_hash
    assert found == "sha256:d8f4711bacd896f5546f767c998e093daf3e31224cedc7fc551e5307176b8ff3"


@given(LEAVES, LEAVES)
def test_the_order_of_inputs_does_not_count_and_halves_stay_apart(
    recipe: Inputs, platform: Inputs
) -> None:
    backwards = [dict(reversed(list(inputs.items()))) for inputs in (recipe, platform)]
    made, again = hash_inputs(recipe, platform), hash_inputs(*backwards)
    assert made == again and list(made.recipe_inputs) == list(again.recipe_inputs)
    assert len({made.recipe, hash_inputs(recipe, recipe).platform, made.config_hash}) == 3


@given(LEAVES, LEAVES, TEXT, VALUES)
def test_each_input_counts(recipe: Inputs, platform: Inputs, more: str, value: InputValue) -> None:
    """Another value in any one place, or one input less or more, is another config hash, in that
    half."""
    made = hash_inputs(recipe, platform)
    for half, inputs in (("recipe", recipe), ("platform", platform)):
        others = [{key: inputs[key] for key in inputs if key != name} for name in inputs]
        others += [
            {**inputs, name: value}
            for name in {*inputs, more}
            if name not in inputs or written(inputs[name]) != written(value)
        ]
        for other in others:
            changed = hash_inputs(**{"recipe": recipe, "platform": platform, half: other})
            kept = "platform" if half == "recipe" else "recipe"
            assert changed.config_hash != made.config_hash
            assert getattr(changed, half) != getattr(made, half)
            assert getattr(changed, kept) == getattr(made, kept)


def test_an_input_renamed_or_split_is_another() -> None:
    assert input_hash("a", "b") != input_hash("ab", "") != input_hash("b", "a")
    assert hash_inputs({"a": 1, "b": 2}, {}).recipe != hash_inputs({"a": 2, "b": 1}, {}).recipe
    assert hash_inputs({}, {}).recipe != hash_inputs({"a": None}, {}).recipe
    many = {str(number): None for number in range(101)}
    assert len({hash_inputs({**many, name: 1}, {}).recipe for name in many}) == len(many)


@pytest.mark.parametrize(
    "values",
    [
        (1, "1", True, [1], {"1": None}),
        (0, False, None, "", [], {}),
        (2**53, 2**53 + 1, 2**53 - 1),
        (2**64, 2**64 + 1),
        (math.inf, -math.inf, math.nan, 1.5),
        ("\u00e9", "e\u0301"),  # NFC and NFD
        ("\udcff", "\xff"),
        (["a", "b"], ["b", "a"], ["ab"]),
        ("\r\n", "\n"),
    ],
    ids=lambda values: repr(values[0]),
)
def test_what_json_or_unicode_would_fold_stays_apart(values: tuple[InputValue, ...]) -> None:
    assert len({written(value) for value in values}) == len(values)


def test_a_value_nested_too_deep_is_refused_and_one_at_the_limit_is_hashed() -> None:
    deep: InputValue = None
    for _ in range(module.MAX_DEPTH - 1):
        deep = [deep]
    plain(deep)
    with pytest.raises(ValueError, match="nested deeper than 16 levels"):
        plain([deep])
    with pytest.raises(ValueError, match="bytes is no value of JSON"):
        plain([b"x"])


def test_two_names_that_become_one_are_refused() -> None:
    with pytest.raises(UsageError, match="two inputs of the config hash have one name"):
        hash_inputs({"data/\udcff": 1, "data/\\udcff": 2}, {})
