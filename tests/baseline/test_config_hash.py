"""Claims about the config hash, and about one that somebody else wrote."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from msgspec.structs import replace

from repro_gate.baseline.config_hash import (
    MAX_DEPTH,
    ChangedInput,
    Inputs,
    InputValue,
    RootInputs,
    changed_inputs,
    hash_inputs,
    hashable,
    input_text,
    made_again,
    tree_lines,
)
from repro_gate.errors import UsageError
from tests.support.config_hashes import LEAVES, TEXT, VALUES

RECIPE: Inputs = {"code": "sha256:ab", "seeds": [42], "steps": 50, "lockfile": None}
RECIPE = {**RECIPE, "flag/torch.backends.cudnn.benchmark": False}


def written(value: InputValue) -> bytes:
    return rfc8785.dumps(hashable(value))


def test_the_hashes_of_version_1_never_change_and_no_two_inputs_are_folded() -> None:
    assert (
        hash_inputs(RECIPE, {"python": "3.11.9", "threads": 2}).config_hash
        == "sha256:d8f4711bacd896f5546f767c998e093daf3e31224cedc7fc551e5307176b8ff3"
    )
    pairs = {"a": "b"}, {"ab": ""}, {"b": "a"}
    assert len({hash_inputs(pair, {}).recipe for pair in pairs}) == 3
    assert hash_inputs({"a": 1, "b": 2}, {}).recipe != hash_inputs({"a": 2, "b": 1}, {}).recipe
    assert hash_inputs({}, {}).recipe != hash_inputs({"a": None}, {}).recipe
    for values in (
        (1, "1", True, [1], {"1": None}),
        (0, False, None, "", [], {}),
        (2**53, 2**53 + 1, 2**53 - 1),
        (2**64, 2**64 + 1),
        (math.inf, -math.inf, math.nan, 1.5),
        ("\u00e9", "e\u0301"),  # NFC and NFD
        ("\udcff", "\xff"),
        (["a", "b"], ["b", "a"], ["ab"]),
        ("\r\n", "\n"),
    ):
        assert len({written(value) for value in values}) == len(values)
    with pytest.raises(UsageError) as refused:
        hash_inputs({"data/\udcff": 1, "data/\\udcff": 2}, {})
    assert refused.value.reason_id == "config-hash/malformed"


@given(LEAVES, LEAVES)
def test_the_order_of_inputs_does_not_count(recipe: Inputs, platform: Inputs) -> None:
    backwards = [dict(reversed(list(inputs.items()))) for inputs in (recipe, platform)]
    made, again = hash_inputs(recipe, platform), hash_inputs(*backwards)
    assert made == again and list(made.inputs.recipe) == list(again.inputs.recipe)
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


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels - 1):
        value = [value]
    return value


# What two of them differ in, and how one is printed

SMALL: Inputs = {"code": "sha256:ab", "seeds": [42], "steps": None}
MADE = hash_inputs(SMALL, {"python": "3.11.9", "threads": 2})


def test_the_inputs_that_changed_are_named_and_never_look_the_same() -> None:
    recipe: Inputs = {"code": "sha256:cd", "seeds": [42], "data/x": {"sha256": "ff", "bytes": 1}}
    after = hash_inputs(recipe, {"python": "3.12.1", "threads": 2})
    moves = changed_inputs(MADE, after)
    assert moves == (
        ChangedInput("recipe", "code", "sha256:ab", "sha256:cd"),
        ChangedInput("recipe", "data/x", None, '{"bytes": 1, "sha256": "ff"}'),
        ChangedInput("recipe", "steps", "null", None),
        ChangedInput("platform", "python", "3.11.9", "3.12.1"),
    )
    assert changed_inputs(MADE, MADE) == ()
    for before, after in (
        (1, "1"),
        (1, True),
        (None, "null"),
        ("", None),
        ("a", "a "),
        ([1], [1.5]),
        (2**53, 2**53 + 1),
    ):
        (move,) = changed_inputs(hash_inputs({"x": before}, {}), hash_inputs({"x": after}, {}))
        assert move.before != move.after
    for text in ("a\nb", "1", "null", "[1]", "", " a"):
        assert input_text(text) == json.dumps(text)
        assert input_text("python t.py") == "python t.py"


def test_the_tree_shows_each_hash_and_each_input() -> None:
    lines = tree_lines(MADE)
    shown = [re.findall(r"sha256:[0-9a-f]{64}", line) for line in lines]
    whole, recipe, platform = [MADE.config_hash], [MADE.recipe], [MADE.platform]
    assert shown == [whole, recipe, [], [], [], platform, [], []]
    inputs = [line.split() for line, hashes in zip(lines, shown, strict=True) if not hashes]
    assert inputs[:3] == [["code", "sha256:ab"], ["seeds", "[42]"], ["steps", "null"]]
    assert inputs[3:] == [["python", "3.11.9"], ["threads", "2"]]


# A config hash that somebody else wrote

ZEROS = "sha256:" + "0" * 64


def test_a_config_hash_that_its_inputs_do_not_give_is_refused_in_one_line() -> None:
    for changed in (
        {"inputs": replace(MADE.inputs, recipe={**SMALL, "code": "sha256:cd"})},
        {"inputs": replace(MADE.inputs, recipe={**SMALL, "more": None})},
        {"inputs": replace(MADE.inputs, platform={"threads": 2})},
        {"inputs": RootInputs(MADE.inputs.platform, MADE.inputs.recipe)},
        {"recipe": ZEROS},
        {"platform": ZEROS},
        {"config_hash": ZEROS},
    ):
        assert made_again(MADE) == MADE
        with pytest.raises(UsageError) as caught:
            made_again(replace(MADE, **changed))
        assert caught.value.reason_id == "config-hash/forged"
        assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("seeds", [2**53 - 1], True),
        ("seeds", [2**53], False),
        ("seeds", [math.nan], False),
        ("code", "\ud800", False),
        ("\ud800", None, False),
        ("code", nested(MAX_DEPTH), True),
        ("code", nested(MAX_DEPTH + 1), False),
        ("\x1b[31m", nested(5_000), False),
        ("code", "x" * 99_998, True),
        ("code", "x" * 99_999, False),
        ("n" * 8_193, 1, False),
    ],
)
def test_an_input_beyond_the_limits_is_refused(name: str, value: Any, is_taken: bool) -> None:
    if is_taken:
        made = hash_inputs({name: value}, {})
        assert made_again(made) == made
        return
    with pytest.raises(UsageError) as caught:
        made_again(replace(MADE, inputs=RootInputs({name: value}, {})))
    assert caught.value.reason_id == "config-hash/malformed"
    assert caught.value.message.isprintable() and len(caught.value.message) < 300
