"""Claims about workspaces, on real git repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.checkout.snapshot import Snapshot
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import remove_tree
from repro_gate.runs.workspaces import GateFolder, Workspace, fresh_workspace
from repro_gate.spec.model import DataItem, Spec, Train
from tests.support.repositories import repository, snapshot_of, tree, write


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def make(snapshot: Snapshot, place: Path, items: tuple[DataItem, ...], spec_dir: Path) -> Workspace:
    """The next workspace below `place`, of a spec in `spec_dir`."""
    spec = Spec(path=spec_dir / "repro.yml", train=Train(run="true"), data=items)
    return fresh_workspace(spec, GateFolder(path=place, snapshot=snapshot, outer={}))


def test_each_workspace_is_the_snapshot_again_at_the_same_path(repo: Path, tmp_path: Path) -> None:
    snapshot, place = snapshot_of(repo, tmp_path), tmp_path / "place"
    first = make(snapshot, place, (), repo / "pkg")
    places = (first.root, first.cwd, first.home, first.tmp)
    assert places == tuple(
        place / "run" / name for name in ("workspace", "workspace/pkg", "home", "tmp")
    )
    write(first.root, train_dot_py="changed", left="behind")
    write(first.home, _dot_cache="x")
    (first.root / "pkg").chmod(0)
    assert make(snapshot, place, (), repo / "pkg") == first
    assert tree(first.root) == tree(snapshot.root) and tree(first.home) == tree(first.tmp) == []
    assert (first.root / "train.py").read_text() == "print(1)"


def test_no_file_of_a_run_is_one_of_the_run_before(repo: Path, tmp_path: Path) -> None:
    """Neither by its number (inode), on which a training could depend, nor by a second name or
    through a link that the run before made."""
    write(repo, linked="linked", led__a="led")
    write(tmp_path, outside__a="led")
    snapshot, place = snapshot_of(repo, tmp_path), tmp_path / "place"
    root = make(snapshot, place, (), repo).root
    numbers = {(root / name).stat().st_ino for name in tree(root)}
    os.link(root / "linked", tmp_path / "second-name")
    remove_tree(root / "led")
    (root / "led").symlink_to(tmp_path / "outside")
    root = make(snapshot, place, (), repo).root
    assert not numbers & {(root / name).stat().st_ino for name in tree(root)}
    (tmp_path / "second-name").write_text("written later")
    assert (root / "linked").read_text() == "linked" and (tmp_path / "outside/a").exists()


def test_declared_data_is_linked_to_the_original(repo: Path, tmp_path: Path) -> None:
    write(repo, pkg__data__train_dot_bin="d", build__set__a="a")
    write(tmp_path, big="x")  # outside, by its absolute path: it needs no link
    absolute = (repo.resolve() / "pkg/model.py", tmp_path / "big")
    items = tuple(map(DataItem, ("data/train.bin", "../build/set", *map(str, absolute))))
    space = make(snapshot_of(repo, tmp_path), tmp_path / "place", items, repo / "pkg")
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
    space = make(snapshot_of(repo, tmp_path), tmp_path / "place", items, repo)
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
    ],
)
def test_data_that_is_not_there_or_escapes_is_named(
    repo: Path, tmp_path: Path, path: str, error: type[Exception], said: str
) -> None:
    write(tmp_path, outside="x")
    with pytest.raises(error, match=said):
        make(snapshot_of(repo, tmp_path), tmp_path / "place", (DataItem(path),), repo)
