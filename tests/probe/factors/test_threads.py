"""Claims about `factors.threads`: pinned, threads run in one order, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.trace.format import HANDED, SHARED
from tests.probe.factors.runs import differing, once, pinned, uses_of, watched_twice

RACES = """
import asyncio, queue, random, threading, time
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.pool import ThreadPool

jitter = random.SystemRandom()

def work(number):
    sum(range(jitter.randrange(1, 40_000)))
    time.sleep(jitter.random() / 50)
    return number

def completed():
    with ThreadPoolExecutor(4) as pool:
        return [job.result() for job in as_completed([pool.submit(work, n) for n in range(12)])]

def queued():
    ready = queue.Queue(maxsize=3)
    put = lambda worker: [ready.put(work(10 * worker + number)) for number in range(4)]
    for worker in range(3):
        threading.Thread(target=put, args=(worker,), daemon=True).start()
    return [ready.get(timeout=60) for _ in range(12)]

def to_thread():
    async def main():
        jobs = [asyncio.to_thread(work, number) for number in range(10)]
        return [await job for job in asyncio.as_completed(jobs)]
    return asyncio.run(main())

def unordered():
    with ThreadPool(4) as pool:
        return list(pool.imap_unordered(work, range(12)))

def mapped():
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(8)))
"""
NAMES = "completed queued to_thread unordered mapped"
SCRIPT = RACES + "".join(f'print("{name}", *{name}(), flush=True)\n' for name in NAMES.split())


@pytest.mark.slow
def test_pinned_the_order_is_the_same_in_ten_of_ten_runs_and_free_it_is_not(tmp_path: Path) -> None:
    [tail] = {once(tmp_path, SCRIPT, {"pin": {"threads": None}}).ended.tail for _ in range(10)}
    both = watched_twice(tmp_path, SCRIPT)
    ours, free = (dict(line.split(" ", 1) for line in item) for item in (tail, both[0].ended.tail))
    others = {name for name, differs in zip(free, differing(both), strict=True) if differs}
    assert len(others) > 2 and "mapped" not in others and ours["mapped"] == free["mapped"]
    for name in ours:
        assert sorted(ours[name].split()) == sorted(free[name].split()), name


HAND_OVERS = """
import asyncio, multiprocessing, queue, threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.pool import ThreadPool
def fill(place, count):
    for number in range(count):
        place.put(number)
def filled(kind, place, givers):
    jobs = [kind(target=fill, args=(place, 3)) for _ in range(givers)]
    [job.start() for job in jobs]
    kind is threading.Thread and [job.join() for job in jobs]
    return place, jobs
with ThreadPoolExecutor(2) as pool:
    jobs = [pool.submit(abs, number) for number in range(3)]
    list(as_completed(jobs))  # as it comes
    list(pool.map(abs, range(3)))
with ThreadPool(2) as pool:
    list(pool.imap_unordered(abs, range(3)))  # as it comes
    list(pool.imap(abs, range(3)))
async def main():
    for job in asyncio.as_completed([asyncio.sleep(0)]):  # as it comes
        await job
asyncio.run(main())
filled(threading.Thread, queue.Queue(), 1)[0].get()
filled(threading.Thread, queue.Queue(), 2)[0].get()  # as it comes
context = multiprocessing.get_context("fork")
place, jobs = filled(context.Process, context.Queue(), 2)
[place.get() for _ in range(6)]  # as it comes
[job.join() for job in jobs]
place.put(1)
place.get()
"""


def test_what_is_taken_in_the_order_in_which_it_comes_is_told_with_its_line(tmp_path: Path) -> None:
    uses = uses_of(once(tmp_path, HAND_OVERS, {"watch": True}), "threads")
    lines = enumerate(HAND_OVERS.splitlines(), 1)
    ours = {number for number, line in lines if line.endswith("# as it comes")}
    assert {use.line for use in uses if use.source.endswith(HANDED)} == ours


def test_where_threads_start_is_told(tmp_path: Path) -> None:
    script = "import threading\nthread = threading.Thread(target=int)\n"
    first, second = watched_twice(tmp_path, script + "thread.start()\nthread.join()\n")
    [use], [other] = uses_of(first, "threads"), uses_of(second, "threads")
    assert (use.line, use.source, use.direct) == (3, "threading.Thread.start", True)
    assert use.call == other.call
    # their order is free: it never counts as the same
    assert use.digest != other.digest and not uses_of(second, "entropy")


ENDS = """
import queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

def say(word):
    time.sleep(0.01)
    print(word, flush=True)
pool = ThreadPoolExecutor(2)  # nobody shuts it down
pool.map(say, range(4))
forever = lambda: [time.sleep(0.01) for _ in iter(int, 1)]
threading.Thread(target=forever, daemon=True).start()
try:
    queue.Queue().get(timeout=0.05)
except queue.Empty:
    print("empty", flush=True)
lock = threading.Lock()
assert lock.acquire() and not lock.acquire(timeout=0.01) and not lock.acquire(False)
assert not threading.Event().wait(0.01)
threading.Thread(target=say, args=("late",)).start()  # nobody joins it
try:
    threading.Thread(target=sys.exit).start()
finally:
    print("main ends", flush=True)
"""


def test_what_nobody_waits_for_is_done_and_limits_of_time_end(tmp_path: Path) -> None:
    found = pinned(tmp_path, ENDS, "threads")
    assert sorted(found) == [*"0123", "empty", "late", "main ends"]


SPINS = """
import threading
import _repro_gate.probe.factors.turns as turns
turns._LATE = 1.0
flag = []
def later():
    flag.append(1)
threading.Thread(target=lambda: [None for _ in iter(lambda: bool(flag), True)]).start()
threading.Thread(target=later).start()
print("done")
"""


@pytest.mark.slow
def test_a_thread_that_spins_on_a_variable_loses_its_turn(tmp_path: Path) -> None:
    assert once(tmp_path, SPINS, {"pin": {"threads": None}}).ended.tail == ("done",)


TORCH = """
import torch
torch.set_num_threads(4)
print(torch.get_num_threads())
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for batch in DataLoader(torch.arange(8), batch_size=4, num_workers=2):
        print(batch.tolist())
"""


@pytest.mark.slow
def test_operators_compute_with_one_thread_and_loaders_give_their_batches(short_path: Path) -> None:
    run = once(short_path, TORCH, {"pin": {"threads": None}})
    assert run.ended.tail == ("1", "[0, 1, 2, 3]", "[4, 5, 6, 7]")


SHARES = """
import multiprocessing, torch
from multiprocessing import shared_memory
from torch.utils.data import DataLoader
number = multiprocessing.Value("i", 3)
memory = shared_memory.SharedMemory(create=True, size=8)
tensor = torch.zeros(2).share_memory_()
array = multiprocessing.Array("i", 3)
class Rows:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        first = number.value
        second = memory.buf[0]
        third = tensor[0].item()
        fourth = array[1]
        own = torch.ones(2)[0].item()
        return first + second + third + fourth + own
if __name__ == "__main__":
    print([batch.tolist() for batch in DataLoader(Rows(), batch_size=2, num_workers=1)])
    memory.close()
    memory.unlink()
"""


@pytest.mark.slow
def test_reads_of_what_workers_share_are_uses_with_their_lines(short_path: Path) -> None:
    run = once(short_path, SHARES, {"watch": True})
    lines = SHARES.splitlines()
    read = {
        lines[use.line - 1].split()[0]
        for use in uses_of(run, "threads")
        if use.source.endswith(SHARED)
    }
    assert read == {"first", "second", "third", "fourth"}
