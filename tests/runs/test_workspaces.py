"""Claims about snapshots and workspaces, on real git repositories."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import Snapshot, take_snapshot
from repro_gate.data.declared import resolve_data
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


def test_a_snapshot_has_tracked_and_new_files_and_neither_git_folder_nor_data_nor_credential(
    repo: Path, tmp_path: Path
) -> None:
    write(repo, new_dot_py="n", ignored_dot_log="", train_dot_py="print(2)")
    write(repo, data__big="x", data2="y", **{"gha-creds-0123abcd.json": "secret"})
    write(repo, **{"gha-creds-of-mine.json": "a file of the project's"})
    (repo / "pkg/model.py").unlink()
    data = [repo.resolve() / "data"]
    snapshot = take_snapshot(inspect_checkout(repo), tmp_path / "s", leave_out=data)
    names = [".gitignore", "data2", "gha-creds-of-mine.json", "new.py", "train.py"]
    assert tree(snapshot.root) == names
    assert (snapshot.files, snapshot.source) == (5, repo.resolve())
    assert snapshot.notes == (
        "gha-creds-0123abcd.json was left out: a step of the job keeps its credential there",
    )
    write(repo, train_dot_py="print(4)")
    assert (snapshot.root / "train.py").read_text() == "print(2)"


def test_modes_times_and_links_are_kept_and_links_are_not_followed(
    repo: Path, tmp_path: Path
) -> None:
    (repo / "run.sh").write_text("#!/bin/sh")
    (repo / "run.sh").chmod(0o755)
    write(tmp_path, outside__model_dot_py="secret")
    (repo / "away").symlink_to(tmp_path / "outside")
    (repo / "broken").symlink_to("nowhere")
    commit(repo, led__model_dot_py="")
    for name, mtime in (("run.sh", 10**18 + 7), ("pkg", 10**18 + 9)):
        os.utime(repo / name, ns=(10**18, mtime))
    (repo / "led/model.py").unlink()
    (repo / "led").rmdir()
    (repo / "led").symlink_to(tmp_path / "outside")  # a tracked folder that became a link
    snapshot = snapshot_of(repo, tmp_path).root
    assert stat.S_IMODE((snapshot / "run.sh").stat().st_mode) == 0o755
    assert (snapshot / "run.sh").stat().st_mtime_ns == 10**18 + 7
    assert (snapshot / "pkg").stat().st_mtime_ns == 10**18 + 9
    assert (
        os.readlink(snapshot / "away") == os.readlink(snapshot / "led") == str(tmp_path / "outside")
    )
    assert os.readlink(snapshot / "broken") == "nowhere" and not list(snapshot.glob("model.py"))


def test_submodules_and_nested_checkouts_come_with_their_own_new_files(
    repo: Path, tmp_path: Path
) -> None:
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


def test_a_plain_folder_is_copied_without_what_machines_leave_in_it_and_special_files(
    tmp_path: Path,
) -> None:
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
    names = ("same", "bytes", "mode", "linked", "gone", "moved", "led/a", "other/a", "swapped/a")
    write(
        repo, **{name.replace("/", "__"): "led" if name == "led/a" else name[-1] for name in names}
    )
    snapshot, place, outside = snapshot_of(repo, tmp_path), tmp_path / "place", tmp_path / "outside"
    root = fresh_workspace(snapshot, place, (), repo).root
    write(outside, a="led")
    _begin(place)
    times = (root / "bytes").stat()
    (root / "bytes").write_text("x")
    os.utime(root / "bytes", ns=(times.st_atime_ns, times.st_mtime_ns))
    (root / "mode").chmod(0o600)
    os.link(root / "linked", tmp_path / "second-name")
    (root / "gone").unlink()
    (root / "moved").rename(root / "new")
    (root / "led/a").unlink()
    (root / "led").rmdir()
    (root / "led").symlink_to(outside)
    (root / "other").rename(root / "swapped/inner")
    (root / "other").mkdir()
    inode = (root / "same").stat().st_ino
    root = _next(snapshot, place, repo)
    assert tree(root) == tree(snapshot.root) and (outside / "a").exists()
    for name in names:
        assert (root / name).read_text() == (repo / name).read_text(), name
        state = (root / name).stat()
        assert (state.st_mode, state.st_nlink) == ((repo / name).stat().st_mode, 1), name
    (tmp_path / "second-name").write_text("written later")
    assert (root / "linked").read_text() == "d" and (root / "same").stat().st_ino == inode


def test_a_folder_that_stands_in_for_another_gives_nothing_that_differs(
    repo: Path, tmp_path: Path
) -> None:
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
    original = repo.resolve() / "pkg/data/train.bin"
    assert os.readlink(space.root / "pkg/data/train.bin") == str(original)
    assert (space.root / "build/set/a").read_text() == "a"
    assert (space.root / "build/set").is_symlink() and (space.root / "pkg/model.py").is_symlink()
    assert not list(space.root.rglob("big"))
    assert resolve_data(items[:1], repo / "pkg") == (original,)


def test_overlapping_and_linked_data_never_write_through_a_link(repo: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    write(disk, train_dot_bin="d", other="o")
    (repo / "data").symlink_to("../disk")
    write(repo, more__a="a", more__b="b")
    items = tuple(map(DataItem, ("data/train.bin", "more/a", "more", "more/b")))
    space = fresh_workspace(snapshot_of(repo, tmp_path), tmp_path / "place", items, repo)
    assert (space.root / "data/train.bin").read_text() == "d"
    assert (space.root / "more/b").read_text() == "b"
    assert tree(disk) == ["other", "train.bin"] and not (disk / "train.bin").is_symlink()
    assert not (repo / "more/b").is_symlink()


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
