"""Claims about where environments are kept: what counts as whole, who waits for whom, what goes first, and whose folder is trusted."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import remove_tree
from repro_gate.install.store import KEPT, Slot, environments_root, opened, prune
from repro_gate.sandbox.identity import GID, OWN_USER, UID, Isolation

SAME = Isolation()
OWN = Isolation(OWN_USER, UID, GID)


def key(number: int) -> str:
    return f"{number:032x}"


def finished(root: Path, number: int, used: float | None = None) -> Path:
    """An environment as `install` leaves it, last used at that time."""
    with opened(root, key(number)) as slot:
        slot.take()
        (slot.folder / "bin").mkdir(parents=True)
        (slot.folder / "bin/python").touch()
        slot.finish({})
        if used is not None:
            os.utime(slot.marker, (used, used))
        return slot.folder


def whole(root: Path, number: int, isolation: Isolation = SAME) -> bool:
    with opened(root, key(number)) as slot:
        slot.share()
        return slot.whole(isolation)


def test_a_folder_counts_once_its_marker_is_written(tmp_path: Path) -> None:
    (tmp_path / key(1) / "bin").mkdir(parents=True)
    (tmp_path / key(1) / "bin/python").touch()
    assert not whole(tmp_path, 1)
    finished(tmp_path, 2)
    assert whole(tmp_path, 2)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"layout": 0}', "[" * 100_000])
def test_a_marker_that_says_something_else_does_not_count(tmp_path: Path, content: str) -> None:
    folder = finished(tmp_path, 1)
    Path(f"{folder}.json").write_text(content)
    assert not whole(tmp_path, 1)


def test_an_environment_that_was_moved_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    finished(tmp_path / "old", 1)
    (tmp_path / "old").rename(tmp_path / "new")
    assert not whole(tmp_path / "new", 1)


def test_an_environment_whose_interpreter_is_gone_does_not_count(tmp_path: Path) -> None:
    folder = finished(tmp_path, 1)
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to("/nonexistent/python3")
    assert not whole(tmp_path, 1)


def test_an_environment_that_others_may_write_to_does_not_count(tmp_path: Path) -> None:
    folder = finished(tmp_path, 1)
    folder.chmod(0o777)
    assert not whole(tmp_path, 1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of others")
def test_an_environment_of_the_trainings_own_user_does_not_count(tmp_path: Path) -> None:
    folder = finished(tmp_path, 1)
    assert whole(tmp_path, 1, OWN)
    os.chown(folder, UID, GID)
    assert not whole(tmp_path, 1, OWN)


def test_who_makes_waits_for_who_uses_and_who_uses_for_who_makes(tmp_path: Path) -> None:
    class Waited(Exception):
        pass

    def waits(seconds: float) -> None:
        raise Waited

    with opened(tmp_path, key(1)) as first, opened(tmp_path, key(1), waits) as second:
        first.share()
        second.share()
        with pytest.raises(Waited):
            second.take()
        first.take()
        with pytest.raises(Waited):
            second.share()
    with opened(tmp_path, key(1), waits) as later:
        later.take()


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path, key(1)) as first, opened(tmp_path, key(1), lambda seconds: None) as second:
        first.take()
        with pytest.raises(Inconclusive, match="held by another gate"):
            second.take()


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    folders = [finished(tmp_path, number, used=1_000_000.0 - number) for number in range(KEPT + 2)]
    prune(tmp_path)
    assert [folder.exists() for folder in folders] == [True] * KEPT + [False] * 2
    assert not Path(f"{folders[-1]}.json").exists()


def test_what_is_in_use_stays_and_what_was_never_finished_goes(tmp_path: Path) -> None:
    folders = [finished(tmp_path, number, used=1_000_000.0 - number) for number in range(KEPT + 2)]
    (tmp_path / key(90) / "bin").mkdir(parents=True)
    (tmp_path / f"{key(91)}.work").mkdir()
    with opened(tmp_path, key(KEPT + 1)) as slot:
        slot.share()
        prune(tmp_path)
    assert folders[-1].exists() and not folders[-2].exists()
    assert not (tmp_path / key(90)).exists() and not (tmp_path / f"{key(91)}.work").exists()


def test_nothing_but_environments_is_pruned(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "data.sqlite3").touch()
    prune(tmp_path)
    assert (tmp_path / "notes").exists() and (tmp_path / "data.sqlite3").exists()


def test_the_cache_below_home_is_private_and_a_named_one_is_used_as_it_is(tmp_path: Path) -> None:
    root = environments_root({"HOME": str(tmp_path)}, None, SAME)
    assert root == tmp_path / ".cache/repro-gate/environments"
    assert root.parent.stat().st_mode & 0o777 == 0o700  # the cache of data digests in it asks for that
    assert environments_root({}, tmp_path / "named", SAME) == tmp_path / "named/environments"


def test_no_home_is_said(tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match="no HOME"):
        environments_root({}, None, SAME)


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "named/environments").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Inconclusive, match="others may write"):
        environments_root({}, tmp_path / "named", SAME)


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a training as another user")
def test_a_folder_that_the_trainings_user_cannot_enter_is_refused_with_the_one_to_open() -> None:
    place = Path(tempfile.mkdtemp(prefix="repro-gate-test-")).resolve()  # pytest closes its own to others
    try:
        place.chmod(0o755)
        (place / "closed").mkdir(mode=0o700)
        with pytest.raises(UsageError) as caught:
            environments_root({}, place / "closed/cache", OWN)
        assert f"chmod o+x {place / 'closed'}" in caught.value.remedy
        assert environments_root({}, place / "cache", OWN).is_dir()
    finally:
        remove_tree(place)


def test_a_marker_holds_what_was_made(tmp_path: Path) -> None:
    with opened(tmp_path, key(1)) as slot:
        slot.take()
        slot.finish({"lock": "a.lock"})
        assert isinstance(slot, Slot) and json.loads(slot.marker.read_text())["lock"] == "a.lock"
