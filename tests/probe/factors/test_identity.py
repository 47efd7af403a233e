"""`factors.identity`: pinned, the workspace is told the same, and libraries the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import once, pinned

pytestmark = pytest.mark.slow


def test_varied_the_host_has_another_name_that_can_be_looked_up(tmp_path: Path) -> None:
    script = "import os, platform, socket\nsocket.gethostbyname(socket.gethostname())\n"
    script += "print(socket.gethostname(), platform.node(), os.uname().nodename)\n"
    runs = (
        once(tmp_path, script, factors) for factors in ({"watch": True}, {"vary": ["identity"]})
    )
    plain, varied = (run.ended.tail[0].split() for run in runs)
    assert all(one != other for one, other in zip(plain, varied, strict=True))


WORKS = """
import multiprocessing, os, signal, tempfile, threading

def numbers(place=None):
    found = os.getpid(), threading.get_ident(), os.path.basename(tempfile.mkdtemp())
    if place is not None:
        place.put(found)
    return found

def caught(*unused):
    print("caught")

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, caught)
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), 0)
    assert os.getpgid(os.getpid()) == os.getpgid(0) and os.sched_getaffinity(os.getpid()) == os.sched_getaffinity(0)
    seen = [numbers()]
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        place = context.Queue()
        for _ in range(2):
            process = context.Process(target=numbers, args=(place,))
            process.start()
            seen.append(place.get(timeout=30))
            process.join()
            assert process.exitcode == 0
    assert len({number for number, _, _ in seen}) == len({name for _, _, name in seen}) == 7, seen
    threads, idents = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: idents.append(threading.get_ident()), name="worker"))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(set(idents)) == 8 and set(idents) == {thread.ident for thread in threads}, idents
    print(seen, idents)
"""


def test_pinned_every_process_and_thread_has_its_own_number(short_path: Path) -> None:
    assert pinned(short_path, WORKS, "identity")[0] == "caught"


def test_a_single_line_is_pinned_and_a_library_is_told_the_truth(tmp_path: Path) -> None:
    head = f"import os, sys; sys.path.append({str(tmp_path)!r})\nimport beside\n"
    script = (
        head + "print(os.getpid())\nprint(os.getpid())\nprint(beside.number() == os.getpid())\n"
    )
    (tmp_path / "beside.py").write_text("import os\ndef number():\n    return os.getpid()\n")
    pin = {"pin": {"identity": [["train.py", 3]]}}
    first, second = (once(tmp_path, script, pin).ended.tail for _ in range(2))
    assert first[0] == second[0] != first[1] != second[1] and first[2] == "True"
