"""Claims about `probe.factors`: each use is told once for each step, with its line, and whether the line itself made it."""

from __future__ import annotations

from pathlib import Path

from tests.support.tracing import trace_script

LIBRARY = """
import os, random, time

def name():
    return os.urandom(4).hex(), time.time()

class Draws:
    generator = random.Random()
"""
DIRECT = (
    "os.urandom(4)",
    "random.Random()",
    "random.SystemRandom().random()",
    "secrets.token_hex()",
    "uuid.uuid4()",
    "numpy.random.default_rng()",
    "time.time()",
    "datetime.datetime.now()",
    "os.path.getmtime('train.py')",
    "Path('train.py').stat()",
    "os.listdir()",
    "glob.glob('*')",
    "list(Path('.').rglob('*'))",
    "os.getpid()",
    "platform.node()",
    "threading.Thread(target=int).start()",
    "tempfile.mkdtemp()",
)
INDIRECT = (
    "import beside_library",
    "beside_library.name()",
    "logging.getLogger().warning('')",
    "importlib.import_module('own')",
)


def test_a_use_is_direct_where_no_library_and_no_import_asked_on_the_lines_behalf(tmp_path: Path) -> None:
    head = "import datetime, glob, importlib, logging, os, platform, random, secrets, sys, tempfile, threading, time, uuid\n"
    head += f"import numpy\nfrom pathlib import Path\nsys.path.append({str(tmp_path)!r})\n"
    (tmp_path / "beside_library.py").write_text(LIBRARY)
    files = {"train.py": head + "\n".join((*DIRECT, *INDIRECT)) + "\n", "own.py": "import beside_library\nbeside_library.name()\n"}
    run = trace_script(tmp_path, files, factors={"watch": True})
    assert run.ended.exit_code == 0, run.ended.tail
    first = head.count("\n") + 1
    lines = dict(enumerate((*DIRECT, *INDIRECT), first))
    told = {(lines[use.line], use.direct) for use in run.traces[0].uses if use.file == "train.py" and use.line in lines}
    assert {line for line, direct in told if direct} == set(DIRECT)
    assert {line for line, direct in told if not direct} >= {*INDIRECT[:-1]}
    assert {use.direct for use in run.traces[0].uses if use.file == "own.py"} == {False}
