"""`factors.timers`: timers that fire and waits that end after a time are reads of the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.trace.format import TIMED
from tests.probe.factors.runs import differing, once, pinned, uses_of, watched_twice

FIRES = """
import signal, threading
class Over(Exception):
    pass
def over(*_):
    raise Over
def turns_until(arm):
    turns = 0
    arm()
    try:
        while True:
            turns += 1
    except Over:
        return turns
before = signal.signal(signal.SIGALRM, over)
print(turns_until(lambda: signal.setitimer(signal.ITIMER_REAL, 0.2)))
print(turns_until(lambda: signal.alarm(1)))
assert signal.signal(signal.SIGALRM, before) is over
stop, turns = [], 0
threading.Timer(0.2, stop.append, (1,)).start()
while not stop:
    turns += 1
print(turns)
"""
ENDS = """
import multiprocessing, queue, socket, subprocess, threading, time
from concurrent import futures
LONG = {limit}
def late():
    time.sleep(0.5)
    box.put("came")
    done.set()
    free.release()
    other.send(b"came")
def said(name, call):
    try:
        print(name, call() is not False)
    except Exception as error:
        print(name, type(error).__name__)
box, done, free = queue.Queue(), threading.Event(), threading.Semaphore(0)
own, other = socket.socketpair()
own.settimeout(LONG)
pool = futures.ThreadPoolExecutor(2)
thread = threading.Thread(target=late)
thread.start()
job = pool.submit(time.sleep, 0.5)
said("get", lambda: box.get(timeout=LONG))
said("event", lambda: done.wait(LONG))
said("result", lambda: job.result(timeout=LONG))
said("recv", lambda: own.recv(4))
said("acquire", lambda: free.acquire(timeout=LONG))
thread.join(LONG)
print(thread.is_alive())
slow = pool.submit(time.sleep, 0.5)
print(len(futures.wait([slow], timeout=LONG).not_done))
said("run", lambda: subprocess.run(["sleep", "0.5"], timeout=LONG))
"""


@pytest.mark.slow
def test_a_timer_that_fires_is_a_use_and_pinned_it_fires_after_as_many_lines(
    tmp_path: Path,
) -> None:
    runs = watched_twice(tmp_path, FIRES)
    assert all(differing(runs))
    lines = FIRES.splitlines()
    seen = {lines[use.line - 1].split("(")[0] for use in uses_of(runs[0], "clock")}
    assert seen == {"print", "threading.Timer"}
    assert len(uses_of(runs[0], "clock")) == 3
    turns = [int(line) for line in pinned(tmp_path, FIRES, "clock")]
    assert all(50 < count < 1500 for count in turns)


@pytest.mark.slow
def test_a_wait_that_ends_by_its_limit_is_a_use_and_pinned_it_waits_for_what_comes(
    tmp_path: Path,
) -> None:
    short, enough = (ENDS.replace("{limit}", limit) for limit in ("0.01", "60"))
    run = once(tmp_path, short, {"watch": True})
    over = [use for use in uses_of(run, "clock") if use.source.endswith(TIMED)]
    assert len(over) == 8 and all("LONG" in use.call or "recv" in use.call for use in over)
    patient = pinned(tmp_path, short, "clock")
    run = once(tmp_path, enough, {"watch": True})
    assert not [use for use in uses_of(run, "clock") if use.source.endswith(TIMED)]
    assert run.ended.tail == patient
