"""The runner's folders are out of the training's reach, declared data is not; modes come back."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.sandbox import confinement
from repro_gate.sandbox.confinement import confined, private_folders, runner_files, unreadable
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import command, processes_of
from tests.support.starting import APPEND, LIST, OWN, READ, SAME, attempt, modes, needs_own_user

pytestmark = needs_own_user
RUNNER = 1001
SECRETS = ["workspace/.git/config", "workspace/.env", "workflow/event.json"]
SECRETS += ["file_commands/set_output_1", "home/.netrc"]


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Folders as a runner mounts them: another user's, with modes for everybody, a credential in
    the checkout."""
    root = tmp_path / "github"
    data = ("train.bin", "other.bin", "deep/set/a.txt", "deep/set/.git/config", "deep/README")
    for name in (*SECRETS, "workspace/train.py", *(f"workspace/data/{name}" for name in data)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
        os.chown(path, RUNNER, RUNNER)
    (root / "workspace" / "train.py").chmod(0o644)
    return root


def variables(root: Path) -> dict[str, str]:
    return {
        "GITHUB_WORKSPACE": str(root / "workspace"),
        "GITHUB_EVENT_PATH": str(root / "workflow" / "event.json"),
        "GITHUB_OUTPUT": str(root / "file_commands" / "set_output_1"),
        "HOME": str(root / "home"),
        "PATH": "/usr/bin:/bin",
    }


def roots(root: Path) -> tuple[Path, ...]:
    return tuple(
        path
        for path in private_folders(variables(root), root / "workspace")
        if root in path.parents
    )


def denied(source: str, path: Path) -> bool:
    return attempt(OWN, source, path).startswith("PermissionError")


def test_what_the_runner_mounts_is_out_of_reach_meanwhile(runner: Path) -> None:
    found = {path.name for path in roots(runner)}
    assert found == {"workspace", "workflow", "file_commands", "home"}
    names = ("workflow/event.json", "file_commands/set_output_1")
    assert runner_files(variables(runner)) == tuple(runner / name for name in names)
    before = modes(runner)
    opened = [attempt(OWN, APPEND, runner / name) for name in SECRETS]
    assert set(opened) == {"opened"}  # what the restriction is for
    with unreadable(OWN, roots(runner)):
        for name in SECRETS:
            assert denied(READ, runner / name) and denied(APPEND, runner / name), name
        # its owner keeps access
        assert stat.S_IMODE(os.stat(runner / "workspace").st_mode) == 0o700
    assert modes(runner) == before
    assert [attempt(OWN, APPEND, runner / name) for name in SECRETS] == opened
    with confined(SAME, variables(runner), runner / "workspace"):
        assert modes(runner) == before  # one user for both restricts nothing


def test_declared_data_stays_reachable_alone(runner: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x")
    elsewhere.chmod(0o644)
    os.symlink(elsewhere, runner / "workspace/data/link")
    before = modes(runner)
    data = [runner / "workspace/data/train.bin", runner / "workspace/data/deep/set"]
    beside = ("train.py", "data/other.bin", "data/deep/README", "data/deep/set/.git/config")
    with unreadable(OWN, roots(runner), data):
        assert attempt(OWN, READ, data[0]) == "1" and attempt(OWN, LIST, data[1]) == "2"
        assert attempt(OWN, READ, data[1] / "a.txt") == "1"
        for name in (*SECRETS, *(f"workspace/{name}" for name in beside)):
            assert denied(READ, runner / name), name
        for name in ("workspace", "workspace/data", "workspace/data/deep"):
            assert denied(LIST, runner / name) and denied(APPEND, runner / name / "new"), name
        assert stat.S_IMODE(os.stat(elsewhere).st_mode) == 0o644  # links are not followed
    assert modes(runner) == before
    with pytest.raises(KeyboardInterrupt), unreadable(OWN, roots(runner), data):
        raise KeyboardInterrupt  # the gate fails
    assert modes(runner) == before


@pytest.mark.parametrize(
    "path", [".git", ".git/config", "../home/.netrc", "../workflow/event.json", "link"]
)
def test_a_spec_cannot_declare_a_secret_as_its_data(runner: Path, path: str) -> None:
    """Whoever writes the spec names the data: what is no data of the checkout's stays
    unreadable."""
    os.symlink(runner / "workspace/.git/config", runner / "workspace/link")
    target = runner / "workspace" / path
    file = target / "config" if path == ".git" else target
    with confined(OWN, variables(runner), runner / "workspace", [target]):
        assert denied(READ, file)
    # the twin, with a folder of the runner inside the checkout, which is no data
    given = {**variables(runner), "RUNNER_TEMP": str(runner / "workspace/data/deep")}
    data = [runner / "workspace/data/deep/set", runner / "workspace/data/train.bin"]
    with confined(OWN, given, runner / "workspace", data):
        assert attempt(OWN, READ, data[1]) == "1" and denied(READ, data[0] / "a.txt")


def test_what_has_been_replaced_meanwhile_is_left_alone(runner: Path) -> None:
    with unreadable(OWN, roots(runner), [runner / "workspace/data/train.bin"]):
        (runner / "workspace/.new").write_text("new")
        (runner / "workspace/.new").chmod(0o600)
        (runner / "workspace/.new").replace(runner / "workspace/.env")
        (runner / "workspace/train.py").unlink()
    assert stat.S_IMODE(os.stat(runner / "workspace/.env").st_mode) == 0o600


def test_what_is_the_trainings_own_cannot_be_closed(runner: Path) -> None:
    before = modes(runner)
    os.chown(runner / "workflow", UID, UID)
    with (
        pytest.raises(Inconclusive, match=r"workflow cannot .*belongs to the training's user"),
        unreadable(OWN, roots(runner)),
    ):
        pytest.fail("it went on")
    os.chown(runner / "workflow", RUNNER, RUNNER)
    assert modes(runner) == before  # also what had been restricted before it


def test_too_much_beside_data_ends_it(runner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "MOST", 3)
    before, data = modes(runner), [runner / "workspace/data/train.bin"]
    with pytest.raises(Inconclusive, match="too much"), unreadable(OWN, roots(runner), data):
        pytest.fail("it went on")
    assert modes(runner) == before


def test_open_sockets_and_secrets_are_listed(runner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runner)
    marker = runner / "in-container"
    marker.write_text("")
    monkeypatch.setattr(confinement, "_IN_CONTAINER", (str(marker),))
    os.mkdir("run", 0o755)
    # a Kubernetes pod's own token, readable to every user of the pod
    os.mkdir("secrets")
    monkeypatch.setattr(confinement, "_MOUNTED_SECRETS", runner / "secrets")
    given = {**variables(runner), "DOCKER_HOST": f"unix://{runner}/run/docker.sock"}

    def listed() -> set[str]:
        folders = private_folders(given, runner / "workspace")
        return {path.name for path in folders} & {"run", "secrets"}

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("run/docker.sock")
        os.chmod("run/docker.sock", 0o660)
        assert listed() == {"secrets"}  # its mode keeps the training out
        os.chmod("run/docker.sock", 0o666)
        assert listed() == {"run", "secrets"}
        marker.unlink()
        assert listed() == set()  # a machine's own folders: the trial says what is wrong


def test_two_gates_do_not_run_at_once(runner: Path) -> None:
    first, second = (confined(OWN, variables(runner), runner / "workspace") for _ in range(2))
    with first, pytest.raises(Inconclusive, match="another gate") as raised, second:
        pytest.fail("it went on")
    assert raised.value.reason_id == "sandbox/not-alone"
    with confined(OWN, variables(runner), runner / "workspace"):
        assert os.getgroups() == [] and os.umask(0o022) == 0o022


def test_interpreters_stay_within_reach_but_in_a_private_home(runner: Path) -> None:
    """It is not opened even for a moment: a gate that is killed gives nothing back."""
    home, tools = runner / "home", runner / "home/venv/bin"
    tools.mkdir(parents=True)
    home.chmod(0o711)
    os.symlink("/usr/bin/env", tools / "python")
    given = {**variables(runner), "PATH": f"{tools}:/usr/bin"}
    assert tools.parent in confinement.interpreters(given)
    with confined(OWN, given, runner / "workspace"):
        assert attempt(OWN, LIST, tools) == "1" and denied(READ, home / ".netrc")
    home.chmod(0o700)
    with confined(OWN, given, runner / "workspace"):
        assert stat.S_IMODE(home.stat().st_mode) == 0o700 and denied(LIST, tools)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_nothing_is_given_back_while_the_user_still_has_processes(runner: Path) -> None:
    """What could not be ended would read the event and write the runner's commands."""
    argv, environment = command(OWN, ["sleep", "300"], {"PATH": "/usr/bin:/bin"})
    with subprocess.Popen(argv, env=environment) as process:
        try:
            deadline = time.monotonic() + 60
            while process.pid not in processes_of(UID) and time.monotonic() < deadline:
                time.sleep(0.01)  # until then it is root's: `setpriv` has not changed the user yet
            with unreadable(OWN, roots(runner)):
                pass
            assert denied(READ, runner / "workflow/event.json")
        finally:
            process.kill()
    assert stat.S_IMODE((runner / "workflow").stat().st_mode) == 0o700
