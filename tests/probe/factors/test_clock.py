"""`factors.clock`: pinned, time passes by reading and sleeping only; varied, it is another day."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import once, pinned

pytestmark = pytest.mark.slow

HEAD = "import datetime, time\n"


def numbers(tmp_path: Path, source: str | dict[str, str]) -> list[list[list[float]]]:
    """What a run prints, watched and with the clock varied."""
    runs = (once(tmp_path, source, factors) for factors in ({"watch": True}, {"vary": ["clock"]}))
    return [[[*map(float, line.split())] for line in run.ended.tail] for run in runs]


def test_varied_it_is_another_day_and_the_start_is_near(tmp_path: Path) -> None:
    readings = "time.time(), datetime.datetime.now().timestamp(), time.mktime(time.localtime())"
    [plain], [varied] = numbers(tmp_path, f"{HEAD}print({readings}, time.monotonic())\n")
    ahead = [other - one for one, other in zip(plain, varied, strict=True)]
    assert all(86_400 < seconds < 100_000 for seconds in ahead[:3]) and ahead[3] < 3_600


FASTER = """
import queue, subprocess, sys, time
clocks = [time.monotonic, time.perf_counter, time.time, lambda: time.monotonic_ns() * 1e-9, lambda: time.perf_counter_ns() * 1e-9]
class Timer:
    read = time.perf_counter
def busy():
    return sum(number * number for number in range(1_500_000))
really = time.clock_gettime(time.CLOCK_MONOTONIC)
begins, own = [clock() for clock in clocks], Timer.read()
time.sleep(0.4)
passed = [clock() - begin for clock, begin in zip(clocks, begins)], Timer.read() - own
really = time.clock_gettime(time.CLOCK_MONOTONIC) - really
print(*[seconds / really for seconds in (*passed[0], passed[1])])
begin, real = time.process_time(), time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
busy()
print((time.process_time() - begin) / (time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) - real))
begin = time.clock_gettime(time.CLOCK_MONOTONIC)
try:
    queue.Queue().get(timeout=0.4)
except queue.Empty:
    print(time.clock_gettime(time.CLOCK_MONOTONIC) - begin)
begin = time.monotonic()
child = subprocess.check_output([sys.executable, "-c", "exec(open('child.py').read())", str(begin)])
"""


def test_varied_time_is_three_times_as_fast_for_own_code_only(tmp_path: Path) -> None:
    plain, varied = numbers(tmp_path, {"train.py": FASTER, "child.py": "pass"})
    assert all(0.8 < speed < 1.2 for speed in (*plain[0], *plain[1]))
    assert all(2.4 < speed < 3.6 for speed in (*varied[0], *varied[1]))
    # what the standard library waits stays
    assert all(run[2][0] > 0.39 for run in (plain, varied))


ENDS = """
import queue, subprocess, sys, threading, time
end, rounds = time.time() + 30, 0
while time.time() < end:
    rounds += 1
begin = time.perf_counter()
time.sleep(0.05)
assert 0.05 <= time.perf_counter() - begin < 1
assert time.monotonic() < time.monotonic() and time.time() - 1.7e9 > 30
try:
    queue.Queue().get(timeout=0.05)
except queue.Empty:
    rounds += 10_000
assert not threading.Event().wait(0.05)
subprocess.run([sys.executable, "-c", "pass"], timeout=30)
def beat():
    for _ in range(100):
        time.time()
beats = [threading.Thread(target=beat) for _ in range(4)]
for thread in beats:
    thread.start()
print(rounds, time.time())
for thread in beats:
    thread.join()
"""


def test_loops_that_wait_for_a_time_end(tmp_path: Path) -> None:
    first = pinned(tmp_path, ENDS, "clock")
    assert 11_000 < int(first[0].split()[0]) < 13_000, "other threads do not move the clock"


LIBRARY = """
import logging, os, tempfile, time
place = tempfile.mkdtemp()
for _ in range(int.from_bytes(os.urandom(1), "big")):
    logging.getLogger("x").info("a record reads the clock")
    logging.LogRecord("x", 1, "x", 1, "x", (), None)
print(time.time(), os.path.exists(place), os.stat(place).st_size, os.path.isdir("/"))
"""


def test_what_libraries_read_does_not_move_the_workspaces_clock(tmp_path: Path) -> None:
    pinned(tmp_path, LIBRARY, "clock")
