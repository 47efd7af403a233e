"""Category `code`: is what ran known, and would it run from a fresh clone?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checks.code import (
    commit_known,
    imports_checkout,
    lfs_resolved,
    licence,
    opened_files,
    pristine_workspace,
    spec_tracked,
    submodules_present,
    tree_clean,
)
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import ABSOLUTE, IGNORED, NOT_ALL, unsound
from repro_gate.runs.launch import SNIPPET
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Imported, Location, Opened
from tests.checks.conftest import lines_of
from tests.support.built_traces import evidence, run, spec, training
from tests.support.repositories import git, repository, write

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
        spec=spec((folder / inside).resolve()),
        commit=checkout.commit,
        uncommitted=checkout.uncommitted,
        checkout=checkout,
        tracked=tracked,
    )
    return replace(found, **changes)


def strictly(found: Evidence) -> Evidence:
    return replace(
        found, spec=replace(found.spec, checklist=replace(found.spec.checklist, profile="strict"))
    )


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_code_in_no_commit_and_uncommitted_paths_are_missing(profile: str, status: str) -> None:
    judged = spec(profile=profile)
    assert commit_known(evidence(spec=judged, commit=None)).status == status
    assert commit_known(evidence(spec=judged)).status == "pass"
    found = tree_clean(evidence(spec=judged, uncommitted=("train.py",)))
    assert (found.status, lines_of(found)) == (status, ("train.py",))
    assert tree_clean(evidence(spec=judged)).status == "pass"
    assert tree_clean(evidence(commit=None, uncommitted=("train.py",))).status == "skip"


def test_submodules_must_be_there_at_the_recorded_commit(repo: Path, tmp_path: Path) -> None:
    assert submodules_present(of(repo)).status == "skip"
    assert submodules_present(evidence()).status == "skip"
    inner = repository(tmp_path / "inner")
    git(repo, "submodule", "add", "-q", str(inner), "libs/inner")
    commit(repo)
    recorded = git(inner, "rev-parse", "HEAD")
    found = submodules_present(of(repo))
    assert (found.status, lines_of(found)) == ("pass", (f"libs/inner {recorded}",))

    git(tmp_path, "clone", "-q", str(repo), "clone")
    found = submodules_present(of(tmp_path / "clone"))
    assert (found.status, lines_of(found)) == ("warn", ("libs/inner: not initialised",))
    assert submodules_present(strictly(of(tmp_path / "clone"))).status == "fail"

    (repo / "libs/inner/train.py").unlink()
    assert lines_of(tree_clean(of(repo))) == ("libs/inner/train.py",)
    git(repo / "libs/inner", "checkout", "-q", "--", ".")

    commit(repo / "libs/inner", new_dot_py="")
    moved = git(repo / "libs/inner", "rev-parse", "HEAD")
    found = submodules_present(of(repo))
    line = f"libs/inner: recorded {recorded[:12]}, found {moved[:12]}"
    assert (found.status, lines_of(found)) == ("fail", (line,))


def test_lfs_pointers_are_not_content_unless_they_are_meant_as_text(repo: Path) -> None:
    commit(repo, tests__pointer_dot_txt=POINTER)
    assert lfs_resolved(of(repo)).status == "pass"
    assert lfs_resolved(evidence()).status == "skip"
    commit(
        repo,
        _dot_gitattributes="*.bin filter=lfs diff=lfs merge=lfs -text\n",
        data__train_dot_bin=POINTER,
    )
    found = lfs_resolved(of(repo))
    assert (found.status, lines_of(found)) == ("warn", ("data/train.bin",))
    assert lfs_resolved(strictly(of(repo))).status == "fail"
    write(repo, data__train_dot_bin="the content itself")
    assert lfs_resolved(of(repo)).status == "pass"


def test_the_spec_must_be_tracked(repo: Path) -> None:
    write(repo, exp__repro_dot_yml="version: 1\n")
    found = spec_tracked(of(repo, "exp"))
    assert (found.status, lines_of(found)) == ("warn", ("exp/repro.yml",))
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
        ("LICENSE-APACHE-2.0.txt", "Apache", "pass"),
        ("COPYING.LESSER", "LGPL", "pass"),
        ("UNLICENSE", "none", "pass"),
        ("LICENSES__MIT_dot_txt", "MIT", "pass"),
        ("pyproject.toml", '[project]\nname = "x"\nlicense = "MIT"\n', "pass"),
        ("pyproject.toml", '[project]\nlicense = {text = "MIT"}\n', "pass"),
        ("pyproject.toml", '[tool.poetry]\nlicense = "MIT"\n', "pass"),
        ("exp__LICENSE", "MIT", "pass"),
        ("LICENSE", "", "warn"),
        ("licensing", "x", "warn"),
        ("docs__LICENSE", "MIT", "warn"),
        ("pyproject.toml", '[project]\nname = "x"\n', "warn"),
        ("pyproject.toml", '[project]\nlicense = {file = "LICENSE"}\n', "warn"),
        ("pyproject.toml", "license = [", "warn"),
    ],
)
def test_a_licence_is_a_tracked_file_of_its_name_or_a_field_of_the_project(
    name: str, text: str, status: str, repo: Path, tmp_path: Path
) -> None:
    file = {name.replace(".", "_dot_"): text}
    write(repo, **file)
    assert licence(of(repo, "exp")).status == "warn", "it is not tracked"
    commit(repo)
    assert licence(of(repo, "exp")).status == status
    write(tmp_path / "no-git", **file)
    assert licence(of(tmp_path / "no-git", "exp")).status == status


def test_a_workspace_is_shown_to_be_enough_by_runs_that_end() -> None:
    good = run("deterministic-1", training())
    bad = run("default-1", outcome="crashed", problem="it exited with status 1")
    line = "default-1: it exited with status 1"
    for runs, status, lines in (
        ((good,), "pass", ()),
        ((), "skip", ()),
        ((good, bad), "pass", (line,)),
        ((bad,), "skip", (line,)),
    ):
        found = pristine_workspace(evidence(runs=runs))
        assert (found.status, lines_of(found)) == (status, lines)


def test_a_file_that_only_this_checkout_has_is_named_where_a_run_crashed_for_want_of_it(
    repo: Path,
) -> None:
    def crash(line: str) -> Evidence:
        return of(repo, runs=(run("run-1", outcome="crashed", problem="x", tail=[line]),))

    line = "FileNotFoundError: [Errno 2] No such file or directory: 'build/vocab.json'"
    assert pristine_workspace(crash(line)).status == "skip"
    write(repo, build__vocab_dot_json="{}")
    found = pristine_workspace(crash(line))
    assert (found.status, lines_of(found)) == ("fail", ("build/vocab.json (not found by run-1)",))
    assert pristine_workspace(crash("ValueError: 'build/vocab.json' is bad")).status == "skip"


def importing(repo: Path, *modules: Imported) -> Evidence:
    return of(repo, runs=(run("deterministic-1", replace(training(), imports=list(modules))),))


@pytest.mark.parametrize(
    ("path", "distribution", "basic", "strict", "is_unsound"),
    [
        ("", "", "pass", "pass", False),
        ("/venv/site-packages/pkg/__init__.py", "pkg", "fail", "fail", True),  # a copy
        ("ROOT/pkg/model.py", "", "fail", "fail", True),  # of the original checkout
        ("ROOT/pkg/_C.so", "", "warn", "fail", False),  # git ignores it
    ],
)
def test_a_copy_and_a_module_of_the_original_checkout_fail_in_both_profiles(
    path: str, distribution: str, basic: str, strict: str, is_unsound: bool, repo: Path
) -> None:
    path = path.replace("ROOT", str(repo.resolve()))
    found = importing(repo, *([Imported("pkg", path, distribution)] if path else []))
    result = imports_checkout(found)
    assert (result.status, imports_checkout(strictly(found)).status) == (basic, strict)
    assert not path or (len(lines_of(result)) == 1 and path in lines_of(result)[0])
    said = unsound(found, found.runs)
    assert path in said if is_unsound else said == ""
    assert imports_checkout(of(repo)).status == "skip"


def opening(*files: Opened, **changes: Any) -> tuple[object, ...]:
    return (run("deterministic-1", replace(training(), opened=list(files), **changes)),)


@pytest.mark.parametrize(
    ("path", "by", "why"),
    [
        ("pkg/model.py", "train.py:1", ""),
        ("data/train.csv", "train.py:3", ""),
        ("data/parts/0.bin", "", ""),
        (f"exp/{SNIPPET}", "", ""),
        ("/mnt/data/train.bin", "train.py:3", ""),
        ("/home/me/notes", "", ""),
        ("notes.txt", "train.py:2", "data that git does not track"),
        ("data/train.csv.bak", "", "data that git does not track"),
        ("/home/me/lib/ops.py", "train.py:1", "outside the checkout"),
        ("/home/me/config.YAML", "", "outside the checkout"),
        ("/opt/ops/_C.cpython-311-x86_64-linux-gnu.so", "", "outside the checkout"),
        ("ROOT/pkg/model.py", "train.py:1", ABSOLUTE),
        ("ROOT/build/settings.yaml", "", IGNORED),
    ],
)
def test_source_and_settings_that_no_clone_has_are_named(
    path: str, by: str, why: str, repo: Path
) -> None:
    path = path.replace("ROOT", str(repo.resolve()))
    at = Location("train.py", int(by[-1])) if by else None
    file = Opened(path, not path.startswith("/"), at)
    declared = (DataItem("data/train.csv"), DataItem("data/parts"))
    found = of(repo, runs=opening(Opened("train.py", True), file))
    found = replace(found, spec=replace(found.spec, data=declared))
    result = opened_files(found)
    line = f"{by}: opens {path}: {why}" if by else f"{path}: {why}"
    assert (result.status, lines_of(result)) == (("warn", (line,)) if why else ("pass", ()))
    assert opened_files(strictly(found)).status == ("fail" if why else "pass")


def test_the_remedy_is_for_what_is_wrong_with_the_files(repo: Path) -> None:
    root = repo.resolve()
    for path, within, remedy in (
        ("own.yaml", True, "`git add`"),
        ("pics/0.png", True, "declare data under `data:`"),
        (f"{root}/pkg/model.py", False, "by relative paths"),
        (f"{root}/build/settings.yaml", False, "let `train.run` make"),
        ("/opt/x.py", False, "as a package of the lockfile"),
    ):
        for others in ((), (Opened("/etc/y.sh", False), Opened("z.sh", True))):
            runs = opening(Opened(path, within), *others)
            assert remedy in opened_files(of(repo, runs=runs)).remedy


def test_a_module_that_another_check_names_is_not_named_again(repo: Path) -> None:
    path = f"{repo.resolve()}/build/_C.so"
    found = opening(Opened("train.py", True), Opened(path, False), imports=[Imported("_C", path)])
    assert opened_files(of(repo, runs=found)).status == "pass"
    assert imports_checkout(of(repo, runs=found)).status == "warn"


def test_declared_data_is_found_from_a_spec_in_a_folder(repo: Path) -> None:
    found = of(repo, "exp", runs=opening(Opened("data/train.csv", True)))
    assert opened_files(found).status == "warn"
    declared = replace(found.spec, data=(DataItem("../data/train.csv"),))
    assert opened_files(replace(found, spec=declared)).status == "pass"


def test_opened_files_that_the_probe_did_not_list_are_said(repo: Path) -> None:
    note = (NOT_ALL, "more than 20000 files were opened; the others are not listed")
    found = of(repo, runs=opening(Opened("train.py", True), notes=[note]))
    assert (opened_files(found).status, lines_of(opened_files(found))) == ("warn", (note[1],))
    assert opened_files(strictly(found)).status == "fail"
    both = opened_files(of(repo, runs=opening(Opened("own.py", True), notes=[note])))
    assert lines_of(both) == ("own.py: not tracked by git", note[1])


def test_without_git_only_files_outside_are_judged(tmp_path: Path) -> None:
    files = Opened("any.py", True), Opened("/x/y.py", False)
    for opened, status, lines in (
        ((), "skip", ()),
        (files[:1], "skip", ()),
        (files, "warn", ("/x/y.py: outside the checkout",)),
    ):
        found = opened_files(of(tmp_path, runs=opening(*opened)))
        assert (found.status, lines_of(found)) == (status, lines)
