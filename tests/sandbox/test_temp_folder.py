"""The folder of a gate run: always the same path, nobody else's, and gone at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from repro_gate.sandbox.temp_folder import fixed_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders of this test lie in a place of their own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_one_gating_after_the_other_has_the_same_path(folder: Path) -> None:
    paths = []
    for _ in range(3):
        with fixed_folder() as place:
            (place / "run").mkdir()
            paths.append(place)
            assert place.stat().st_mode & 0o777 == 0o700
    assert len(set(paths)) == 1 and list(folder.iterdir()) == []


def test_two_at_once_do_not_share(folder: Path) -> None:
    with fixed_folder() as first, fixed_folder() as second:
        assert first != second
        with fixed_folder() as third:
            assert third not in (first, second)
    assert list(folder.iterdir()) == []


def test_a_mount_on_which_nothing_can_be_started_is_named(folder: Path) -> None:
    """It said that there is no torch: the `python` that brings the probe could not be started, and another one was found."""
    (folder / "mount/below").mkdir(parents=True)
    program = "import tempfile, sys\nfrom repro_gate.sandbox.temp_folder import fixed_folder\n"
    program += "tempfile.tempdir = sys.argv[1]\nwith fixed_folder(): print('made')"
    mounted = 'mount -t tmpfs -o "$1" none "$2" && mkdir "$2/below" && exec "$3" -c "$4" "$2/below"'

    def told(options: str) -> str:
        command = ["unshare", "--mount", "sh", "-c", mounted, "sh", options, str(folder / "mount"), sys.executable, program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    if "made" not in told("exec"):
        pytest.skip("nothing can be mounted here")
    assert f"lies on {folder / 'mount'}, which is mounted noexec" in told("noexec")


def test_it_is_removed_when_the_gating_fails(folder: Path) -> None:
    with pytest.raises(RuntimeError), fixed_folder():
        raise RuntimeError
    assert list(folder.iterdir()) == []


def test_the_place_of_a_gate_that_was_killed_is_taken_over(folder: Path) -> None:
    program = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from repro_gate.sandbox.temp_folder import fixed_folder
with fixed_folder() as place:
    (place / "left").mkdir()
    print(place, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert left.is_dir() and (left / "left").is_dir()
    with fixed_folder() as place:
        assert place == left and not (place / "left").exists()
    assert list(folder.iterdir()) == []


def test_a_folder_that_somebody_made_is_left_alone(folder: Path) -> None:
    name = f"repro-gate-{os.getuid()}-0"
    (folder / name).mkdir()
    with fixed_folder() as place:
        assert place.name == f"repro-gate-{os.getuid()}-1", "it may be somebody who is just making it"
    os.utime(folder / name, (time.time() - 3600,) * 2)
    with fixed_folder() as place:
        assert place.name == name, "nobody is"
    target = folder / "target"
    target.mkdir()
    (folder / name).symlink_to(target)
    with fixed_folder() as place:
        assert place.name == f"repro-gate-{os.getuid()}-1"
    assert target.is_dir()


def test_two_that_find_an_abandoned_place_do_not_both_take_it_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one moves it away, another that looks at it finds it held, and takes the next."""
    left = folder / f"repro-gate-{os.getuid()}-0"
    left.mkdir()
    (left / "held").touch()
    seen: list[str] = []
    rename = Path.rename

    def between(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        with fixed_folder() as other:
            seen.append(other.name)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", between)
    with fixed_folder() as place:
        assert place == left and seen == [f"repro-gate-{os.getuid()}-1"]
    assert list(folder.iterdir()) == []
