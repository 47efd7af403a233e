"""The base ref: whose spec judges, and what the change asks less."""

from __future__ import annotations

from pathlib import Path

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
LESS = {"train.steps", "checklist.profile"}


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


def weaker(judged: EffectivePolicy, policy: str = "head") -> set[str]:
    """The keys of which the change asks less; `policy` is the one that must have judged."""
    assert judged.base is not None and judged.base.policy == policy
    assert judged.spec.train.steps == (50 if policy == "base" else judged.spec.train.steps)
    return {item.key for item in judged.base.weakened}


def judge(
    root: Path, *, environment: dict[str, str] | None = None, **options: str
) -> EffectivePolicy:
    return effective_policy(
        load_spec(root), inspect_checkout(root), Options(environment=environment or {}, **options)
    )


def test_what_the_change_asks_less_is_listed_with_its_line_and_what_it_asks_more_is_not(
    checkout: Path,
) -> None:
    alone = judge(checkout)
    assert alone.spec == load_spec(checkout) and alone.base is None and alone.baseline is None
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert judged.spec.train.steps == 5, "the own spec judges"
    assert judged.base is not None and judged.base.policy == "head"
    assert {(item.key, str(item.location)) for item in judged.base.weakened} == {
        ("train.steps", "repro.yml:4"),
        ("checklist.profile", "repro.yml:6"),
    }
    change(checkout, STRICT)
    assert weaker(judge(checkout, base="HEAD~1")) == set()


@pytest.mark.parametrize("policy", ["head", "base"])
def test_the_change_is_compared_with_where_it_began(checkout: Path, policy: str) -> None:
    """A base branch that has become stricter since does not make an old change look weaker; where
    the base judges, its tip does."""
    more = "policy: base\n" if policy == "base" else ""
    change(checkout, WEAKER + more)
    git(checkout, "switch", "-qc", "change")
    git(checkout, "commit", "-qm", "work", "--allow-empty")
    git(checkout, "switch", "-q", "main")
    change(checkout, STRICT + more)
    git(checkout, "switch", "-q", "change")
    assert weaker(judge(checkout, base="main"), policy) == set()


def test_a_base_that_says_so_judges_whatever_the_change_says_and_no_change_asks_for_it(
    checkout: Path,
) -> None:
    change(checkout, STRICT + BASE)
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert judged.spec.checklist.profile == "strict"
    assert judged.spec.path == checkout / "repro.yml"
    assert weaker(judged, "base") == {*LESS, "policy"}
    assert judge(checkout, base="HEAD~1", policy="head").spec.train.steps == 5
    change(checkout, WEAKER + BASE)
    assert weaker(judge(checkout, base="HEAD~1")) == set(), "the base branch's file decides"
    assert judge(checkout, base="HEAD~3", policy="base").spec.train.steps == 50


def test_a_link_does_not_choose_which_spec_judges(checkout: Path, tmp_path: Path) -> None:
    change(checkout, STRICT + BASE)
    (checkout / "repro.yml").unlink()
    (checkout / "repro.yml").symlink_to("weak.yml")
    change(checkout, WEAKER, "weak.yml")
    for options in ({}, {"policy": "base"}):
        with pytest.raises(UsageError, match="through the link"):
            judge(checkout, base="HEAD~1", **options)
    git(checkout, "revert", "--no-edit", "HEAD")
    # a link above the repository is nobody's choice of the change
    (tmp_path / "elsewhere").symlink_to(checkout)
    (tmp_path / "above").symlink_to(checkout.parent)
    for link in (tmp_path / "elsewhere", tmp_path / "above" / checkout.name):
        assert weaker(judge(link, base="HEAD~2"), "base") == set()


def test_a_linked_folder_does_not_choose_either(checkout: Path) -> None:
    change(checkout, STRICT + BASE, "small/repro.yml")
    git(checkout, "mv", "small", "other")
    (checkout / "small").symlink_to("other")
    (checkout / "other/repro.yml").write_text(WEAKER)
    with pytest.raises(UsageError, match="through the link"):
        judge(checkout / "small", base="HEAD")


def test_a_branch_of_the_change_that_is_called_like_the_remotes_is_not_the_base(
    checkout: Path,
) -> None:
    change(checkout, STRICT + BASE)
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "switch", "-qc", "origin/main")
    git(checkout, "tag", "origin/main")
    change(checkout, WEAKER)
    git(checkout, "tag", "-f", "origin/main")
    for judged in (
        judge(checkout, environment={"GITHUB_BASE_REF": "main"}),
        judge(checkout, base="origin/main"),
    ):
        assert weaker(judged, "base")


def test_a_submodule_in_place_of_the_folder_does_not_judge_itself(
    checkout: Path, tmp_path: Path
) -> None:
    change(checkout, STRICT + BASE, "small/repro.yml")
    stranger = repository(tmp_path / "stranger")
    change(stranger, WEAKER)
    git(checkout, "rm", "-rq", "small")
    git(checkout, "submodule", "add", "-q", str(stranger), "small")
    git(checkout, "commit", "-qm", "a submodule")
    assert weaker(judge(checkout / "small", base="main~1"), "base")


def test_a_declaration_file_that_changed_is_listed_and_the_base_has_its_own(checkout: Path) -> None:
    old, new = "1" * 32, "2" * 32
    declared = "outs:\n- md5: {}\n  size: 3\n  hash: md5\n  path: data.bin\n"
    (checkout / "data.bin.dvc").write_text(declared.format(old))
    change(checkout, STRICT + "data: [{path: data.bin.dvc}]\n" + BASE)
    change(checkout, declared.format(new), "data.bin.dvc")
    judged = judge(checkout, base="HEAD~1")
    assert [(item.path, item.md5) for item in judged.spec.data] == [("data.bin", old)]
    assert weaker(judged, "base") == {"data"}
    assert weaker(judge(checkout, base="HEAD"), "base") == set()


def test_a_change_from_before_the_spec_is_compared_with_the_tip(checkout: Path) -> None:
    git(checkout, "switch", "-qc", "old", "HEAD~1")
    change(checkout, WEAKER)
    assert weaker(judge(checkout, base="main")) == LESS


def test_the_pull_request_names_its_base_and_one_that_is_not_in_the_clone_is_said(
    checkout: Path,
) -> None:
    pull_request = {"GITHUB_BASE_REF": "main"}
    judged = judge(checkout, environment=pull_request)
    assert judged.base is None and "fetch" in judged.notes[0] and "origin/main" in judged.notes[0]
    with pytest.raises(UsageError, match="no such commit"):
        judge(checkout, base="origin/main")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    change(checkout, WEAKER)
    judged = judge(checkout, environment=pull_request)
    assert weaker(judged) == LESS and judged.base and judged.base.ref == "origin/main"
    git(checkout, "update-ref", "-d", "refs/remotes/origin/main")
    change(checkout, STRICT + BASE)
    with pytest.raises(UsageError, match="no such commit"):
        judge(checkout, environment=pull_request)


def test_a_base_without_a_spec_or_with_mistakes_or_none_at_all_cannot_judge(
    checkout: Path, tmp_path: Path
) -> None:
    assert any("no repro.yml" in note for note in judge(checkout, base="HEAD~1").notes)
    with pytest.raises(UsageError, match="cannot judge"):
        judge(checkout, base="HEAD~1", policy="base")
    with pytest.raises(UsageError, match="no base is known"):
        judge(checkout, policy="base")
    # mistakes cannot be passed over: it might say `policy: base`
    change(checkout, "version: 1\ntrian: {}\n")
    change(checkout, WEAKER)
    with pytest.raises(UsageError, match=r"repro\.yml:2:1: trian"):
        judge(checkout, base="HEAD~1")
    (tmp_path / "repro.yml").write_text(STRICT)
    with pytest.raises(UsageError, match="not a git checkout"):
        judge(tmp_path, base="main")


def test_a_spec_in_a_folder_of_the_checkout_is_found_there(checkout: Path) -> None:
    change(checkout, STRICT, "small/repro.yml")
    (checkout / "small/repro.yml").write_text(WEAKER)
    assert weaker(judge(checkout / "small", base="HEAD")) == LESS
