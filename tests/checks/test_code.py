"""Category `code`: is what ran known, and would it run from a fresh clone?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout import inspect_checkout, tracked_files
from repro_gate.checks.code import (
    actions_pinned,
    commit_known,
    lfs_resolved,
    licence,
    opened_files,
    pristine_workspace,
    spec_tracked,
    submodules_present,
    tree_clean,
)
from repro_gate.checks.interface import Evidence
from repro_gate.runs.launch import SNIPPET
from repro_gate.spec.model import DataItem
from repro_gate.trace.reader import Opened
from tests.analysis.builders import evidence, run, spec, training
from tests.repositories import git, repository, write

PROFILES = pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
SHA = "11bd71901bbe5b1630ceea73d27597364c9af683"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 123456\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def commit(folder: Path, **files: str) -> None:
    write(folder, **files)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "more")


def of(folder: Path, inside: str = ".", **changes: object) -> Evidence:
    """The evidence of a real checkout, its spec in the folder `inside`."""
    checkout = inspect_checkout(folder)
    tracked = tracked_files(checkout.root) if checkout.is_git else None
    found = evidence(
        spec=spec((folder / inside).resolve()), commit=checkout.commit, uncommitted=checkout.uncommitted, checkout=checkout, tracked=tracked
    )
    return replace(found, **changes)


def strictly(found: Evidence) -> Evidence:
    return replace(found, spec=replace(found.spec, checklist=replace(found.spec.checklist, profile="strict")))


@PROFILES
def test_code_in_no_commit_is_missing(profile: str, status: str) -> None:
    found = commit_known(evidence(spec=spec(profile=profile), commit=None))
    assert found.status == status and "git commit" in found.remedy
    assert commit_known(evidence(spec=spec(profile=profile))).status == "pass"


@PROFILES
def test_uncommitted_paths_are_missing_and_named(profile: str, status: str) -> None:
    found = tree_clean(evidence(spec=spec(profile=profile), uncommitted=("train.py",)))
    assert (found.status, found.evidence) == (status, ("train.py",)) and ".gitignore" in found.remedy
    assert tree_clean(evidence(spec=spec(profile=profile))).status == "pass"
    assert tree_clean(evidence(commit=None, uncommitted=("train.py",))).status == "skip"


def test_submodules_must_be_there_at_the_recorded_commit(repo: Path, tmp_path: Path) -> None:
    assert submodules_present(of(repo)).status == "skip"
    assert submodules_present(evidence()).status == "skip"
    inner = repository(tmp_path / "inner")
    git(repo, "submodule", "add", "-q", str(inner), "libs/inner")
    commit(repo)
    recorded = git(inner, "rev-parse", "HEAD")
    found = submodules_present(of(repo))
    assert (found.status, found.evidence) == ("pass", (f"libs/inner {recorded}",))

    git(tmp_path, "clone", "-q", str(repo), "clone")
    found = submodules_present(of(tmp_path / "clone"))
    assert (found.status, found.evidence) == ("warn", ("libs/inner: not initialised",))
    assert "submodule update --init" in found.remedy and submodules_present(strictly(of(tmp_path / "clone"))).status == "fail"

    (repo / "libs/inner/train.py").unlink()
    found = submodules_present(of(repo))
    assert (found.status, found.evidence) == ("warn", ("libs/inner: 1 of its files are missing",))
    git(repo / "libs/inner", "checkout", "-q", "--", ".")

    commit(repo / "libs/inner", new_dot_py="")
    moved = git(repo / "libs/inner", "rev-parse", "HEAD")
    found = submodules_present(of(repo))
    assert (found.status, found.evidence) == ("fail", (f"libs/inner: recorded {recorded[:12]}, found {moved[:12]}",))


def test_a_submodule_that_no_clone_would_find_is_said(repo: Path, tmp_path: Path) -> None:
    repository(repo / "vendored")
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", "vendored")
    git(repo, "commit", "-qm", "a link without a URL")
    found = submodules_present(of(repo))
    assert (found.status, found.evidence) == ("warn", ("vendored: no URL in .gitmodules",))


def test_lfs_pointers_are_not_content(repo: Path) -> None:
    assert lfs_resolved(of(repo)).status == "pass"
    assert lfs_resolved(evidence()).status == "skip"
    commit(repo, _dot_gitattributes="*.bin filter=lfs diff=lfs merge=lfs -text\n", data__train_dot_bin=POINTER)
    found = lfs_resolved(of(repo))
    assert (found.status, found.evidence) == ("warn", ("data/train.bin",)) and "git lfs pull" in found.remedy
    assert lfs_resolved(strictly(of(repo))).status == "fail"
    write(repo, data__train_dot_bin="the content itself")
    assert lfs_resolved(of(repo)).status == "pass"


def test_a_pointer_that_is_meant_as_text_is_only_pointed_out(repo: Path) -> None:
    commit(repo, tests__pointer_dot_txt=POINTER)
    found = strictly(of(repo))
    assert lfs_resolved(found).status == "warn" and lfs_resolved(found).evidence == ("tests/pointer.txt",)


def test_the_spec_must_be_tracked(repo: Path) -> None:
    write(repo, exp__repro_dot_yml="version: 1\n")
    found = spec_tracked(of(repo, "exp"))
    assert (found.status, found.evidence) == ("warn", ("exp/repro.yml",)) and "git add exp/repro.yml" in found.remedy
    assert spec_tracked(strictly(of(repo, "exp"))).status == "fail"
    commit(repo)
    assert spec_tracked(of(repo, "exp")).status == "pass"
    assert spec_tracked(of(repo)).status == "warn"
    assert spec_tracked(evidence()).status == "skip"


@pytest.mark.parametrize(
    ("name", "text", "status"),
    [
        ("LICENSE", "MIT", "pass"),
        ("licence.md", "MIT", "pass"),
        ("LICENSE-APACHE", "Apache", "pass"),
        ("COPYING.LESSER", "LGPL", "pass"),
        ("UNLICENSE", "none", "pass"),
        ("LICENSES__MIT_dot_txt", "MIT", "pass"),
        ("pyproject.toml", '[project]\nname = "x"\nlicense = "MIT"\n', "pass"),
        ("pyproject.toml", '[project]\nlicense = {text = "MIT"}\n', "pass"),
        ("pyproject.toml", '[tool.poetry]\nlicense = "MIT"\n', "pass"),
        ("exp__LICENSE", "MIT", "pass"),
        ("LICENSE", "", "warn"),
        ("license.py", "print(1)", "warn"),
        ("licensing", "x", "warn"),
        ("docs__LICENSE", "MIT", "warn"),
        ("pyproject.toml", '[project]\nname = "x"\n', "warn"),
        ("pyproject.toml", '[project]\nlicense = {file = "LICENSE"}\n', "warn"),
        ("pyproject.toml", "license = [", "warn"),
    ],
)
def test_a_licence_is_a_tracked_file_of_its_name_or_a_field_of_the_project(name: str, text: str, status: str, repo: Path) -> None:
    write(repo, **{name.replace(".", "_dot_"): text})
    assert licence(of(repo, "exp")).status == "warn", "it is not tracked"
    commit(repo)
    found = licence(of(repo, "exp"))
    assert found.status == status
    if status == "pass":
        assert found.evidence[0].startswith(name.replace("__", "/").replace("_dot_", ".").partition("/M")[0])
    else:
        assert "LICENSE" in found.remedy and licence(strictly(of(repo, "exp"))).status == "fail"


def test_without_git_a_licence_needs_no_tracking(tmp_path: Path) -> None:
    assert licence(of(tmp_path)).status == "warn"
    (tmp_path / "LICENSE").write_text("MIT")
    assert licence(of(tmp_path)).status == "pass"


def test_actions_must_be_pinned_by_commit(repo: Path) -> None:
    assert actions_pinned(of(repo)).status == "skip"
    workflow = "jobs:\n  a:\n    steps:\n      - uses: {0}\n      - uses: {1}\n"
    commit(repo, _dot_github__workflows__ci_dot_yml=workflow.format(f"actions/checkout@{SHA}", "./local"))
    found = actions_pinned(of(repo))
    assert (found.status, found.evidence) == ("pass", (".github/workflows/ci.yml",))
    commit(repo, _dot_github__workflows__ci_dot_yml=workflow.format("actions/checkout@v4", "a/b@main"))
    found = actions_pinned(of(repo))
    assert found.evidence == (".github/workflows/ci.yml:4: actions/checkout@v4", ".github/workflows/ci.yml:5: a/b@main")
    assert found.status == "warn" and "40 hex digits" in found.remedy and "2 of 2" in found.message
    assert actions_pinned(strictly(of(repo))).status == "fail"


def test_a_workflow_that_cannot_be_read_is_said(repo: Path) -> None:
    commit(repo, _dot_github__workflows__ci_dot_yml="jobs: [\n")
    found = actions_pinned(of(repo))
    assert found.status == "warn" and found.evidence[0].startswith(".github/workflows/ci.yml:2: is no YAML")
    commit(repo, _dot_github__workflows__ci_dot_yml="jobs: {}\n")
    assert actions_pinned(of(repo)).status == "skip"


def test_a_workspace_is_shown_to_be_enough_by_runs_that_end() -> None:
    good, bad = run("deterministic-1", training()), run("default-1", outcome="crashed", problem="it exited with status 1")
    assert pristine_workspace(evidence(runs=(good,))).status == "pass"
    assert pristine_workspace(evidence()).status == "skip"
    found = pristine_workspace(evidence(runs=(good, bad)))
    assert (found.status, found.evidence) == ("skip", ("it exited with status 1",))


def opening(*files: Opened) -> tuple[object, ...]:
    return (run("deterministic-1", replace(training(), opened=list(files))),)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (Opened("pkg/model.py", True, "train.py:1"), None),
        (Opened("data/train.csv", True, "train.py:3"), None),
        (Opened("data/parts/0.bin", True), None),
        (Opened(f"exp/{SNIPPET}", True), None),
        (Opened("/mnt/data/train.bin", False, "train.py:3"), None),
        (Opened("/home/me/notes", False), None),
        (Opened("notes.txt", True, "train.py:2"), "notes.txt (opened by train.py:2): not tracked by git"),
        (Opened("data/train.csv.bak", True), "data/train.csv.bak: not tracked by git"),
        (Opened("/home/me/lib/ops.py", False, "train.py:1"), "/home/me/lib/ops.py (opened by train.py:1): outside the checkout"),
        (Opened("/home/me/config.YAML", False), "/home/me/config.YAML: outside the checkout"),
        (Opened("/opt/ops/_C.cpython-311-x86_64-linux-gnu.so", False), "/opt/ops/_C.cpython-311-x86_64-linux-gnu.so: outside the checkout"),
    ],
)
def test_source_and_settings_that_no_clone_has_are_named(file: Opened, line: str | None, repo: Path) -> None:
    found = of(repo, runs=opening(Opened("train.py", True), file))
    found = replace(found, spec=replace(found.spec, data=(DataItem("data/train.csv"), DataItem("data/parts"))))
    result = opened_files(found)
    assert (result.status, result.evidence) == (("pass", ()) if line is None else ("warn", (line,)))
    assert opened_files(strictly(found)).status == ("pass" if line is None else "fail")
    assert line is None or "commit them" in result.remedy


def test_declared_data_is_found_from_a_spec_in_a_folder(repo: Path) -> None:
    found = of(repo, "exp", runs=opening(Opened("data/train.csv", True)))
    assert opened_files(found).status == "warn"
    assert opened_files(replace(found, spec=replace(found.spec, data=(DataItem("../data/train.csv"),)))).status == "pass"


def test_without_git_only_files_outside_are_judged(tmp_path: Path) -> None:
    found = opened_files(of(tmp_path, runs=opening(Opened("any.py", True))))
    assert found.status == "pass" and "not judged" in found.message
    assert opened_files(of(tmp_path, runs=opening(Opened("any.py", True), Opened("/x/y.py", False)))).status == "warn"
    assert opened_files(of(tmp_path, runs=opening())).status == "skip"
