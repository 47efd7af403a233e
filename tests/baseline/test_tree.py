"""Claims about the hashes: anyone can make them again, order does not count, and no kind can be taken for another."""

from __future__ import annotations

import hashlib
import json

from hypothesis import assume, given

from repro_gate.baseline.config_hash import Leaf, Leaves
from repro_gate.baseline.tree import address, leaf_hash, root_hash
from tests.support.config_hashes import LEAVES, TEXT, VALUES, exactly

RECIPE: Leaves = {"code": "sha256:ab", "seeds": [42], "steps": 50, "flag/torch.backends.cudnn.benchmark": False, "lockfile": None}
PLATFORM: Leaves = {"python": "3.11.9", "threads": 2}


def test_the_hashes_can_be_made_with_nothing_but_sha256_and_the_page_that_describes_them() -> None:
    def leaf(text: str) -> bytes:
        return hashlib.sha256(b"repro-gate/leaf/v1\0" + text.encode()).digest()

    recipe = [
        leaf('["code","sha256:ab"]'),
        leaf('["flag/torch.backends.cudnn.benchmark",false]'),
        leaf('["lockfile",null]'),
        leaf('["seeds",[{"int":"42"}]]'),
        leaf('["steps",{"int":"50"}]'),
    ]
    platform = [leaf('["python","3.11.9"]'), leaf('["threads",{"int":"2"}]')]
    roots = [
        hashlib.sha256(b"repro-gate/recipe/v1\0" + b"".join(sorted(recipe))).digest(),
        hashlib.sha256(b"repro-gate/platform/v1\0" + b"".join(sorted(platform))).digest(),
    ]
    made = address(RECIPE, PLATFORM)
    assert (made.recipe, made.platform) == tuple(f"sha256:{root.hex()}" for root in roots)
    assert made.config_hash == "sha256:" + hashlib.sha256(b"repro-gate/config/v1\0" + b"".join(roots)).hexdigest()


def test_the_hashes_of_version_1_never_change() -> None:
    assert address(RECIPE, PLATFORM).config_hash == "sha256:7646d3f142754d4f0c3d839b464a6c9c7771b709b38efb9933a44bf91945153f"


@given(LEAVES, LEAVES)
def test_the_order_in_which_leaves_come_does_not_count(recipe: Leaves, platform: Leaves) -> None:
    backwards = [dict(reversed(list(leaves.items()))) for leaves in (recipe, platform)]
    made, again = address(recipe, platform), address(*backwards)
    assert (made.config_hash, made.recipe, made.platform) == (again.config_hash, again.recipe, again.platform)
    assert json.dumps(list(made.recipe_leaves)) == json.dumps(list(again.recipe_leaves))


@given(LEAVES)
def test_the_same_leaves_have_another_root_as_recipe_than_as_platform(leaves: Leaves) -> None:
    made = address(leaves, leaves)
    assert len({made.recipe, made.platform, made.config_hash}) == 3


@given(LEAVES, LEAVES)
def test_recipe_and_platform_cannot_be_exchanged(one: Leaves, other: Leaves) -> None:
    assume({name: exactly(value) for name, value in one.items()} != {name: exactly(value) for name, value in other.items()})
    assert address(one, other).config_hash != address(other, one).config_hash


@given(LEAVES, TEXT, VALUES)
def test_a_leaf_that_is_added_or_has_another_value_moves_its_root_alone(leaves: Leaves, name: str, value: Leaf) -> None:
    assume(name not in leaves or exactly(leaves[name]) != exactly(value))
    before, after = address(leaves, PLATFORM), address({**leaves, name: value}, PLATFORM)
    assert before.recipe != after.recipe and before.config_hash != after.config_hash
    assert before.platform == after.platform


def test_a_leaf_renamed_or_split_is_another() -> None:
    assert leaf_hash("a", "b") != leaf_hash("ab", "") != leaf_hash("b", "a")
    assert address({"a": 1, "b": 2}, {}).recipe != address({"a": 2, "b": 1}, {}).recipe
    assert root_hash("recipe", []) != root_hash("recipe", [leaf_hash("a", None)])
    assert address({"x": {"int": "42"}}, {}).recipe != address({"x": 42}, {}).recipe
