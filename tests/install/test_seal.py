"""Claims about handing an environment over: what pip and built code left behind becomes the gate's, or is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.install.seal import let_go, seal, shut
from repro_gate.sandbox.identity import GID, OWN_USER, UID, Isolation
from repro_gate.sandbox.ownership import give

SAME = Isolation()
OWN = Isolation(OWN_USER, UID, GID)
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


def tree(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/deep").mkdir(parents=True)
    (folder / "bin/run").write_text("#!/bin/sh\n")
    (folder / "bin/run").chmod(0o4755)
    (folder / "lib/deep/module.py").write_text("x = 1\n")
    (folder / "lib/deep/module.py").chmod(0o600)
    (folder / "lib64").symlink_to("lib")
    return folder


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*") if not path.is_symlink()}


def test_nothing_can_be_written_afterwards(tmp_path: Path) -> None:
    folder = tree(tmp_path / "e")
    assert seal(folder, SAME) == 6
    assert modes(folder) == {"bin": 0o555, "bin/run": 0o555, "lib": 0o555, "lib/deep": 0o555, "lib/deep/module.py": 0o400}


@AS_ROOT
def test_what_the_trainings_user_made_becomes_the_gates_and_stays_readable(tmp_path: Path) -> None:
    folder = tree(tmp_path / "e")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, GID, follow_symlinks=False)
    seal(folder, OWN)
    assert {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {os.getuid()}
    assert modes(folder) == {"bin": 0o755, "bin/run": 0o555, "lib": 0o755, "lib/deep": 0o755, "lib/deep/module.py": 0o444}


def test_what_is_let_go_can_be_removed_by_its_owner_and_is_shut_again_for_the_next_gate(tmp_path: Path) -> None:
    folder = tree(tmp_path / "e")
    seal(folder, SAME)
    shut_modes = modes(folder)
    let_go(folder, SAME)
    assert modes(folder) == {"bin": 0o755, "bin/run": 0o555, "lib": 0o755, "lib/deep": 0o755, "lib/deep/module.py": 0o400}
    shut(folder, SAME)
    assert modes(folder) == shut_modes and stat.S_IMODE(folder.stat().st_mode) == 0o555


def test_letting_go_follows_no_link_and_misses_nothing_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o500)
    folder = tree(tmp_path / "e")
    (folder / "lib/out").symlink_to(tmp_path / "outside")
    let_go(folder, SAME)
    let_go(tmp_path / "gone", SAME)
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o500


@AS_ROOT
def test_an_empty_folder_is_given_away_and_only_where_there_is_another_user(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    give(SAME, tmp_path / "e")
    assert (tmp_path / "e").stat().st_uid == os.getuid()
    give(OWN, tmp_path / "e")
    assert (tmp_path / "e").stat().st_uid == UID


@pytest.mark.parametrize("isolation", [SAME, pytest.param(OWN, marks=AS_ROOT)])
def test_a_second_name_of_a_file_from_elsewhere_is_refused_and_left_as_it_was(tmp_path: Path, isolation: Isolation) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    folder = tree(tmp_path / "e")
    os.link(secret, folder / "lib/a.py")
    with pytest.raises(Inconclusive, match="another name of a file"):
        seal(folder, isolation)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    folder = tree(tmp_path / "e")
    os.mkfifo(folder / "lib/pipe")
    with pytest.raises(Inconclusive, match="no file, folder or link"):
        seal(folder, SAME)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("x")
    folder = tree(tmp_path / "e")
    (folder / "lib/out").symlink_to(tmp_path / "outside")
    before = (tmp_path / "outside/file").stat().st_mode
    seal(folder, SAME)
    assert (tmp_path / "outside/file").stat().st_mode == before
    assert (tmp_path / "outside").stat().st_mode & 0o200
