"""Claims about `sandbox.self_test`: what a training could do is tried before it runs, and anything
that works stops the gate."""

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
from tests.support.starting import OWN, SAME, SYSTEM, needs_own_user

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


def test_a_training_that_is_kept_apart_passes(scratch: Path, tmp_path: Path) -> None:
    unreadable = (private_file(tmp_path, "token", 0o600), tmp_path / "not-there")
    prove(
        OWN,
        Exposure(
            unreadable=unreadable,
            unwritable=(tmp_path,),
            reach=(scratch,),
            start=(Path("/bin/true"),),
        ),
        {"PATH": SYSTEM},
        scratch,
    )


def test_with_one_user_nothing_is_tried(tmp_path: Path) -> None:
    prove(SAME, Exposure(unreadable=(private_file(tmp_path, "token", 0o600),)), {}, tmp_path)


@pytest.mark.parametrize(("mode", "said"), [(0o604, "read"), (0o602, "write to")])
def test_a_file_that_is_open_is_named(mode: int, said: str, scratch: Path, tmp_path: Path) -> None:
    path = private_file(tmp_path, "token", mode)
    assert f"user can {said} {path}" in breached(Exposure(unreadable=(path,)), scratch)


def test_a_folder_that_can_be_listed_or_written_is_named_and_left_as_it_was(
    scratch: Path, tmp_path: Path
) -> None:
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


def test_a_secret_variable_that_arrives_is_named_and_not_shown(scratch: Path) -> None:
    said = breached(Exposure(forbidden=("GITHUB_TOKEN",)), scratch, GITHUB_TOKEN="hush")
    assert said.endswith("user can read the variable GITHUB_TOKEN")


def test_data_and_interpreters_that_are_out_of_reach_are_named(
    scratch: Path, tmp_path: Path
) -> None:
    for exposure in (
        Exposure(reach=(private_file(tmp_path, "train.bin", 0o600),)),
        Exposure(start=(private_file(tmp_path, "python", 0o700),)),
    ):
        with pytest.raises(
            Inconclusive, match=r"training user cannot use .*Permission denied"
        ) as raised:
            prove(OWN, exposure, {"PATH": SYSTEM}, scratch)
        assert raised.value.reason_id == "sandbox/out-of-reach"


def test_the_folder_that_keeps_an_interpreter_out_of_reach_is_named_with_the_remedy(
    scratch: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "venv/bin").mkdir(parents=True)
    (home / "venv/bin/python").symlink_to("/bin/true")
    home.chmod(0o700)
    with pytest.raises(Inconclusive, match=f"{home} is closed to other users .mode 700.") as raised:
        prove(OWN, Exposure(start=(home / "venv/bin/python",)), {"PATH": SYSTEM}, scratch)
    assert f"chmod o+x {home}" in raised.value.remedy and "/opt" in raised.value.remedy
    with pytest.raises(
        Inconclusive
    ) as raised:  # of data nobody can tell whether it was the gate that closed it
        prove(OWN, Exposure(data=(home / "venv/bin/python",)), {"PATH": SYSTEM}, scratch)
    assert "chmod" not in raised.value.remedy
    home.chmod(0o711)
    prove(OWN, Exposure(start=(home / "venv/bin/python",)), {"PATH": SYSTEM}, scratch)


def test_where_nothing_can_be_tried_the_gate_does_not_go_on(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for interpreters in ((), ("/bin/true",), ("/bin/false",)):
        monkeypatch.setattr(self_test, "_INTERPRETERS", interpreters)
        with pytest.raises(Inconclusive, match="self-test could not run"):
            prove(OWN, Exposure(), {"PATH": SYSTEM}, scratch)


def test_the_same_attempts_succeed_where_nobody_keeps_them_apart(tmp_path: Path) -> None:
    """The program as root, so as a training that shares its user with the gate: every kind of
    attempt can succeed, and is told."""
    token = private_file(tmp_path, "token", 0o600)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as gate:
        question = {
            "uid": OWN.uid,
            "gid": OWN.gid,
            "gate": gate.pid,
            "unreadable": [str(token)],
            "unwritable": [str(tmp_path)],
            "sockets": [],
        }
        question |= {"forbidden": ["MARK"], "reach": [], "data": [], "start": []}
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(ATTEMPTS)],
            input=json.dumps(question),
            env={**os.environ, "MARK": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        gate.kill()
    said = json.loads(done.stdout)["succeeded"]
    everything = "\n".join(said)
    assert len(said) == 100
    assert "be user" in everything
    assert "hold CapEff" in everything
    assert "set-user-id" in everything
    assert "read the variable MARK" in everything
    assert "/environ" in everything
    assert "signal process" in everything


def test_a_gate_that_forgot_to_change_the_user_is_found_out(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        self_test,
        "command",
        lambda sandbox, argv, environment: command(
            replace(sandbox, level="same-user"), argv, environment
        ),
    )
    assert "user can be user" in breached(Exposure(), scratch)


def test_a_user_namespace_opens_nothing_and_what_is_mounted_there_ends_with_it(
    scratch: Path, tmp_path: Path
) -> None:
    """As a bare host grants it: the training is root there, and mounts."""
    path, kept = private_file(tmp_path, "token", 0o600), tmp_path / "kept"
    kept.mkdir()
    program = """
        mount -t tmpfs none "$1/kept" && touch "$1/kept/hidden" && id -u
        for name in "$1/token" /proc/$2/environ /proc/$2/mem /proc/1/environ; do cat "$name" && echo opened "$name"; done
        kill -0 $2 && echo signalled
        touch "$1/new" && echo written
    """
    argv, given = command(
        OWN,
        ["unshare", "-Urm", "/bin/sh", "-c", program, "sh", str(tmp_path), str(os.getpid())],
        {"PATH": f"{SYSTEM}:/sbin"},
    )
    done = subprocess.run(argv, env=given, cwd=scratch, capture_output=True, text=True, check=False)
    if done.stderr.startswith("unshare:"):
        pytest.skip("this kernel grants no user namespace")
    assert done.stdout == "0\n", done.stdout
    assert path.read_text() == "secret" and [*kept.iterdir()] == []


def test_an_attempt_that_succeeds_does_no_harm(tmp_path: Path) -> None:
    """The whole program as root, but for a mount namespace in which harm would stay: no mount, no
    file, no mode is another afterwards."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = private_file(folder, "file", 0o600)
    question = {
        "uid": OWN.uid,
        "gid": OWN.gid,
        "gate": 2**22 + 1,
        "unreadable": [str(path)],
        "unwritable": [str(folder), str(path)],
    }
    question |= {"sockets": [], "forbidden": [], "reach": [], "data": [], "start": []}
    program = (
        'cat /proc/self/mounts > "$1/before"; "$2" -I -S "$3"; cat /proc/self/mounts > "$1/after"'
    )
    before = (os.stat(path), sorted(os.listdir(folder)))
    subprocess.run(
        [
            "unshare",
            "--mount",
            "/bin/sh",
            "-c",
            program,
            "sh",
            str(tmp_path),
            sys.executable,
            str(ATTEMPTS),
        ],
        input=json.dumps(question).encode(),
        capture_output=True,
        check=True,
    )
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text() != ""
    after = (os.stat(path), sorted(os.listdir(folder)))
    assert [item.st_mtime_ns for item in (before[0], after[0])] == [before[0].st_mtime_ns] * 2
    assert before[1] == after[1]
    assert path.read_text() == "secret"
