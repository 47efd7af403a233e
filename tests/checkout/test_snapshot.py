"""Claims about snapshots, on real git repositories."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import take_snapshot
from repro_gate.errors import UsageError
from repro_gate.files import remove_tree
from tests.support.repositories import commit, git, repository, snapshot_of, tree, write

others_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def test_a_snapshot_has_neither_data_nor_credential(repo: Path, tmp_path: Path) -> None:
    write(repo, new_dot_py="n", ignored_dot_log="", train_dot_py="print(2)")
    write(repo, data__big="x", data2="y", **{"gha-creds-0123abcd.json": "secret"})
    write(repo, **{"gha-creds-of-mine.json": "a file of the project's"})
    (repo / "pkg/model.py").unlink()
    snapshot = take_snapshot(inspect_checkout(repo), tmp_path / "s", leave_out=[repo / "data"])
    names = [".gitignore", "data2", "gha-creds-of-mine.json", "new.py", "train.py"]
    assert tree(snapshot.root) == names
    assert (snapshot.files, snapshot.source) == (5, repo.resolve())
    (note,) = snapshot.notes
    assert note.startswith("gha-creds-0123abcd.json was left out")
    write(repo, train_dot_py="print(4)")
    assert (snapshot.root / "train.py").read_text() == "print(2)"


def test_modes_times_and_links_are_kept_not_followed(repo: Path, tmp_path: Path) -> None:
    write(tmp_path, outside__model_dot_py="secret")
    commit(repo, led__model_dot_py="", run="#!/bin/sh")
    (repo / "run").chmod(0o755)
    (repo / "led/model.py").unlink()
    (repo / "led").rmdir()
    links = {"away": tmp_path / "outside", "broken": Path("nowhere")}
    links["led"] = tmp_path / "outside"  # a tracked folder that became a link
    for name, target in links.items():
        (repo / name).symlink_to(target)
    for name in ("run", "pkg"):
        os.utime(repo / name, ns=(10**18, 10**18 + 7))
    snapshot = snapshot_of(repo, tmp_path).root
    assert stat.S_IMODE((snapshot / "run").stat().st_mode) == 0o755
    assert {(snapshot / name).stat().st_mtime_ns for name in ("run", "pkg")} == {10**18 + 7}
    assert {name: (snapshot / name).readlink() for name in links} == links


def test_submodules_and_nested_checkouts_come_along(repo: Path, tmp_path: Path) -> None:
    sub = repository(tmp_path / "sub")
    git(sub, "submodule", "--quiet", "add", str(repository(tmp_path / "inner")), "deep")
    commit(sub)
    git(repo, "submodule", "--quiet", "add", str(sub), "libs/sub")
    commit(repo)
    missing = inspect_checkout(repo)
    assert missing.uncommitted == ()
    assert "libs/sub/deep is not initialised" in missing.notes[0]
    git(repo, "submodule", "--quiet", "update", "--init", "--recursive")
    assert inspect_checkout(repo).notes == ()
    write(repo, libs__sub__deep__new_dot_py="", libs__sub__x_dot_log="")
    repository(repo / "nested")
    assert inspect_checkout(repo).uncommitted == ("libs/sub/deep/new.py", "nested")
    names = tree(snapshot_of(repo, tmp_path).root)
    scripts = {"libs/sub/train.py", "libs/sub/deep/train.py", "nested/train.py"}
    assert scripts | {"libs/sub/deep/new.py"} <= set(names)
    assert not any(".git" in Path(name).parts or name.endswith(".log") for name in names)
    commit(repo / "libs/sub")  # a submodule at another commit
    assert "libs/sub" in inspect_checkout(repo).uncommitted


def test_a_plain_folder_is_copied_without_what_machines_leave_in_it(tmp_path: Path) -> None:
    """Nor the copy itself, where it lies inside the folder."""
    write(tmp_path, a_dot_py="", sub__b_dot_py="", env__pyvenv_dot_cfg="", env__x="")
    write(tmp_path, node_modules__x="", _dot_venv__x="")
    for folder in ("__pycache__", "sub/__pycache__", "sub/empty"):
        (tmp_path / folder).mkdir()
    os.mkfifo(tmp_path / "pipe")
    snapshot = take_snapshot(inspect_checkout(tmp_path), tmp_path / "s/t")
    assert [note.partition(" was left out")[0] for note in snapshot.notes] == ["pipe"]
    assert tree(snapshot.root) == ["a.py", "sub/b.py"] and (snapshot.root / "sub/empty").is_dir()


@others_only
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(repo: Path, tmp_path: Path) -> None:
    (repo / "train.py").chmod(0)
    with pytest.raises(UsageError, match=r"train\.py cannot be read"):
        snapshot_of(repo, tmp_path)


def test_folders_nested_beyond_what_python_recurses_are_copied(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    for _ in range(1_500):
        os.mkdir("a")
        os.chdir("a")
    Path("x").touch()
    monkeypatch.undo()
    try:
        copy = take_snapshot(inspect_checkout(repo), tmp_path / "copy")
        assert os.path.isfile(copy.root / ("a/" * 1_500 + "x"))
    finally:  # pytest could not remove them
        remove_tree(repo / "a")
        remove_tree(tmp_path / "copy")
