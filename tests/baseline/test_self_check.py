"""Claims about the self-check: it passes for every config hash, and does not where a hash is blind to something."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from repro_gate.baseline import self_check as proof_module
from repro_gate.baseline.canonical import canonical, to_form
from repro_gate.baseline.config_hash import Inputs, InputValue, SelfCheck
from repro_gate.baseline.self_check import changes, prove
from repro_gate.baseline.tree import hash_inputs, input_hash
from tests.support.config_hashes import LEAVES, VALUES, exactly

SAMPLE = hash_inputs({"code": "sha256:ab", "seeds": [42], "steps": 50}, {"python": "3.11.9", "image": None})


@given(LEAVES, LEAVES)
def test_a_config_hash_of_any_inputs_proves_itself(recipe: Inputs, platform: Inputs) -> None:
    proved = prove(hash_inputs(recipe, platform))
    count = len(recipe) + len(platform)
    assert proved.self_check == SelfCheck(True, count, count) and proved.self_check.complete


@given(VALUES)
def test_every_change_of_a_value_is_another_value(value: InputValue) -> None:
    others = [exactly(other) for other in changes(value)]
    assert others and exactly(value) not in others


def test_a_config_hash_without_inputs_proves_nothing() -> None:
    proved = prove(hash_inputs({}, {}))
    assert proved.self_check == SelfCheck(True, 0, 0) and not proved.self_check.complete


@pytest.mark.parametrize("field", ["config_hash", "recipe", "platform"])
def test_a_config_hash_whose_hashes_are_not_its_own_is_not_stable(field: str) -> None:
    proved = prove(replace(SAMPLE, **{field: "sha256:" + "0" * 64}))
    assert proved.self_check is not None and not proved.self_check.stable and not proved.self_check.complete


def test_a_hash_that_does_not_look_at_one_input_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(name: str, value: InputValue) -> bytes:
        return input_hash(name, None if name == "seeds" else value)

    monkeypatch.setattr(proof_module, "input_hash", blind)
    monkeypatch.setattr(proof_module, "input_hashes", lambda inputs: {name: blind(name, value) for name, value in inputs.items()})
    assert prove(SAMPLE).self_check == SelfCheck(True, 5, 4)


def test_a_hash_that_folds_numbers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def folding(name: str, value: InputValue) -> bytes:
        return input_hash(name, canonical(to_form(str(value))).decode())

    monkeypatch.setattr(proof_module, "input_hash", folding)
    monkeypatch.setattr(proof_module, "input_hashes", lambda inputs: {name: folding(name, value) for name, value in inputs.items()})
    assert prove(SAMPLE).self_check == SelfCheck(True, 5, 4)  # `steps`: 50 and "50" were one


def test_a_root_that_inputs_out_a_input_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    root_hash = proof_module.root_hash
    hidden = input_hash("steps", 50)
    monkeypatch.setattr(proof_module, "root_hash", lambda kind, inputs: root_hash(kind, [item for item in inputs if item != hidden]))
    proved = prove(SAMPLE)
    assert proved.self_check is not None and proved.self_check.covered == 4 and not proved.self_check.complete
