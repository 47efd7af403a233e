"""Claims about `errors`: a signal ends the gate at any moment, and nothing is left: no process, no
closed file, no folder.

Whole gate runs of a training that leaves processes behind, forked from one process that has
imported the gate already.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro_gate.errors import ENDING, end_cleanly, held, is_waiting, obeyed
from tests.sandbox.conftest import alone, tmp_path  # noqa: F401  one at a time on this machine, in a folder that others may enter
from tests.support.starting import WHY_NOT

MOMENTS = 12  # spread over the whole of a gate run
CLOSED = 200  # files that are closed to the training one by one, and given back
# The log of a training that has ended, and whose children live: within the three seconds that they
# are given.
TRAIN = (
    "echo started; for n in 1 2 3 4; do sleep 300.{mark} & setsid sleep 300.{mark} & done; sleep "
    "0.05"
)
DRIVER = """
import io, json, os, random, signal, sys, tempfile, time
import psutil
from repro_gate import cli
from repro_gate.report import markdown, terminal
from repro_gate.gate import run
from repro_gate.runs import process
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import processes_of

checkout, mark, moments, printed = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
process.GRACE = 0.15

def left():
    lines = [item.info["cmdline"] or [] for item in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any("300." + mark in word for word in line) and line[0] != sys.executable]

def modes():
    return {os.path.join(folder, name): os.lstat(os.path.join(folder, name)).st_mode
            for folder, names, files in os.walk(checkout) for name in (*names, *files, ".")}

def one(wait, numbers):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        cli.end_cleanly()
        cli.end_cleanly = lambda: None
        os.close(reading)
        os.close(writing)
        os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        code = 99
        try:
            code = cli.main(["run", checkout, "--quiet"])
        finally:
            os._exit(code)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    began = time.monotonic()
    while wait == "until it trains":
        if left():
            wait = 0.0
    if wait is not None:
        for number in numbers:
            time.sleep(wait if number is numbers[0] else random.random() * 0.04)
            os.kill(child, number)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began

random.seed(1)
before, bad, told = modes(), [], 0
_, whole = one(None, ())
_, whole = one(None, ())
assert not left(), "left by a gate run that was not interrupted"
for moment in range(moments):
    wait = 0.01 + (moment + random.random()) / moments * (whole - 0.01)
    # how long a whole run takes changes with what else the machine does: one moment is sure
    wait = wait if moment else "until it trains"
    numbers = [random.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) for _ in range(random.choice((1, 1, 3)))]
    code, seconds = one(wait, numbers)
    told += "interrupted" in open(printed).read()
    changed = [path for path, mode in modes().items() if before[path] != mode]
    others = processes_of(UID) if os.environ["REPRO_GATE_SANDBOX"] == "own-user" else []
    found = {"processes": left() + others, "closed": len(changed), "folders": os.listdir(tempfile.gettempdir())}
    if any(found.values()) or code != 3:
        bad.append([wait, numbers, code, found])
        break
print(json.dumps({"bad": bad, "told": told, "whole": whole}))
"""


@pytest.mark.parametrize(
    "level",
    [
        "same-user",
        pytest.param(
            "own-user", marks=[pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
        ),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing(
    tmp_path: Path,  # noqa: F811
    level: str,
) -> None:
    checkout, temporary, mark = tmp_path / "checkout", tmp_path / "tmp", str(os.getpid())
    (checkout / "data").mkdir(parents=True)
    temporary.mkdir()
    for number in range(CLOSED):
        (checkout / "data" / f"{number}.txt").write_text("x")
    train = {"run": TRAIN.format(mark=mark), "timeout": "60s"}
    spec = {"version": 1, "train": train, "cost": {"measure": False}}
    (checkout / "repro.yml").write_text(json.dumps({**spec, "data": [{"path": "data/0.txt"}]}))
    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, checkout, mark, str(MOMENTS), tmp_path / "printed"],
        env={**environment, "REPRO_GATE_SANDBOX": level},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["bad"] == [] and found["told"], found  # the report is still printed


@pytest.fixture
def taken() -> Iterator[None]:
    """Signals are taken as by the command line, and given back."""
    before = {number: signal.getsignal(number) for number in ENDING}
    end_cleanly()
    yield
    end_cleanly()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_held_signal_is_obeyed_at_the_end(taken: None, number: signal.Signals) -> None:
    done = []

    def held_twice() -> None:
        with held():
            signal.raise_signal(number)
            assert is_waiting()
            with held():
                signal.raise_signal(number)
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        held_twice()
    assert done == ["cleaned up"] and not is_waiting()
    with held():
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt), obeyed():
            raise AssertionError("not reached")


def test_a_second_signal_waits_for_the_clean_up_and_is_obeyed_too(taken: None) -> None:
    done = []

    def interrupted() -> None:
        with held():
            try:
                with obeyed():
                    signal.raise_signal(signal.SIGINT)
                    done.append("never")
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                done.append("cleaned up")
            done.append("went on")  # as a series does, to report what it has

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["cleaned up", "went on"]
