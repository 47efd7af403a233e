"""How a training with a user of its own is started, and that nothing of it outlives a run."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox import start
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import command, end_all, processes_of
from tests.support.starting import OWN, SAME, SYSTEM, needs_own_user, python, ran

pytestmark = needs_own_user
SLEEP = [python(), "-I", "-S", "-c", "import time; time.sleep(300)"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end by itself is not waited for."""
    monkeypatch.setattr("repro_gate.runs.process.GRACE", 0.2)


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of the gate's own user, as the gate or the runner is."""
    with subprocess.Popen(SLEEP) as process:
        yield process.pid
        process.kill()


def test_one_user_changes_no_command() -> None:
    assert command(SAME, ["a", "b=c"], {"X": "1"}) == (["a", "b=c"], {"X": "1"})


def test_it_has_the_environment_and_the_command_that_it_is_given(tmp_path: Path) -> None:
    given = {"PATH": SYSTEM, "ODD": "a=b\nc 'd'", "EMPTY": ""}
    found = ran(*command(OWN, ["env", "-0"], given)).stdout
    assert dict(item.split("=", 1) for item in found.split("\0") if item) == given
    program = tmp_path / "a=b"  # no variable
    program.write_text("#!/bin/sh\necho ran $1\n")
    program.chmod(0o755)
    assert ran(*command(OWN, [str(program), "x=y"], {"PATH": SYSTEM})).stdout == "ran x=y\n"


def test_a_preloaded_library_is_not_loaded_while_still_root(tmp_path: Path) -> None:
    """`setpriv` is root for a moment: the loader's complaint about a library that is not there
    tells who was asked to load it."""
    missing = str(tmp_path / "evil.so")
    argv, environment = command(OWN, ["/bin/true"], {"LD_PRELOAD": missing})
    assert ran(argv, environment).stderr.count("evil.so") == 1  # /bin/true alone
    # so the count can tell
    assert ran(argv, {"LD_PRELOAD": missing}).stderr.count("evil.so") > 1


def escaped(count: int) -> list[subprocess.Popen[bytes]]:
    """Processes of that user that hang elsewhere in the tree, as if they had left it."""
    argv, environment = command(OWN, SLEEP, {})
    made = [subprocess.Popen(argv, env=environment, start_new_session=True) for _ in range(count)]
    await_processes(count)
    return made


def await_processes(count: int) -> None:
    deadline = time.monotonic() + 20
    while len(processes_of(UID)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(processes_of(UID)) >= count


def exhausted(*_: object, **__: object) -> None:
    raise BlockingIOError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    # the one way alone, then the other
    [(start, "_kill_one", lambda *_: None), (subprocess, "run", exhausted)],
    ids=["at once", "one by one"],
)
def test_all_its_processes_end_and_no_others_also_where_none_can_be_started(
    bystander: int,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    instead: Callable[..., object],
) -> None:
    made = escaped(3)
    end_all(SAME)
    assert len(processes_of(UID)) == 3  # one user for both: not a thing of the gate's is ended
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, instead)
        end_all(OWN)
    assert processes_of(UID) == []
    for process in made:
        process.wait(timeout=5)
    os.kill(bystander, 0)


FORKS = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def supervised(source: str, timeout: float = 60, **env: str) -> Ended:
    command = [python(), "-I", "-S", "-c", source]
    given = {"cwd": Path("/"), "env": env, "timeout": timeout, "sandbox": OWN}
    return supervise(command, tick=lambda _: None, **given)


def test_one_that_forks_without_end_is_caught() -> None:
    ended = supervised(FORKS, 0.5)
    assert processes_of(UID) == [], ended


def test_a_supervised_command_runs_as_that_user_and_leaves_none_of_it() -> None:
    ended = supervised(
        f"import os, subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True); "
        "print(os.getuid(), os.environ['MARK'])",
        MARK="m",
    )
    assert ended.exit_code == 0 and ended.tail == (f"{UID} m",) and ended.left_running == 1
    assert processes_of(UID) == []


# Whoever runs stops, all the time, whatever else it may: a killer that is wholly of its user would
# be stopped before it kills.
STOPS = """
import os, signal, time
os.fork()
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        os.kill(-1, signal.SIGSTOP)
    except OSError:
        pass
"""


def test_one_that_stops_whoever_comes_to_end_it_is_ended() -> None:
    for _ in range(3):
        argv, environment = command(OWN, [python(), "-I", "-S", "-c", STOPS], {})
        with subprocess.Popen(argv, env=environment, start_new_session=True) as process:
            await_processes(2)
            end_all(OWN)
            assert processes_of(UID) == []
            process.wait(timeout=5)
