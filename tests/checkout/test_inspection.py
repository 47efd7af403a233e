"""Claims about what git says of a checkout, and that asking it runs nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import (
    Submodule,
    inspect_checkout,
    lfs_pointers,
    submodules,
    tracked_files,
)
from repro_gate.checkout.snapshot import take_snapshot
from tests.support.repositories import commit, git, repository, snapshot_of, tree, write

root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to give files to somebody else"
)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def test_every_change_is_named(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(repo, "rev-parse", "HEAD")
    for branch in ("main", "--detach"):
        git(repo, "checkout", "-q", branch)
        checkout = inspect_checkout(repo / "pkg")
        assert (checkout.root, checkout.commit) == (repo.resolve(), head)
        assert checkout.is_git and not checkout.notes and checkout.uncommitted == ()
    commit(repo, gone_dot_py="")
    write(repo, staged_dot_py="")
    git(repo, "add", "staged.py")
    (repo / "gone.py").unlink()
    write(repo, train_dot_py="print(2)", new__file_dot_py="", ignored_dot_log="")
    (repo / "line\nbreak").touch()
    (repo / os.fsdecode(b"\xff")).touch()
    changed = ("gone.py", "line\nbreak", "new/file.py", "staged.py", "train.py")
    changed = (*changed, os.fsdecode(b"\xff"))
    assert inspect_checkout(repo).uncommitted == changed
    # the caller's own variables do not count
    other = repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    found = inspect_checkout(repo)
    assert (found.root, found.uncommitted) == (repo.resolve(), changed)


PLAIN = [".gitignore", "pkg/model.py", "train.py"]


def test_a_worktree_and_one_without_a_commit_are_checkouts(repo: Path, tmp_path: Path) -> None:
    place, empty = tmp_path / "tree", tmp_path / "empty"
    git(repo, "worktree", "add", "-q", str(place), "-b", "other")
    empty.mkdir()
    git(empty, "init", "-q")
    for folder, head in ((place, git(repo, "rev-parse", "HEAD")), (empty, None)):
        write(folder, new="1")
        checkout = inspect_checkout(folder)
        assert (checkout.root, checkout.commit) == (folder.resolve(), head)
        assert checkout.is_git and checkout.uncommitted == ("new",)
    assert tree(snapshot_of(place, tmp_path).root) == sorted(["new", *PLAIN])


def test_a_folder_without_git_is_taken_as_it_is(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").mkdir()
    assert not inspect_checkout(tmp_path / "plain").is_git
    write(repo, build__exp__train_dot_py="")
    checkout = inspect_checkout(repo / "build/exp")
    assert not checkout.is_git and checkout.root == (repo / "build/exp").resolve()
    assert "ignores" in checkout.notes[0]
    assert tree(take_snapshot(checkout, tmp_path / "s").root) == ["train.py"]
    # a work tree that is placed elsewhere is not followed
    git(repo, "config", "core.worktree", str(tmp_path))
    checkout = inspect_checkout(repo)
    assert not checkout.is_git and checkout.root == repo.resolve() and checkout.notes
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    checkout = inspect_checkout(repo)
    assert not checkout.is_git and "not installed" in checkout.notes[0]
    assert set(PLAIN) <= {*tree(take_snapshot(checkout, tmp_path / "t").root)}


@root_only
def test_another_owner_is_read(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for path in [repo, *repo.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "status")
    assert inspect_checkout(repo).commit and len(tree(snapshot_of(repo, tmp_path).root)) == 3
    assert tree(tmp_path / "home") == []


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that tells in `ran` that it ran."""
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    (tmp_path / "evil").chmod(0o755)
    return tmp_path / "evil"


HOOKS = ("post-index-change", "post-checkout", "fsmonitor-watchman", "reference-transaction")
RUNS = ("core.fsmonitor", "core.pager", "core.sshCommand", "diff.evil.textconv", "diff.external")
FILTERS = ("clean", "smudge", "process")


def test_nothing_that_is_configured_is_run(repo: Path, tmp_path: Path, evil: Path) -> None:
    module = f'[submodule "x"]\n\tpath = x\n\turl = u\n\tupdate = !{evil}\n'
    commit(repo, _dot_gitattributes="* filter=evil diff=evil\n", _dot_gitmodules=module)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in HOOKS:
        (hooks / hook).symlink_to(evil)
    for key in (*RUNS, *(f"filter.evil.{name}" for name in FILTERS)):
        git(repo, "config", key, str(evil))
    git(repo, "config", "core.hooksPath", str(hooks))
    git(repo, "config", "filter.evil.required", "true")
    (tmp_path / "ran").unlink(missing_ok=True)
    write(repo, train_dot_py="print(3)", pkg__model_dot_py="x = 1")
    os.utime(repo / "pkg/model.py", ns=(1, 1))
    assert inspect_checkout(repo).uncommitted == ("train.py",)
    snapshot_of(repo, tmp_path)
    assert submodules(repo) == lfs_pointers(repo) == () and len(tracked_files(repo)) == 5
    assert not (tmp_path / "ran").exists()


def test_lfs_pointers_are_found_by_content_and_an_lfs_file_is_not_modified(repo: Path) -> None:
    content = b"weights" * 1000
    pointer = (
        "version https://git-lfs.github.com/spec/v1\noid "
        f"sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    )
    commit(repo, a_dot_bin=pointer, b_dot_bin=pointer)
    (repo / "a.bin").write_bytes(content)
    (repo / "b.bin").write_bytes(content[:-1] + b"!")
    assert inspect_checkout(repo).uncommitted == ("b.bin",)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12\n"
    names = ("a_dot_bin", "b_dot_txt", "d_dot_bin", "new_dot_bin")
    write(repo, **dict.fromkeys(names, pointer), c_dot_bin=pointer + "more\n")
    write(repo, _dot_gitattributes="*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(repo, "add", "-A", ":!new.bin")
    (repo / "d.bin").unlink()
    (repo / "d.bin").symlink_to("a.bin")
    assert lfs_pointers(repo) == ("a.bin",)


def test_tracked_files_are_those_of_the_index_and_of_submodules(repo: Path, tmp_path: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repository(tmp_path / "inner")), "libs/inner")
    write(repo, new_dot_py="", staged_dot_py="", build__x_dot_py="")
    git(repo, "add", "staged.py")
    (repo / "train.py").unlink()
    own = {".gitignore", ".gitmodules", "pkg/model.py", "staged.py", "train.py"}
    inner = {f"libs/inner/{name}" for name in (".gitignore", "pkg/model.py", "train.py")}
    assert tracked_files(repo) == own | inner
    assert tracked_files(repo / "libs/inner") == {".gitignore", "pkg/model.py", "train.py"}


def test_submodules_say_what_is_recorded_and_what_is_there(repo: Path, tmp_path: Path) -> None:
    innermost, inner = repository(tmp_path / "innermost"), repository(tmp_path / "inner")
    git(inner, "submodule", "add", "-q", str(innermost), "deep")
    git(inner, "commit", "-qm", "nested")
    git(repo, "submodule", "add", "-q", str(inner), "libs/inner")
    git(repo, "submodule", "update", "-q", "--init", "--recursive")
    recorded, deep = git(inner, "rev-parse", "HEAD"), git(innermost, "rev-parse", "HEAD")
    assert submodules(repo) == (
        Submodule("libs/inner", recorded, recorded),
        Submodule("libs/inner/deep", deep, deep),
    )
    git(repo / "libs/inner", "checkout", "-q", "HEAD~1")
    moved = git(inner, "rev-parse", "HEAD~1")
    assert submodules(repo) == (Submodule("libs/inner", recorded, moved),)
    git(repo, "update-index", "--force-remove", "libs/inner")
    assert submodules(repo) == ()
