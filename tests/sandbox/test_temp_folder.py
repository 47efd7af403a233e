"""The folder of a gate run: always the same path, nobody else's, and gone at the end."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from repro_gate.files import own_lock
from repro_gate.sandbox import cleanup
from tests.support.gates import ROOT
from tests.support.starting import SAME, needs_own_user, ran

OPEN = """
import sys, tempfile
from repro_gate.sandbox.cleanup import fixed_folder
from repro_gate.sandbox.identity import Sandbox
tempfile.tempdir = sys.argv[1]
place = fixed_folder(Sandbox(), None)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders of this test lie in a place of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def fixed_folder() -> AbstractContextManager[Path]:
    return cleanup.fixed_folder(SAME, None)


def test_the_path_is_the_same_each_time_and_two_at_once_do_not_share(folder: Path) -> None:
    paths = []
    for _ in range(3):
        with fixed_folder() as place:
            (place / "run").mkdir()
            paths.append(place)
            assert place.stat().st_mode & 0o777 == 0o700
    assert len(set(paths)) == 1 and list(folder.iterdir()) == []
    with fixed_folder() as first, fixed_folder() as second, fixed_folder() as third:
        assert len({first, second, third}) == 3
    with pytest.raises(RuntimeError), fixed_folder():
        raise RuntimeError
    assert list(folder.iterdir()) == []


def test_a_mount_on_which_nothing_can_be_started_is_named(folder: Path) -> None:
    """It said that there is no torch: the `python` that brings the probe could not be started, and
    another one was found."""
    (folder / "mount/below").mkdir(parents=True)
    program = OPEN + "with place: print('made')"
    mounted = 'mount -t tmpfs -o "$1" none "$2" && mkdir "$2/below" && exec "$3" -c "$4" "$2/below"'

    def told(options: str) -> str:
        given = ["sh", options, str(folder / "mount"), sys.executable, program]
        command = ["unshare", "--mount", "sh", "-c", mounted, *given]
        done = ran(command, cwd=ROOT)
        return done.stdout + done.stderr

    if "made" not in told("exec"):
        pytest.skip("nothing can be mounted here")
    assert f"lies on {folder / 'mount'}, which is mounted noexec" in told("noexec")


def test_the_place_of_a_gate_that_was_killed_is_taken_over(folder: Path) -> None:
    program = f"""{OPEN}
import os, signal
with place as place:
    (place / "left").mkdir()
    print(place, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = ran([sys.executable, "-c", program, str(folder)], cwd=ROOT)
    left = Path(killed.stdout.strip())
    assert left.is_dir() and (left / "left").is_dir()
    with fixed_folder() as place:
        assert place == left and not (place / "left").exists()
    assert list(folder.iterdir()) == []


@needs_own_user
def test_what_is_not_this_users_own_folder_is_left_alone(folder: Path) -> None:
    theirs = folder / f"repro-gate-{os.getuid()}-0"
    theirs.symlink_to(folder)
    os.chown(theirs, 1001, 1001, follow_symlinks=False)
    with fixed_folder() as place:
        assert place.name == f"repro-gate-{os.getuid()}-1"
    assert theirs.is_symlink()
    assert not list(folder.glob("*.lock"))


def test_a_removed_lock_holds_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gate may end, and remove its lock, between the opening and the locking here: a third
    would make that lock anew."""
    lock = folder / "a.lock"
    flock = fcntl.flock

    def slow(descriptor: int, how: int) -> None:
        lock.unlink()
        flock(descriptor, how)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", slow)
        entered = False
        with pytest.raises(FileNotFoundError), own_lock(lock):
            entered = True
        assert not entered
    with own_lock(lock), pytest.raises(BlockingIOError), own_lock(lock):
        pytest.fail("it went on")
    assert not lock.exists()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    lock.touch()  # of somebody else's: it is not waited for
    with pytest.raises(PermissionError, match="somebody else"), own_lock(lock):
        pytest.fail("it went on")
