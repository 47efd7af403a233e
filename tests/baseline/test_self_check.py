"""Claims about the proof: it holds for every address, and does not where a hash is blind to something."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from repro_gate.baseline import self_check as proof_module
from repro_gate.baseline.canonical import canonical, to_form
from repro_gate.baseline.config_hash import Leaf, Leaves, Proof
from repro_gate.baseline.self_check import changes, prove
from repro_gate.baseline.tree import address, leaf_hash
from tests.support.config_hashes import LEAVES, VALUES, exactly

SAMPLE = address({"code": "sha256:ab", "seeds": [42], "steps": 50}, {"python": "3.11.9", "image": None})


@given(LEAVES, LEAVES)
def test_an_address_of_any_leaves_proves_itself(recipe: Leaves, platform: Leaves) -> None:
    proved = prove(address(recipe, platform))
    count = len(recipe) + len(platform)
    assert proved.proof == Proof(True, count, count) and proved.proof.holds


@given(VALUES)
def test_every_change_of_a_value_is_another_value(value: Leaf) -> None:
    others = [exactly(other) for other in changes(value)]
    assert others and exactly(value) not in others


def test_an_address_without_leaves_proves_nothing() -> None:
    proved = prove(address({}, {}))
    assert proved.proof == Proof(True, 0, 0) and not proved.proof.holds


@pytest.mark.parametrize("field", ["config_hash", "recipe", "platform"])
def test_an_address_whose_hashes_are_not_its_own_is_not_stable(field: str) -> None:
    proved = prove(replace(SAMPLE, **{field: "sha256:" + "0" * 64}))
    assert proved.proof is not None and not proved.proof.stable and not proved.proof.holds


def test_a_hash_that_does_not_look_at_one_leaf_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(name: str, value: Leaf) -> bytes:
        return leaf_hash(name, None if name == "seeds" else value)

    monkeypatch.setattr(proof_module, "leaf_hash", blind)
    monkeypatch.setattr(proof_module, "leaf_hashes", lambda leaves: {name: blind(name, value) for name, value in leaves.items()})
    assert prove(SAMPLE).proof == Proof(True, 5, 4)


def test_a_hash_that_folds_numbers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def folding(name: str, value: Leaf) -> bytes:
        return leaf_hash(name, canonical(to_form(str(value))).decode())

    monkeypatch.setattr(proof_module, "leaf_hash", folding)
    monkeypatch.setattr(proof_module, "leaf_hashes", lambda leaves: {name: folding(name, value) for name, value in leaves.items()})
    assert prove(SAMPLE).proof == Proof(True, 5, 4)  # `steps`: 50 and "50" were one


def test_a_root_that_leaves_out_a_leaf_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    root_hash = proof_module.root_hash
    hidden = leaf_hash("steps", 50)
    monkeypatch.setattr(proof_module, "root_hash", lambda kind, leaves: root_hash(kind, [leaf for leaf in leaves if leaf != hidden]))
    proved = prove(SAMPLE)
    assert proved.proof is not None and proved.proof.moved == 4 and not proved.proof.holds
