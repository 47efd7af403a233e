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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`main` asks for the strict profile and 50 steps."""
    root = repository(tmp_path / "work")
    change(root, STRICT)
    return root


def change(root: Path, spec: str) -> None:
    (root / "repro.yml").write_text(spec)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "spec")


def judge(
    root: Path, *, environment: dict[str, str] | None = None, **options: str
) -> EffectivePolicy:
    return effective_policy(
        load_spec(root), inspect_checkout(root), Options(environment=environment or {}, **options)
    )


def test_without_a_base_the_own_spec_judges(checkout: Path) -> None:
    judged = judge(checkout)
    assert judged.spec == load_spec(checkout) and judged.base is None and judged.baseline is None


def test_what_the_change_asks_less_is_listed_with_its_line(checkout: Path) -> None:
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert judged.spec.train.steps == 5, "the own spec judges"
    assert judged.base is not None and judged.base.policy == "head"
    assert {(item.key, item.where) for item in judged.base.weakened} == {
        ("train.steps", "repro.yml:4"),
        ("checklist.profile", "repro.yml:6"),
    }


def test_what_the_change_asks_more_is_not_listed(checkout: Path) -> None:
    change(checkout, WEAKER)
    change(checkout, STRICT)
    judged = judge(checkout, base="HEAD~1")
    assert judged.base is not None and judged.base.weakened == ()


def test_the_change_is_compared_with_where_it_began(checkout: Path) -> None:
    """A base branch that has become stricter since does not make an old change look weaker."""
    change(checkout, WEAKER)
    git(checkout, "switch", "-qc", "change")
    git(checkout, "commit", "-qm", "work", "--allow-empty")
    git(checkout, "switch", "-q", "main")
    change(checkout, STRICT)
    git(checkout, "switch", "-q", "change")
    judged = judge(checkout, base="main")
    assert judged.base is not None and judged.base.weakened == ()


def test_a_base_that_says_so_judges_whatever_the_change_says(checkout: Path) -> None:
    change(checkout, STRICT + "policy: base\n")
    change(checkout, WEAKER)
    judged = judge(checkout, base="HEAD~1")
    assert (
        judged.spec.train.steps == 50
        and judged.spec.checklist.profile == "strict"
        and judged.spec.path == checkout / "repro.yml"
    )
    assert judged.base is not None and judged.base.policy == "base"
    assert {item.key for item in judged.base.weakened} == {
        "train.steps",
        "checklist.profile",
        "policy",
    }


def test_the_change_cannot_ask_for_it_by_itself(checkout: Path) -> None:
    change(checkout, WEAKER + "policy: base\n")
    judged = judge(checkout, base="HEAD~1")
    assert judged.base is not None and judged.base.policy == "head", (
        "the base branch's file decides"
    )


def test_the_command_line_decides_before_the_file(checkout: Path) -> None:
    change(checkout, WEAKER)
    assert judge(checkout, base="HEAD~1", policy="base").spec.train.steps == 50
    change(checkout, STRICT + "policy: base\n")
    change(checkout, WEAKER)
    assert judge(checkout, base="HEAD~1", policy="head").spec.train.steps == 5


def test_a_link_does_not_choose_which_spec_judges(checkout: Path, tmp_path: Path) -> None:
    change(checkout, STRICT + "policy: base\n")
    (checkout / "weak.yml").write_text(WEAKER)
    (checkout / "repro.yml").unlink()
    (checkout / "repro.yml").symlink_to("weak.yml")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "a link")
    for options in ({"base": "HEAD~1"}, {"base": "HEAD~1", "policy": "base"}):
        with pytest.raises(UsageError, match="through the link"):
            judge(checkout, **options)
    git(checkout, "revert", "--no-edit", "HEAD")
    (tmp_path / "elsewhere").symlink_to(checkout)
    (tmp_path / "above").symlink_to(checkout.parent)
    for link in (tmp_path / "elsewhere", tmp_path / "above" / checkout.name):
        judged = judge(link, base="HEAD~2")
        assert judged.base is not None and judged.base.policy == "base", (
            "a link above the repository is nobody's choice of the change"
        )


def test_a_linked_folder_does_not_choose_either(checkout: Path) -> None:
    (checkout / "small").mkdir()
    (checkout / "small/repro.yml").write_text(STRICT + "policy: base\n")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "small")
    git(checkout, "mv", "small", "other")
    (checkout / "small").symlink_to("other")
    (checkout / "other/repro.yml").write_text(WEAKER)
    with pytest.raises(UsageError, match="through the link"):
        judge(checkout / "small", base="HEAD")


def test_a_branch_of_the_change_that_is_called_like_the_remotes_is_not_the_base(
    checkout: Path,
) -> None:
    change(checkout, STRICT + "policy: base\n")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "switch", "-qc", "origin/main")
    git(checkout, "tag", "origin/main")
    change(checkout, WEAKER)
    git(checkout, "tag", "-f", "origin/main")
    for judged in (
        judge(checkout, environment={"GITHUB_BASE_REF": "main"}),
        judge(checkout, base="origin/main"),
    ):
        assert (
            judged.base is not None
            and judged.base.policy == "base"
            and judged.spec.train.steps == 50
        )


def test_a_submodule_in_place_of_the_folder_does_not_judge_itself(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "small").mkdir()
    (checkout / "small/repro.yml").write_text(STRICT + "policy: base\n")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "small")
    stranger = repository(tmp_path / "stranger")
    (stranger / "repro.yml").write_text(WEAKER)
    git(stranger, "add", "-A")
    git(stranger, "commit", "-qm", "weak")
    git(checkout, "rm", "-rq", "small")
    git(checkout, "submodule", "add", "-q", str(stranger), "small")
    git(checkout, "commit", "-qm", "a submodule")
    judged = judge(checkout / "small", base="main~1")
    assert (
        judged.base is not None and judged.base.policy == "base" and judged.spec.train.steps == 50
    )


def test_a_declaration_file_that_changed_is_listed_and_the_base_has_its_own(checkout: Path) -> None:
    old, new = "1" * 32, "2" * 32
    declared = "outs:\n- md5: {}\n  size: 3\n  hash: md5\n  path: data.bin\n"
    (checkout / "data.bin.dvc").write_text(declared.format(old))
    change(checkout, STRICT + "data: [{path: data.bin.dvc}]\npolicy: base\n")
    (checkout / "data.bin.dvc").write_text(declared.format(new))
    git(checkout, "commit", "-qam", "other data")
    judged = judge(checkout, base="HEAD~1")
    assert [(item.path, item.md5) for item in judged.spec.data] == [("data.bin", old)]
    assert judged.base is not None and [item.key for item in judged.base.weakened] == ["data"]
    assert judge(checkout, base="HEAD").base.weakened == ()  # type: ignore[union-attr]


def test_a_change_from_before_the_spec_is_compared_with_the_tip(checkout: Path) -> None:
    git(checkout, "switch", "-qc", "old", "HEAD~1")
    change(checkout, WEAKER)
    judged = judge(checkout, base="main")
    assert judged.base is not None and {item.key for item in judged.base.weakened} == {
        "train.steps",
        "checklist.profile",
    }


def test_under_the_bases_policy_a_change_is_not_blamed_for_what_the_base_asks_since(
    checkout: Path,
) -> None:
    change(checkout, WEAKER + "policy: base\n")
    git(checkout, "switch", "-qc", "change")
    git(checkout, "commit", "-qm", "work", "--allow-empty")
    git(checkout, "switch", "-q", "main")
    change(checkout, STRICT + "policy: base\n")
    git(checkout, "switch", "-q", "change")
    judged = judge(checkout, base="main")
    assert judged.spec.train.steps == 50, "the tip judges"
    assert judged.base is not None and judged.base.weakened == ()


def test_the_pull_request_names_its_base(checkout: Path) -> None:
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    change(checkout, WEAKER)
    judged = judge(checkout, environment={"GITHUB_BASE_REF": "main"})
    assert (
        judged.base is not None
        and judged.base.ref == "origin/main"
        and len(judged.base.weakened) == 2
    )


def test_a_base_that_is_not_in_the_clone_is_said(checkout: Path) -> None:
    judged = judge(checkout, environment={"GITHUB_BASE_REF": "main"})
    assert judged.base is None and "fetch" in judged.notes[0] and "origin/main" in judged.notes[0]
    with pytest.raises(UsageError, match="no such commit"):
        judge(checkout, base="origin/main")
    change(checkout, STRICT + "policy: base\n")
    with pytest.raises(UsageError, match="no such commit"):
        judge(checkout, environment={"GITHUB_BASE_REF": "main"})


def test_a_base_without_a_spec_cannot_judge(checkout: Path) -> None:
    assert any("no repro.yml" in note for note in judge(checkout, base="HEAD~1").notes)
    with pytest.raises(UsageError, match="cannot judge"):
        judge(checkout, base="HEAD~1", policy="base")


def test_a_base_with_mistakes_cannot_be_passed_over(checkout: Path) -> None:
    """It might say `policy: base`."""
    change(checkout, "version: 1\ntrian: {}\n")
    change(checkout, WEAKER)
    with pytest.raises(UsageError, match=r"repro\.yml:2:1: trian"):
        judge(checkout, base="HEAD~1")


def test_policy_base_needs_a_base(checkout: Path) -> None:
    with pytest.raises(UsageError, match="no base is known"):
        judge(checkout, policy="base")


def test_outside_git_there_is_no_base(tmp_path: Path) -> None:
    (tmp_path / "repro.yml").write_text(STRICT)
    with pytest.raises(UsageError, match="not a git checkout"):
        judge(tmp_path, base="main")


def test_a_spec_in_a_folder_of_the_checkout_is_found_there(checkout: Path) -> None:
    (checkout / "small").mkdir()
    (checkout / "small/repro.yml").write_text(STRICT)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "small")
    (checkout / "small/repro.yml").write_text(WEAKER)
    judged = judge(checkout / "small", base="HEAD")
    assert judged.base is not None and {item.key for item in judged.base.weakened} == {
        "train.steps",
        "checklist.profile",
    }
