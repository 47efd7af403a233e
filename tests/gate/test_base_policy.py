"""The base ref: whose spec judges, and which checks the change weakens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.errors import UsageError
from repro_gate.gate.base_policy import EffectivePolicy, effective_policy
from repro_gate.gate.options import Options
from repro_gate.spec.loader import load_spec
from tests.support.repositories import git, repository

STRICT = """version: 1
train:
  run: python train.py
  steps: 50
checklist:
  profile: strict
"""
WEAKER = STRICT.replace("strict", "basic").replace("steps: 50", "steps: 5")
BASE = "policy: base\n"
LESS = {"train.steps": "repro.yml:4", "checklist.profile": "repro.yml:6"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`main` asks for the strict profile and 50 steps."""
    root = repository(tmp_path / "work")
    change(root, STRICT)
    return root


def change(root: Path, spec: str, name: str = "repro.yml") -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(spec)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "spec")


def judge(root: Path, in_pull_request: bool = False, **options: Any) -> EffectivePolicy:
    environment = {"GITHUB_BASE_REF": "main"} if in_pull_request else {}
    return effective_policy(
        load_spec(root), inspect_checkout(root), Options(environment=environment, **options)
    )


def refused(root: Path, **options: Any) -> str:
    """The id of the error that ends the gate."""
    with pytest.raises(UsageError) as caught:
        judge(root, **options)
    assert caught.value.remedy or caught.value.message.count(":") > 1, "a place or a remedy"
    return caught.value.reason_id


def weaker(judged: EffectivePolicy, policy: str = "head") -> dict[str, str]:
    """The keys that the change weakens, with their lines; `policy` is whose spec must judge."""
    assert judged.base is not None and judged.base.policy == policy
    if policy == "base":
        assert judged.spec.train.steps == 50
    return {item.key: str(item.location) for item in judged.base.weakened}


def test_a_weakened_check_is_listed_with_its_line(checkout: Path) -> None:
    alone = judge(checkout)
    assert alone.spec == load_spec(checkout) and alone.base is None and not alone.baseline
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert weaker(judged) == LESS and judged.spec.train.steps == 5, "the own spec judges"
    change(checkout, STRICT)
    assert weaker(judge(checkout, base="HEAD~1")) == {}


@pytest.mark.parametrize("policy", ["head", "base"])
def test_the_change_is_compared_with_where_it_began(checkout: Path, policy: str) -> None:
    """A base branch that has become stricter since does not make an old change look weaker; where
    the base judges, its tip does."""
    more = BASE if policy == "base" else ""
    change(checkout, WEAKER + more)
    git(checkout, "switch", "-qc", "change")
    git(checkout, "commit", "-qm", "work", "--allow-empty")
    git(checkout, "switch", "-q", "main")
    change(checkout, STRICT + more)
    git(checkout, "switch", "-q", "change")
    assert weaker(judge(checkout, base="main"), policy) == {}


def test_a_base_that_says_so_judges_whatever_the_change_says(checkout: Path) -> None:
    change(checkout, STRICT + BASE)
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert judged.spec.checklist.profile == "strict"
    assert judged.spec.path == checkout / "repro.yml"
    assert weaker(judged, "base").keys() == {*LESS, "policy"}
    assert judge(checkout, base="HEAD~1", policy="head").spec.train.steps == 5
    change(checkout, WEAKER + BASE)
    assert weaker(judge(checkout, base="HEAD~1")) == {}, "the base branch's file decides"
    assert judge(checkout, base="HEAD~3", policy="base").spec.train.steps == 50


def test_no_link_chooses_which_spec_judges(checkout: Path, tmp_path: Path) -> None:
    change(checkout, STRICT + BASE)
    (checkout / "repro.yml").unlink()
    (checkout / "repro.yml").symlink_to("weak.yml")
    change(checkout, WEAKER, "weak.yml")
    for options in ({}, {"policy": "base"}):
        assert refused(checkout, base="HEAD~1", **options) == "base/link"
    git(checkout, "revert", "--no-edit", "HEAD")
    # a link above the repository is nobody's choice of the change
    (tmp_path / "elsewhere").symlink_to(checkout)
    (tmp_path / "above").symlink_to(checkout.parent)
    for link in (tmp_path / "elsewhere", tmp_path / "above" / checkout.name):
        assert weaker(judge(link, base="HEAD~2"), "base") == {}
    change(checkout, STRICT + BASE, "small/repro.yml")
    git(checkout, "mv", "small", "other")
    (checkout / "small").symlink_to("other")
    assert refused(checkout / "small", base="HEAD") == "base/link"


def test_nor_a_submodule_in_place_of_the_folder(checkout: Path, tmp_path: Path) -> None:
    change(checkout, STRICT + BASE, "small/repro.yml")
    other = repository(tmp_path / "other")
    change(other, WEAKER)
    git(checkout, "rm", "-rq", "small")
    git(checkout, "submodule", "add", "-q", str(other), "small")
    git(checkout, "commit", "-qm", "a submodule")
    assert weaker(judge(checkout / "small", base="main~1"), "base")


def test_nor_a_branch_of_the_change_that_is_called_like_the_remotes(checkout: Path) -> None:
    change(checkout, STRICT + BASE)
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "switch", "-qc", "origin/main")
    change(checkout, WEAKER)
    git(checkout, "tag", "origin/main")
    for judged in (judge(checkout, in_pull_request=True), judge(checkout, base="origin/main")):
        assert weaker(judged, "base")


def test_a_declaration_file_that_changed_is_listed_and_the_base_has_its_own(checkout: Path) -> None:
    old, new = "1" * 32, "2" * 32
    declared = "outs:\n- md5: {}\n  size: 3\n  hash: md5\n  path: data.bin\n"
    (checkout / "data.bin.dvc").write_text(declared.format(old))
    change(checkout, STRICT + "data: [{path: data.bin.dvc}]\n" + BASE)
    change(checkout, declared.format(new), "data.bin.dvc")
    judged = judge(checkout, base="HEAD~1")
    assert [(item.path, item.md5) for item in judged.spec.data] == [("data.bin", old)]
    assert weaker(judged, "base").keys() == {"data"}
    assert weaker(judge(checkout, base="HEAD"), "base") == {}


def test_a_change_from_before_the_spec_is_compared_with_the_tip(checkout: Path) -> None:
    git(checkout, "switch", "-qc", "old", "HEAD~1")
    change(checkout, WEAKER)
    assert weaker(judge(checkout, base="main")) == LESS
    change(checkout, STRICT, "small/repro.yml")
    (checkout / "small/repro.yml").write_text(WEAKER)
    assert weaker(judge(checkout / "small", base="HEAD")) == LESS


def test_the_pull_request_names_its_base(checkout: Path) -> None:
    judged = judge(checkout, in_pull_request=True)
    assert judged.base is None and "origin/main" in judged.notes[0]
    assert refused(checkout, base="origin/main") == "usage/ref"
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    change(checkout, WEAKER)
    judged = judge(checkout, in_pull_request=True)
    assert weaker(judged) == LESS and judged.base and judged.base.ref == "origin/main"
    git(checkout, "update-ref", "-d", "refs/remotes/origin/main")
    change(checkout, STRICT + BASE)
    assert refused(checkout, in_pull_request=True) == "usage/ref"


def test_a_base_without_a_sound_spec_cannot_judge(checkout: Path, tmp_path: Path) -> None:
    assert len(judge(checkout, base="HEAD~1").notes) == 1
    assert refused(checkout, base="HEAD~1", policy="base") == "base/no-spec"
    assert refused(checkout, policy="base") == "usage"
    # mistakes cannot be passed over: it might say `policy: base`
    change(checkout, "version: 1\ntrian: {}\n")
    change(checkout, WEAKER)
    with pytest.raises(UsageError, match=r"repro\.yml:2:1"):
        judge(checkout, base="HEAD~1")
    (tmp_path / "repro.yml").write_text(STRICT)
    assert refused(tmp_path, base="main") == "usage"
