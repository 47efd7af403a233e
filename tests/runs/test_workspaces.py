"""Claims about snapshots and workspaces, on real git repositories."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import Snapshot, take_snapshot
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import remove_tree
from repro_gate.runs.workspaces import fresh_workspace, spare_of
from repro_gate.spec.model import DataItem
from tests.support.repositories import commit, git, repository, tree, write

others_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def snapshot_of(folder: Path, tmp_path: Path) -> Snapshot:
    return take_snapshot(inspect_checkout(folder), tmp_path / "snapshot")


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


def test_each_workspace_is_the_snapshot_again_at_the_same_path(repo: Path, tmp_path: Path) -> None:
    snapshot, place = snapshot_of(repo, tmp_path), tmp_path / "place"
    first = fresh_workspace(snapshot, place, (), repo / "pkg")
    places = (first.root, first.directory, first.home, first.tmp)
    assert places == tuple(place / name for name in ("workspace", "workspace/pkg", "home", "tmp"))
    write(first.root, train_dot_py="changed", left="behind")
    write(first.home, _dot_cache="x")
    (first.root / "pkg").chmod(0)
    assert fresh_workspace(snapshot, place, (), repo / "pkg") == first
    assert tree(first.root) == tree(snapshot.root) and tree(first.home) == tree(first.tmp) == []
    assert (first.root / "train.py").read_text() == "print(1)"


def _next(snapshot: Snapshot, place: Path, spec_dir: Path) -> Path:
    """The workspace after the one in `place`, as `site_of` makes it."""
    before = place.with_name("before")
    remove_tree(before)
    place.rename(before)
    root = fresh_workspace(snapshot, place, (), spec_dir, (), spare_of(before)).root
    remove_tree(before)
    return root


def _begin(place: Path) -> None:
    """What the gate writes last before a run, at another tick of the kernel's clock than what is
    before and behind it."""
    time.sleep(0.03)
    (place / "probe.json").write_text("{}")
    time.sleep(0.03)


def test_what_a_run_left_alone_is_moved_and_not_copied_again(repo: Path, tmp_path: Path) -> None:
    snapshot, place = snapshot_of(repo, tmp_path), tmp_path / "place"
    root = fresh_workspace(snapshot, place, (), repo).root
    inodes = {name: (root / name).stat().st_ino for name in tree(root)}
    _begin(place)
    root = _next(snapshot, place, repo)
    assert {name: (root / name).stat().st_ino for name in tree(root)} == inodes
    assert (root / "train.py").stat().st_mtime_ns == (repo / "train.py").stat().st_mtime_ns


def test_what_a_run_touched_is_copied_again(repo: Path, tmp_path: Path) -> None:
    """Also where it put size and time back, left a second name for the file, or led to a like file
    of somebody else's."""
    names = ("same", "bytes", "mode", "linked", "gone", "moved", "led/a", "other/a")
    write(repo, **{name.replace("/", "__"): name for name in names})
    write(tmp_path, outside__a="led/a")
    snapshot, place, outside = snapshot_of(repo, tmp_path), tmp_path / "place", tmp_path / "outside"
    root = fresh_workspace(snapshot, place, (), repo).root
    _begin(place)
    times = (root / "bytes").stat()
    (root / "bytes").write_text("BYTES")
    os.utime(root / "bytes", ns=(times.st_atime_ns, times.st_mtime_ns))
    (root / "mode").chmod(0o600)
    os.link(root / "linked", tmp_path / "second-name")
    (root / "gone").unlink()
    (root / "moved").rename(root / "new")
    remove_tree(root / "led")
    (root / "led").symlink_to(outside)
    (root / "other").rename(root / "inner")
    (root / "other").mkdir()
    inode = (root / "same").stat().st_ino
    root = _next(snapshot, place, repo)
    assert tree(root) == tree(snapshot.root) and (outside / "a").exists()
    for name in names:
        state = (root / name).stat()
        assert (root / name).read_text() == name
        assert (state.st_mode, state.st_nlink) == ((repo / name).stat().st_mode, 1), name
    (tmp_path / "second-name").write_text("written later")
    assert (root / "linked").read_text() == "linked" and (root / "same").stat().st_ino == inode


def test_a_folder_in_place_of_another_gives_nothing(repo: Path, tmp_path: Path) -> None:
    """A file in a folder that was renamed has not changed since the run began, and is another
    one."""
    write(repo, one__a="1", two__a="2")
    snapshot, place = snapshot_of(repo, tmp_path), tmp_path / "place"
    root = fresh_workspace(snapshot, place, (), repo).root
    _begin(place)
    (root / "one").rename(root / "three")
    (root / "two").rename(root / "one")
    root = _next(snapshot, place, repo)
    assert [(root / name).read_text() for name in ("one/a", "two/a")] == ["1", "2"]
    assert "three" not in os.listdir(root)


def test_declared_data_is_linked_to_the_original(repo: Path, tmp_path: Path) -> None:
    write(repo, pkg__data__train_dot_bin="d", build__set__a="a")
    write(tmp_path, big="x")  # outside, by its absolute path: it needs no link
    absolute = (repo.resolve() / "pkg/model.py", tmp_path / "big")
    items = tuple(map(DataItem, ("data/train.bin", "../build/set", *map(str, absolute))))
    space = fresh_workspace(snapshot_of(repo, tmp_path), tmp_path / "place", items, repo / "pkg")
    links = {
        str(path.relative_to(space.root)) for path in space.root.rglob("*") if path.is_symlink()
    }
    assert links == {"pkg/data/train.bin", "build/set", "pkg/model.py"}
    assert all((space.root / name).readlink() == repo.resolve() / name for name in links)


def test_overlapping_and_linked_data_never_write_through_a_link(repo: Path, tmp_path: Path) -> None:
    write(tmp_path, disk__train_dot_bin="d", disk__other="o")
    (repo / "data").symlink_to("../disk")
    write(repo, more__a="a", more__b="b")
    items = tuple(map(DataItem, ("data/train.bin", "more/a", "more", "more/b")))
    space = fresh_workspace(snapshot_of(repo, tmp_path), tmp_path / "place", items, repo)
    for name, text in {"data/train.bin": "d", "more/b": "b"}.items():
        assert (space.root / name).read_text() == text and not (repo / name).is_symlink()
    assert tree(tmp_path / "disk") == ["other", "train.bin"]


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("../outside", UsageError, "leads out of the checkout"),
        ("pkg/../../outside", UsageError, "leads out"),
        (".", UsageError, "the spec itself"),
        ("none.bin", Inconclusive, "'none.bin' does not exist"),
        ("/none/at/all", Inconclusive, "'/none/at/all' does not exist"),
        ("a\0b", UsageError, "not a path"),
    ],
)
def test_data_that_is_not_there_or_escapes_is_named(
    repo: Path, tmp_path: Path, path: str, error: type[Exception], said: str
) -> None:
    write(tmp_path, outside="x")
    with pytest.raises(error, match=said):
        fresh_workspace(snapshot_of(repo, tmp_path), tmp_path / "place", (DataItem(path),), repo)
