"""What a training could do is tried before it runs, and anything that works stops the gate."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.sandbox import self_test
from repro_gate.sandbox.identity import chown_to_training
from repro_gate.sandbox.self_test import ATTEMPTS, Exposure, prove
from repro_gate.sandbox.start import command
from tests.support.starting import OWN, SYSTEM, needs_own_user, ran

pytestmark = needs_own_user


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    found = tmp_path / "scratch"
    found.mkdir()
    chown_to_training(OWN, found)
    return found


def private_file(folder: Path, name: str, mode: int) -> Path:
    path = folder / name
    path.write_text("secret")
    path.chmod(mode)
    return path


def breached(exposure: Exposure, scratch: Path, **more: str) -> str:
    with pytest.raises(Inconclusive) as raised:
        prove(OWN, exposure, {"PATH": SYSTEM, **more}, scratch)
    assert raised.value.reason_id == "sandbox/breached"
    return raised.value.message


def trial(**more: object) -> str:
    """The question to the program itself."""
    lists = ("unreadable", "unwritable", "sockets", "forbidden", "reach", "data", "start")
    return json.dumps({"uid": OWN.uid, **{name: [] for name in lists}, **more})


def test_a_training_that_is_kept_apart_passes(scratch: Path, tmp_path: Path) -> None:
    token = private_file(tmp_path, "token", 0o600)
    hidden = {"unreadable": (token, tmp_path / "not-there"), "unwritable": (tmp_path,)}
    apart = Exposure(**hidden, reach=(scratch,), start=(Path("/bin/true"),))
    prove(OWN, apart, {"PATH": SYSTEM}, scratch)


def test_what_is_open_is_named_and_not_changed(scratch: Path, tmp_path: Path) -> None:
    said = breached(Exposure(forbidden=("GITHUB_TOKEN",)), scratch, GITHUB_TOKEN="hush")
    assert said.endswith("user can read the variable GITHUB_TOKEN")
    for mode, said in ((0o604, "read"), (0o602, "write to")):
        path = private_file(tmp_path, "token", mode)
        assert f"user can {said} {path}" in breached(Exposure(unreadable=(path,)), scratch)
    folder = tmp_path / "package"
    folder.mkdir()
    folder.chmod(0o777)
    assert f"user can write to {folder}" in breached(Exposure(unwritable=(folder,)), scratch)
    assert f"user can read {folder}" in breached(Exposure(unreadable=(folder,)), scratch)
    assert list(folder.iterdir()) == []


def test_a_socket_that_answers_is_named(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("docker.sock")
        listening.listen()
        path.chmod(0o660)
        prove(OWN, Exposure(sockets=(path,)), {"PATH": SYSTEM}, scratch)
        path.chmod(0o666)
        assert breached(Exposure(sockets=(path,)), scratch).endswith(f"user can connect to {path}")


def out_of_reach(exposure: Exposure, scratch: Path) -> Inconclusive:
    with pytest.raises(
        Inconclusive, match=r"training user cannot use .*Permission denied"
    ) as raised:
        prove(OWN, exposure, {"PATH": SYSTEM}, scratch)
    assert raised.value.reason_id == "sandbox/out-of-reach"
    return raised.value


def test_what_is_out_of_reach_is_named_with_its_barrier(scratch: Path, tmp_path: Path) -> None:
    out_of_reach(Exposure(reach=(private_file(tmp_path, "train.bin", 0o600),)), scratch)
    out_of_reach(Exposure(start=(private_file(tmp_path, "python", 0o700),)), scratch)
    home, python = tmp_path / "home", tmp_path / "home/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    home.chmod(0o700)
    raised = out_of_reach(Exposure(start=(python,)), scratch)
    assert f"{home} is closed to other users (mode 700)" in raised.message
    assert f"chmod o+x {home}" in raised.remedy and "/opt" in raised.remedy
    # of data nobody can tell whether it was the gate that closed it
    assert "chmod" not in out_of_reach(Exposure(data=(python,)), scratch).remedy
    home.chmod(0o711)
    prove(OWN, Exposure(start=(python,)), {"PATH": SYSTEM}, scratch)


def test_without_a_trial_the_gate_ends(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for interpreters in ((), ("/bin/true",), ("/bin/false",)):
        monkeypatch.setattr(self_test, "_INTERPRETERS", interpreters)
        with pytest.raises(Inconclusive, match="self-test could not run"):
            prove(OWN, Exposure(), {"PATH": SYSTEM}, scratch)


MOUNTS = 'cat /proc/self/mounts >"$1/before"; "$2" -I -S "$3"; cat /proc/self/mounts >"$1/after"'


def test_the_same_attempts_succeed_and_do_no_harm_where_nobody_keeps_them_apart(
    tmp_path: Path,
) -> None:
    """The program as root, so as a training that shares its user with the gate, but for a mount
    namespace in which harm would stay: every kind of attempt can succeed, and is told; no mount, no
    file, no mode is another afterwards."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = private_file(folder, "file", 0o600)
    places = {"unreadable": [str(path)], "unwritable": [str(folder), str(path)]}
    command = ["unshare", "--mount", "/bin/sh", "-c", MOUNTS, "sh", str(tmp_path), sys.executable]
    before = os.stat(path)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as gate:
        asked = trial(gate=gate.pid, forbidden=["MARK"], **places)
        environment = {**os.environ, "MARK": "1"}
        done = ran([*command, str(ATTEMPTS)], environment, input=asked, check=True)
        gate.kill()
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text() != ""
    now = os.stat(path)
    assert (now.st_mode, now.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert os.listdir(folder) == ["file"] and path.read_text() == "secret"
    said = json.loads(done.stdout)["succeeded"]
    assert len(said) == 100
    kinds = ("be uid", "hold CapEff", "set-user-id", "variable MARK", "/environ", "signal process")
    kinds += ("mount a file", "mounts of its own", "groups", "group 0", "by setuid", "by seteuid")
    kinds += ("trace the gate", "signal the gate")
    assert [kind for kind in kinds if kind not in "\n".join(said)] == []


def test_a_forgotten_user_is_found_out(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgot = lambda sandbox, *rest: command(replace(sandbox, uid=0), *rest)  # noqa: E731
    monkeypatch.setattr(self_test, "command", forgot)
    assert "user can be uid" in breached(Exposure(), scratch)


def test_a_user_namespace_opens_nothing(scratch: Path, tmp_path: Path) -> None:
    """As a bare host grants it: the training is root there, and mounts."""
    path, kept = private_file(tmp_path, "token", 0o600), tmp_path / "kept"
    kept.mkdir()
    program = """
        mount -t tmpfs none "$1/kept" && touch "$1/kept/hidden" && id -u
        for name in "$1/token" /proc/$2/environ /proc/$2/mem /proc/1/environ; do cat "$name" && echo opened "$name"; done
        kill -0 $2 && echo signalled
        touch "$1/new" && echo written
    """
    start = ["unshare", "-Urm", "/bin/sh", "-c", program, "sh", str(tmp_path), str(os.getpid())]
    argv, given = command(OWN, start, {"PATH": f"{SYSTEM}:/sbin"})
    done = ran(argv, given, scratch)
    if done.stderr.startswith("unshare:"):
        pytest.skip("this kernel grants no user namespace")
    assert done.stdout == "0\n", done.stdout
    assert path.read_text() == "secret" and [*kept.iterdir()] == []
