"""Claims about the config hash: anyone can make it again, order does not count, values stay apart,
and its self-check is linear."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given

from repro_gate.baseline import config_hash as module
from repro_gate.baseline.config_hash import (
    Inputs,
    InputValue,
    SelfCheck,
    hash_inputs,
    input_hash,
    plain,
    root_hash,
    self_checked,
)
from repro_gate.errors import UsageError
from tests.support.config_hashes import LEAVES, TEXT, VALUES

RECIPE: Inputs = {
    "code": "sha256:ab",
    "seeds": [42],
    "steps": 50,
    "flag/torch.backends.cudnn.benchmark": False,
    "lockfile": None,
}
PLATFORM: Inputs = {"python": "3.11.9", "threads": 2}
SAMPLE = hash_inputs(
    {"code": "sha256:ab", "seeds": [42], "steps": 50}, {"python": "3.11.9", "image": None}
)


def written(value: InputValue) -> bytes:
    return rfc8785.dumps(plain(value))


def test_the_hashes_of_version_1_never_change() -> None:
    assert (
        hash_inputs(RECIPE, PLATFORM).config_hash
        == "sha256:ece0638215122605000576c8017ccb81e29e4c7119f9c2c4d3dc93fbc11de4d9"
    )


@given(LEAVES, LEAVES)
def test_the_order_of_inputs_does_not_count_and_the_self_check_covers_each(
    recipe: Inputs, platform: Inputs
) -> None:
    backwards = [dict(reversed(list(inputs.items()))) for inputs in (recipe, platform)]
    made, again = hash_inputs(recipe, platform), hash_inputs(*backwards)
    assert made == again and list(made.recipe_inputs) == list(again.recipe_inputs)
    assert len({made.recipe, hash_inputs(recipe, recipe).platform, made.config_hash}) == 3
    count = len(recipe) + len(platform)
    assert self_checked(made).self_check == SelfCheck(True, count, count)


@given(LEAVES, TEXT, VALUES)
def test_an_input_that_is_added_or_has_another_value_moves_its_root_alone(
    inputs: Inputs, name: str, value: InputValue
) -> None:
    assume(name not in inputs or written(inputs[name]) != written(value))
    before, after = hash_inputs(inputs, PLATFORM), hash_inputs({**inputs, name: value}, PLATFORM)
    assert before.recipe != after.recipe and before.config_hash != after.config_hash
    assert before.platform == after.platform


def test_an_input_renamed_split_or_in_another_section_is_another() -> None:
    assert input_hash("a", "b") != input_hash("ab", "") != input_hash("b", "a")
    assert hash_inputs({"a": 1, "b": 2}, {}).recipe != hash_inputs({"a": 2, "b": 1}, {}).recipe
    assert root_hash("recipe", []) != root_hash("recipe", [input_hash("a", None)])
    many = {str(number): None for number in range(module.SECTION + 1)}
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


@given(VALUES)
def test_a_plain_value_can_be_written_and_comes_back_the_same(value: InputValue) -> None:
    found = plain(value)
    assert plain(json.loads(json.dumps(found, allow_nan=False))) == found
    rfc8785.dumps(found)


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


def test_a_config_hash_without_inputs_is_not_complete() -> None:
    found = self_checked(hash_inputs({}, {})).self_check
    assert found == SelfCheck(True, 0, 0) and not found.complete


@pytest.mark.parametrize("field", ["config_hash", "recipe", "platform"])
def test_a_config_hash_whose_hashes_are_not_its_own_is_not_stable(field: str) -> None:
    other: dict[str, Any] = {field: "sha256:" + "0" * 64}
    found = self_checked(replace(SAMPLE, **other)).self_check
    assert found is not None and not found.stable and not found.complete


def test_a_hash_that_leaves_out_an_input_or_a_section_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as blind:
        blind.setattr(
            module,
            "input_hash",
            lambda name, value: input_hash(name, None if name == "seeds" else value),
        )
        assert self_checked(
            hash_inputs(SAMPLE.recipe_inputs, SAMPLE.platform_inputs)
        ).self_check == SelfCheck(True, 5, 4)
    monkeypatch.setattr(module, "SECTION", 2)
    monkeypatch.setattr(module, "root_hash", lambda half, sections: root_hash(half, sections[:1]))
    assert self_checked(
        hash_inputs(SAMPLE.recipe_inputs, SAMPLE.platform_inputs)
    ).self_check == SelfCheck(True, 5, 4)


def test_the_self_check_hashes_each_input_twice_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = hash_inputs(
        {f"data/{number:05}": {"sha256": "a" * 64, "bytes": number} for number in range(1_000)},
        PLATFORM,
    )
    lengths: list[int] = []
    hashed = module._hash

    def counted(kind: str, content: bytes) -> bytes:
        lengths.append(len(content))
        return hashed(kind, content)

    monkeypatch.setattr(module, "_hash", counted)
    found = self_checked(made).self_check
    assert found == SelfCheck(True, 1_002, 1_002)
    assert len(lengths) < 6 * 1_002 and sum(lengths) < 1_002 * (32 * module.SECTION + 2_000)
