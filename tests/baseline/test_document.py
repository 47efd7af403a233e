"""Claims about the config hash as JSON: it comes back whole, and nothing forged or corrupt is taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.baseline.config_hash import Inputs, hash_inputs, self_checked
from repro_gate.baseline.document import MAX_INPUTS, MAX_VALUE, from_json, to_json
from repro_gate.errors import GateError, UsageError
from tests.support.config_hashes import LEAVES

SAMPLE = self_checked(hash_inputs({"code": "sha256:ab", "seeds": [42], "steps": None}, {"python": "3.11.9", "threads": 2}))


def written() -> dict[str, Any]:
    document = json.loads(json.dumps(to_json(SAMPLE)))
    assert isinstance(document, dict)
    return document


@given(LEAVES, LEAVES)
def test_a_config_hash_comes_back_whole_through_a_text(recipe: Inputs, platform: Inputs) -> None:
    made = self_checked(hash_inputs(recipe, platform))
    document = to_json(made)
    text = json.dumps(document, allow_nan=False, sort_keys=True)
    text.encode("utf-8")
    back = from_json(json.loads(text))
    assert to_json(back) == document
    assert (back.config_hash, back.self_check) == (made.config_hash, made.self_check)


def test_inputs_stand_as_they_are_hashed() -> None:
    assert written()["inputs"]["recipe"] == {"code": "sha256:ab", "seeds": [42], "steps": None}


def test_a_config_hash_without_a_proof_is_read() -> None:
    assert from_json({**written(), "self_check": None}).self_check is None


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a value": lambda d: d["inputs"]["recipe"].update(code="sha256:cd"),
    "a type": lambda d: d["inputs"]["platform"].update(threads="2"),
    "an input more": lambda d: d["inputs"]["recipe"].update(more=None),
    "an input less": lambda d: d["inputs"]["platform"].pop("python"),
    "an input renamed": lambda d: d["inputs"]["recipe"].update(cude=d["inputs"]["recipe"].pop("code")),
    "the recipe's root": lambda d: d.update(recipe="sha256:" + "0" * 64),
    "the platform's root": lambda d: d.update(platform="sha256:" + "0" * 64),
    "the config hash": lambda d: d.update(config_hash="sha256:" + "0" * 64),
    "the roots exchanged": lambda d: d.update(recipe=d["platform"], platform=d["recipe"]),
    "the inputs exchanged": lambda d: d["inputs"].update(recipe=d["inputs"]["platform"], platform=d["inputs"]["recipe"]),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_config_hash_that_its_inputs_do_not_give_is_refused_in_one_line(forge: Callable[[dict[str, Any]], object]) -> None:
    document = {**written(), "self_check": None}
    forge(document)
    with pytest.raises(UsageError, match=r"^config_hash\.\w+ is sha256:\w{64}, but what it is made of gives sha256:\w{64}$") as caught:
        from_json(document)
    assert caught.value.reason_id == "config-hash/forged" and caught.value.remedy


CORRUPT: dict[str, Callable[[dict[str, Any]], object]] = {
    "no inputs": lambda d: d.pop("inputs"),
    "inputs of one root": lambda d: d["inputs"].pop("recipe"),
    "inputs of a third root": lambda d: d["inputs"].update(third={}),
    "a root whose name is an escape": lambda d: d["inputs"].update({"\x1b[31m\n - at `$\n": {}}),
    "inputs in a list": lambda d: d["inputs"].update(recipe=[]),
    "a number beyond 2**53": lambda d: d["inputs"]["recipe"].update(seeds=[2**53]),
    "a number that is none": lambda d: d["inputs"]["recipe"].update(seeds=[float("nan")]),
    "a value with half a surrogate pair": lambda d: d["inputs"]["recipe"].update(code="\ud800"),
    "a name with half a surrogate pair": lambda d: d["inputs"]["recipe"].update({"\ud800": None}),
    "a name too long": lambda d: d["inputs"]["recipe"].update({"a" * 9_000: None}),
    "a value too long": lambda d: d["inputs"]["recipe"].update(code="a" * (MAX_VALUE + 1)),
    "a value of too many parts": lambda d: d["inputs"]["recipe"].update(code=[None] * (MAX_VALUE + 1)),
    "too many inputs": lambda d: d["inputs"]["recipe"].update({str(number): None for number in range(MAX_INPUTS)}),
    "no hash": lambda d: d.pop("config_hash"),
    "a short hash": lambda d: d.update(recipe="sha256:ab"),
    "another algorithm": lambda d: d.update(recipe="sha512:" + "0" * 64),
    "a hash with a line more": lambda d: d.update(recipe=d["recipe"] + "\n"),
    "a self_check of more inputs than there are": lambda d: d["self_check"].update(inputs=9, changed_inputs=9),
    "a self-check that covered more than there are": lambda d: d["self_check"].update(covered=6),
    "a self_check with a number for a truth": lambda d: d["self_check"].update(stable=1),
    "a self_check in a list": lambda d: d.update(self_check=[]),
}


@pytest.mark.parametrize("spoil", CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_config_hash_is_refused_in_one_line(spoil: Callable[[dict[str, Any]], object]) -> None:
    document = written()
    spoil(document)
    with pytest.raises(UsageError) as caught:
        from_json(document)
    assert caught.value.reason_id == "config-hash/malformed" and caught.value.message.startswith("config_hash")
    assert caught.value.message.isprintable() and len(caught.value.message) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["config_hash", "recipe", "inputs", "self_check", "*"]), JSON)
def test_no_json_gives_a_stack_trace(field: str, junk: object) -> None:
    try:
        from_json(junk if field == "*" else {**written(), field: junk})
    except GateError as error:
        assert error.message and error.remedy


def test_a_value_nested_beyond_recursion_is_refused() -> None:
    deep: object = None
    for _ in range(5_000):
        deep = [deep]
    document = written()
    document["inputs"]["recipe"]["code"] = deep
    with pytest.raises(UsageError, match="nested deeper than 16 levels"):
        from_json(document)
