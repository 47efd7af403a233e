"""What a run leaves where everybody may write is gone before the next, and nothing of others'."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from repro_gate.errors import Inconclusive
from repro_gate.files import remove_tree
from repro_gate.sandbox import cleanup
from repro_gate.sandbox.cleanup import Left, sweep
from tests.support.starting import OWN, SAME, attempt, needs_own_user

pytestmark = needs_own_user
LEAVE = """
import os, sys
top = sys.argv[1]
os.makedirs(top + "/deep/er")
for name in ("plain", "two\\nlines", "deep/er/file"):
    open(top + "/" + name, "w").close()
os.symlink("/etc", top + "/link")
os.mkfifo(top + "/pipe")
os.chmod(top + "/deep/er", 0)
os.chmod(top + "/deep", 0)
print("left")
"""
SYSTEM_V = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0x5265, 4096, 0o1600) >= 0, libc.semget(0x5265, 1, 0o1600) >= 0, libc.msgget(0x5265, 0o1600) >= 0)
"""
# keyctl(2), add_key(2): a key in each keyring that outlives a process, or looking for one there
KEYS = """
import ctypes, os, sys
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
call = ctypes.CDLL(None).syscall
call.restype = ctypes.c_long
rings = {"user": -4, "user session": -5, "session": -3, "persistent": call(ctypes.c_long(keyctl), 22, -1, -2)}
def leave(ring):
    return call(ctypes.c_long(add_key), b"user", b"told", b"x", ctypes.c_long(1), ctypes.c_long(ring)) != -1
def find(ring):
    return call(ctypes.c_long(keyctl), ctypes.c_long(10), ctypes.c_long(ring), b"user", b"told", ctypes.c_long(0)) != -1
print(*(name for name, ring in rings.items() if ring != -1 and {"leave": leave, "find": find}[sys.argv[1]](ring)))
"""
REOPENED = SYSTEM_V.replace("0o1600", "0o600")


@pytest.fixture
def name() -> Iterator[str]:
    name = f"repro-gate-test-{secrets.token_hex(6)}"
    yield name
    for place in cleanup.OPEN_TO_ALL:
        remove_tree(Path(place, name))


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm"])
def test_what_is_left_in_a_shared_place_is_removed(place: str, name: str) -> None:
    top = Path(place, name)
    assert attempt(OWN, LEAVE, top) == "left"
    assert sweep(SAME) == Left() and top.exists()  # one user for both: what is whose cannot be told
    assert str(top) in sweep(OWN).removed
    assert not top.exists() and Path("/etc/passwd").exists()
    assert sweep(OWN) == Left()


def test_what_is_others_or_declared_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "shared" / "inner").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "shared", tmp_path / "shared" / "inner"):
        folder.chmod(0o1777)
    (tmp_path / "shared" / "theirs").write_text("of another user")
    os.chown(tmp_path / "shared" / "theirs", 1001, 1001)
    assert attempt(OWN, LEAVE, tmp_path / "shared" / "inner" / "hidden") == "left"
    assert sweep(OWN).removed == (str(tmp_path / "shared" / "inner" / "hidden"),)
    left = sorted(path.name for path in tmp_path.rglob("*"))
    assert left == ["inner", "mine", "shared", "theirs"]
    # declared data stays, whosever it is
    for kept in ("set", "other"):
        (tmp_path / kept / "deep").mkdir(parents=True)
        os.chown(tmp_path / kept, OWN.uid, OWN.uid)
    assert sweep(OWN, [tmp_path / "set" / "deep"]).removed == (str(tmp_path / "other"),)
    assert (tmp_path / "set" / "deep").is_dir()


def test_an_open_mount_is_a_shared_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "a volume"
    volume.mkdir()
    volume.chmod(0o777)
    mounts = [SimpleNamespace(mountpoint=str(place)) for place in (volume, "/gone")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    assert attempt(OWN, LEAVE, volume / "x") == "left"
    assert sweep(OWN).removed == (str(volume / "x"),)


def test_a_place_that_is_too_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = tmp_path / "full"
    (full / "below").mkdir(parents=True)
    for folder in (full, full / "below"):
        folder.chmod(0o777)
    monkeypatch.setattr(cleanup, "OPEN_TO_ALL", (str(full),))
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [])
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    monkeypatch.setattr(cleanup, "MOST", 1)
    assert sweep(OWN) == Left((), (str(full / "below"),))


def test_objects_of_system_v_are_removed_or_end_the_gating(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attempt(OWN, SYSTEM_V) == "True True True" == attempt(OWN, REOPENED)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: None)
        with pytest.raises(Inconclusive, match=r"cannot be removed: shm:\d+, msg:\d+, sem"):
            sweep(OWN)
    assert sorted(item.split(":")[0] for item in sweep(OWN).removed) == ["msg", "sem", "shm"]
    assert attempt(OWN, REOPENED) == "False False False"


def test_keyrings_carry_nothing_to_the_next_run() -> None:
    left = attempt(OWN, KEYS, "leave")
    if "user" not in left.split():
        pytest.skip(f"keyrings are not to be had here: {left}")
    assert attempt(OWN, KEYS, "find") == left
    sweep(OWN)
    assert attempt(OWN, KEYS, "find") == ""
