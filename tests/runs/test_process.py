"""However a command ends, that is known, the end of its output is kept, nothing is left running."""

from __future__ import annotations

import os
import sys
import textwrap
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from repro_gate.runs import process
from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox.identity import Sandbox

Tick = Callable[[list[psutil.Process]], str | None]
Run = Callable[..., Ended]


@pytest.fixture
def mark() -> Iterator[str]:
    """A word that stands in the command line of every process of a test; none of them may be
    left."""
    word = f"mark-{uuid.uuid4().hex}"
    yield word
    assert left(word) == []


def left(mark: str) -> list[list[str]]:
    found = []
    for running in psutil.process_iter(["cmdline", "status"]):
        line = running.info["cmdline"] or []
        if any(mark in item for item in line) and running.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


@pytest.fixture
def run(tmp_path: Path, mark: str) -> Run:
    """Runs Python source (isolated, so without site: it starts in 20 ms) to its end."""
    script = tmp_path / f"{mark}.py"
    head = f"import os, signal, subprocess, sys, time\nMARK = {mark!r}\n"
    head += "SLEEP = [sys.executable, '-IS', '-c', 'import time; time.sleep(300)', MARK]\n"
    command, env = [sys.executable, "-IS", str(script)], {"PATH": os.environ["PATH"]}

    def run(source: str, timeout: float = 60.0, tick: Tick = lambda alive: None) -> Ended:
        script.write_text(head + textwrap.dedent(source))
        return supervise(
            command, cwd=tmp_path, env=env, timeout=timeout, tick=tick, sandbox=Sandbox()
        )

    return run


@pytest.mark.parametrize("status", [0, 255])
def test_an_exit_code_is_given_on_and_there_is_no_input(run: Run, status: int) -> None:
    prints = "print(repr(sys.stdin.read()), flush=True); print('err', file=sys.stderr)"
    ended = run(f"{prints}; sys.exit({status})")
    assert replace(ended, seconds=0.0) == Ended(exit_code=status, tail=("''", "err"))


def test_a_signal_is_known_through_a_shell(run: Run, tmp_path: Path, mark: str) -> None:
    assert run("os.kill(os.getpid(), 11)").signal == 11
    command = ["/bin/sh", "-c", f"{sys.executable} -IS {tmp_path / mark}.py; exit $?"]
    ended = supervise(command, cwd=tmp_path, env={}, timeout=60, sandbox=Sandbox())
    assert (ended.signal, ended.exit_code) == (11, 128 + 11)


FAMILY = """
subprocess.Popen(SLEEP)                          # a child in the group
subprocess.Popen(SLEEP, start_new_session=True)  # one that left the group
if os.fork() == 0:                               # a daemon: forked twice, in a session of its own, deaf to signals
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable, SLEEP)
    os._exit(0)
print("started", flush=True)
"""


def test_a_timeout_ends_the_whole_family_daemons_included(run: Run) -> None:
    ended = run(FAMILY + "time.sleep(300)", timeout=3)
    assert ended.timed_out and ended.seconds >= 3 and ended.tail in ((), ("started",))


def test_what_a_finished_command_left_running_is_ended_and_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", 0.5)
    ended = run(FAMILY + "time.sleep(0.8)")
    assert (ended.exit_code, ended.left_running, ended.timed_out) == (0, 3, False)


def test_helpers_that_leave_and_other_processes_are_not_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", 60.0)  # is not waited for
    other = psutil.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(300)"])
    helper = "[sys.executable, '-IS', '-c', 'import time; time.sleep(0.5)', MARK]"
    try:
        ended = run(f"time.sleep(0.7); subprocess.Popen({helper})")
        assert (ended.exit_code, ended.left_running) == (0, 0)
        assert other.is_running() and other.status() != psutil.STATUS_ZOMBIE
    finally:
        other.kill()
        other.wait()


def test_a_killed_child_is_the_commands_own_affair_and_a_killed_leader_takes_its_children_along(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE", 0.3)
    kills = "child = subprocess.Popen(SLEEP); child.kill(); print(child.wait()); sys.exit(3)"
    survived = run(kills)
    assert (survived.exit_code, survived.signal, survived.tail) == (3, None, ("-9",))
    died = run("subprocess.Popen(SLEEP); os.kill(os.getpid(), 9)")
    assert (died.signal, died.left_running) == (9, 1)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_reason_of_the_tick_and_an_exception_in_it_end_everything(
    run: Run, mark: str, error: type[BaseException] | None
) -> None:
    def tick(alive: list[psutil.Process]) -> str | None:
        # leader, child, the one that left the group, the daemon, perhaps the daemon's dead parent
        if len(alive) < 4:
            return None
        if error is not None:
            raise error
        return "enough"

    with pytest.raises(error) if error is not None else nullcontext():
        ended = run(FAMILY + "time.sleep(300)", tick=tick)
        assert (ended.stopped, ended.timed_out) == ("enough", False)
    assert left(mark) == []


MUCH = """
for _ in range(500):
    os.write(1, (b"x" * 99 + b"\\n") * 1000)
os.write(1, b"the end \\xff\\n")
"""
ENDLESS = """
for n in range(3000):
    sys.stdout.write("\\r%d %%" % n + " " * 80)
sys.stdout.write("\\n" + "y" * 300_000)
"""


def test_the_end_of_any_output_is_kept_in_bounded_memory(run: Run) -> None:
    tracemalloc.start()
    try:
        tail = run(MUCH).tail
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024 and len(tail) == process.TAIL_LINES
    assert tail[-1] == "the end \ufffd" and set(tail[:-1]) == {"x" * 99}
    tail = run(ENDLESS).tail
    assert sum(map(len, tail)) <= process.TAIL_BYTES and set(tail[-1]) == {"y"}


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("raise ValueError('of its own')", False),
        ("os.kill(os.getpid(), signal.SIGTERM)", False),
        ("os.kill(os.getpid(), signal.SIGKILL)", True),
        ("sys.exit(137)", True),
        ("sys.exit('died with <Signals.SIGKILL: 9>.')", True),
        ("sys.exit('DataLoader worker (pid 7) is killed by signal: Killed. ')", True),
        ("sys.exit('exitcode  : -9 (pid: 7)')", True),
        ("sys.exit('worker 2: exit code: 137')", True),
        ("sys.exit('step -91, signal 95, skilled, exit code 1370')", False),
        ("print('Killed')", False),
    ],
)
def test_another_jobs_kill_for_want_of_memory_is_not_this_runs(
    source: str, short: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(9))
    monkeypatch.setattr(process, "_memory_kills", lambda: next(counts))
    assert run(source).out_of_memory is short
    monkeypatch.setattr(process, "_memory_kills", lambda: 7)
    assert not run(source).out_of_memory


@pytest.mark.skipif(sys.platform != "linux", reason="these counters are Linux's")
@pytest.mark.parametrize("group", ["0::/a/b\n", "4:memory:/a/b\n0::/\n"])
def test_kills_for_want_of_memory_are_those_of_the_nearest_group_that_counts_them(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"/proc/self/cgroup": group, "/proc/vmstat": "nr_free_pages 1\noom_kill 53\n"}

    def read(path: Path) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    assert process._memory_kills() == 53
    files["/sys/fs/cgroup/a/memory.events"] = "oom 3\noom_kill 2\n"
    assert process._memory_kills() == (2 if group.startswith("0") else 53)


def test_a_machine_that_hides_processes_leaves_none_of_ours_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As under `hidepid=1`, where psutil may not list the children of any process."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "children", refused)
    starts = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True).pid)"
    command = [sys.executable, "-c", starts]
    ended = supervise(command, cwd=tmp_path, env=dict(os.environ), timeout=30, sandbox=Sandbox())
    assert ended.exit_code == 0 and ended.left_running == 1
    assert not psutil.pid_exists(int(ended.tail[0]))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (
            ("usage: t.py", "t.py: error: no --data", "", "/tmp/x/t.log", "======"),
            "t.py: error: no --data",
        ),
        (("logs/t.log is full", "logs/t.log"), "logs/t.log is full"),
        (("/tmp/x", "3"), ""),
        ((), ""),
    ],
)
def test_the_last_line_that_says_something_is_no_path(tail: tuple[str, ...], said: str) -> None:
    assert Ended(exit_code=2, tail=tail).last_line == said
