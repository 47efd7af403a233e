"""Claims about `factors.processes`: pinned, child processes work one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import differing, once, pinned, watched_twice

pytestmark = pytest.mark.slow

RACES = """
import multiprocessing, random, subprocess

context = multiprocessing.get_context("fork")
jitter = random.SystemRandom()

def work(number):
    sum(range(jitter.randrange(1, 1_000_000)))
    return number

def shared():
    order, at = context.Array("i", 100, lock=False), context.Value("i", 0, lock=False)
    def go(worker):
        for _ in range(10):
            work(0)
            order[at.value] = worker
            at.value += 1
    run([context.Process(target=go, args=(worker,)) for worker in (1, 2, 3)])
    return list(order)

def run(processes, between=lambda: None):
    for process in processes:
        process.start()
    found = between()
    for process in processes:
        process.join()
    return found

def tasks():
    todo, done = context.Queue(), context.Queue()
    def go():
        for number in iter(todo.get, None):
            done.put(work(number))
    def hand_out():
        for number in range(12):
            todo.put(number)
        for _ in range(3):
            todo.put(None)
        return [done.get(timeout=60) for _ in range(12)]
    return run([context.Process(target=go) for _ in range(3)], hand_out)

def shells():
    count = "i=0; while [ $i -lt %d ]; do i=$((i+1)); done; echo %d >> out.txt"
    children = [subprocess.Popen(["sh", "-c", count % (jitter.randrange(30_000), number)]) for number in range(6)]
    for child in children:
        child.wait()
    return open("out.txt").read().split()

"""
NAMES = "shared tasks shells"
SCRIPT = RACES + "".join(f'print("{name}", *{name}(), flush=True)\n' for name in NAMES.split())


def test_pinned_the_order_is_the_same_in_two_runs_and_free_it_is_not(short_path: Path) -> None:
    tail, both = pinned(short_path, SCRIPT, "threads"), watched_twice(short_path, SCRIPT)
    ours, free = (dict(line.split(" ", 1) for line in item) for item in (tail, both[0].ended.tail))
    assert sum(differing(both)) > 1
    assert sorted(ours["tasks"].split()) == sorted(free["tasks"].split())
    assert ours["shared"].split() == ["1"] * 10 + ["2"] * 10 + ["3"] * 10 + ["0"] * 70


LONG = """
import subprocess, sys
import _repro_gate.probe.factors.processes as processes
processes._LONGEST = 0.2
children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
for child in children:
    child.kill()
print(len(processes._STRIKES), [child.wait() for child in children])
"""


def test_children_that_never_wait_hold_nobody_up(short_path: Path) -> None:
    run = once(short_path, LONG, {"pin": {"threads": None}})
    assert run.ended.tail == ("3 [-9, -9, -9, -9, -9]",)


BOUNDED = """
import multiprocessing
def fill(place, name):
    for number in range(20):
        place.put(name)
    place.put("")
context = multiprocessing.get_context("fork")
place = context.Queue(maxsize=4)
children = [context.Process(target=fill, args=(place, name)) for name in "ab"]
[child.start() for child in children]
print("".join(place.get() for _ in range(42)))
[child.join() for child in children]
"""


def test_children_that_wait_for_room_in_a_queue_take_turns(tmp_path: Path) -> None:
    options = {"factors": {"pin": {"threads": None}}, "probe": {"stress": True}}
    tails = {once(tmp_path, BOUNDED, **options).ended.tail for _ in range(4)}
    assert len(tails) == 1, tails
