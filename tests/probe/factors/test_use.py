"""Claims about `factors.use`: a use is told with its line; what goes wrong reaches no training."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from repro_gate.factors import BY_NAME
from tests.probe.factors.runs import once, uses_of

LIBRARY = """
import os, random, time

def name():
    return os.urandom(4).hex(), time.time()

class Draws:
    generator = random.Random()
"""
DIRECT = ("os.urandom(4)", "time.time()", "Path('train.py').stat()", "list(Path('.').rglob('*'))")
INDIRECT = (
    "import beside_library",
    "beside_library.name()",
    "logging.getLogger().warning('')",
    "importlib.import_module('own')",
)


def test_a_use_is_direct_where_no_library_asked_for_the_line(tmp_path: Path) -> None:
    """Of every call that is known, the test of its factor says so."""
    head = "import importlib, logging, os, sys, time; from pathlib import Path\n"
    head += f"sys.path.append({str(tmp_path)!r})\n"
    (tmp_path / "beside_library.py").write_text(LIBRARY)
    train = head + "\n".join((*DIRECT, *INDIRECT))
    files = {"train.py": train, "own.py": "import beside_library\nbeside_library.name()\n"}
    uses = once(tmp_path, files, {"watch": True}).traces[0].uses
    lines = train.split("\n")
    ours = [use for use in uses if use.file == "train.py" and use.line > 2]
    assert {lines[use.line - 1] for use in ours if use.direct} == {*DIRECT}
    assert {lines[use.line - 1] for use in ours if not use.direct} >= {*INDIRECT[:-1]}
    assert {use.direct for use in uses if use.file == "own.py"} == {False}


def test_an_import_statement_is_told_as_one_however_many_lines_it_takes(tmp_path: Path) -> None:
    """What a module draws while it is imported is told apart from what a call draws."""
    (tmp_path / "beside_library.py").write_text(LIBRARY)
    text = f"import sys\nsys.path.append({str(tmp_path)!r})\n"
    text += "from beside_library import (  # both\n    Draws,\n    name,\n)\nname()\n"
    uses = uses_of(once(tmp_path, text, {"watch": True}), "entropy")
    call = "name()" if sys.version_info >= (3, 11) else ""
    calls = {use.call for use in uses if use.file == "train.py"}
    assert calls == {"from beside_library import (…", call}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no positions")
def test_a_call_over_several_lines_is_its_first_line_and_says_that_it_goes_on(
    tmp_path: Path,
) -> None:
    text = "import os\nx = os.urandom(  # bytes\n    len(\n        'abcd'\n    ),\n)\n"
    uses = uses_of(once(tmp_path, text, {"watch": True}), "entropy")
    assert [use.call for use in uses if use.file == "train.py"] == ["os.urandom(…"]


MISTAKES = """
import os, random, subprocess, sys, threading, time, uuid
import _repro_gate.probe.factors.use as part
part.source_line.inside = None  # whatever is decided about a use goes wrong from here on
print(len(os.urandom(3)), time.time() > 0, os.getpid() > 0, os.listdir("."), id(os) > 0, os.stat("train.py").st_mtime > 0)
print(random.Random(3).random(), uuid.uuid4().version)
thread = threading.Thread(target=print, args=("in a thread",), kwargs={"flush": True})
thread.start()
thread.join()
print(subprocess.run([sys.executable, "-Ic", "print(1)"], env={}).returncode)
for wrong in (lambda: os.urandom(-1), lambda: os.listdir("missing"), lambda: os.stat(b"missing"), lambda: time.sleep("x"), lambda: id()):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "factors", [{"watch": True}, {"pin": dict.fromkeys(BY_NAME)}, {"vary": sorted(BY_NAME)}]
)
def test_mistakes_change_nothing(tmp_path: Path, factors: Mapping[str, object]) -> None:
    without = MISTAKES.replace("part.source_line.inside = None", "")
    plain = once(tmp_path, without, {"pin": {}}).ended.tail
    assert once(tmp_path, MISTAKES, factors).ended.tail == plain


WORLD = """
import os, threading
import _repro_gate.probe.session as session
def draw():
    for _ in range(200):
        os.urandom(4)
threads = [threading.Thread(target=draw) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20):
    session.current().flush()
    child = os.fork()
    if not child:
        os.urandom(4)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
def deep(n):
    return deep(n - 1) if n else os.urandom(1)
try:
    deep(10_000)
except RecursionError:
    print("deep")
"""


def test_threads_forks_and_a_full_stack_are_no_trouble(tmp_path: Path) -> None:
    run = once(tmp_path, WORLD, {"watch": True})
    assert run.ended.tail == ("deep",)
    counts = dict.fromkeys((6, 14), 0)
    for use in uses_of(run, "entropy"):
        if use.line in counts:
            counts[use.line] += use.count
    assert counts == {6: 800, 14: 20}


def test_uses_are_told_once_for_each_line_up_to_the_limit(tmp_path: Path) -> None:
    limit = "import os\nimport _repro_gate.probe.factors.use as part\npart.MAX_USES = 5\n"
    found = uses_of(once(tmp_path, limit + "os.urandom(1)\n" * 10, {"watch": True}), "entropy")
    assert len(found) == 5 and {(use.step, use.count) for use in found} == {(-1, 1)}
