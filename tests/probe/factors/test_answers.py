"""Each way to ask for the time, for entropy or for who one is: its line is told, two runs get other
answers, and pinned the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import differing, pinned, uses_of, watched_twice

HEAD = """
import datetime, getpass, os, platform, random, secrets, socket, tempfile, threading, time, timeit, uuid
import numpy as np
from multiprocessing import current_process
from pathlib import Path
name = os.path.basename
"""
WAYS = {
    "clock": """
time.time() | time.time_ns() | time.monotonic() | time.perf_counter_ns() | time.process_time()
time.clock_gettime_ns(time.CLOCK_MONOTONIC) | time.clock_gettime(time.CLOCK_REALTIME)
time.strftime('%H:%M:%S'), time.time_ns() | time.localtime().tm_sec, time.time_ns()
datetime.datetime.now() | datetime.datetime.utcnow() | timeit.default_timer()
datetime.datetime.today(), datetime.date.today() | os.stat('train.py').st_mtime_ns
Path('train.py').stat().st_mtime | os.fstat(os.open('train.py', os.O_RDONLY)).st_ctime
[entry.stat().st_mtime for entry in os.scandir('.')]
""",
    "entropy": """
os.urandom(4) | os.getrandom(4) | secrets.token_hex(4) | uuid.uuid4() | uuid.uuid1(node=7)
random.Random().random() | random.SystemRandom().random() | (random.seed(), random.random())
np.random.default_rng().random() | np.random.SeedSequence().entropy
np.random.RandomState().rand() | (np.random.seed(), np.random.rand())
open(file='/dev/urandom', mode='rb').read(4) | Path('/dev/urandom').open('rb').read(4)
os.read(os.open('/dev/urandom', os.O_RDONLY), 4)
np.fromfile('/dev/urandom', np.uint8, 4).tolist()
""",
    "identity": """
os.getpid() | os.getppid() | current_process().pid | threading.get_ident()
threading.get_native_id() | threading.current_thread().ident | threading.main_thread().native_id
socket.gethostname(), os.getpid() | platform.node(), os.getpid()
os.uname().nodename, os.getpid() | getpass.getuser(), os.getpid() | uuid.getnode(), os.getpid()
name(tempfile.mkdtemp()) | name(tempfile.mkstemp()[1])
name(tempfile.NamedTemporaryFile().name) | name(tempfile.TemporaryDirectory().name)
""",
}
# the parent's number may be the same, and a thread's address too
ALIKE = ("os.getppid()", "threading.get_ident()", "threading.current_thread().ident")
FIRST = HEAD.count("\n") + 1


@pytest.mark.parametrize("factor", WAYS)
def test_each_way_is_told_differs_between_runs_and_agrees_where_pinned(
    factor: str, tmp_path: Path
) -> None:
    ways = WAYS[factor].strip().replace("\n", " | ").split(" | ")
    script = HEAD + "".join(f"print({way})\n" for way in ways)
    both = watched_twice(tmp_path, script)
    ours, theirs = ([use for use in uses_of(run, factor) if use.line >= FIRST] for run in both)
    assert {use.line for use in ours if use.direct} == {*range(FIRST, FIRST + len(ways))}
    same = {way for way, differs in zip(ways, differing(both), strict=True) if not differs}
    assert same <= {*ALIKE}
    digests = {(use.line, use.digest) for use in ours}
    assert factor != "entropy" or not digests & {(use.line, use.digest) for use in theirs}
    found = pinned(tmp_path, script.replace("\nprint(", "\nfor _ in range(2): print("), factor)
    assert factor != "entropy" or len({*found}) == len(found) == 2 * len(ways)
