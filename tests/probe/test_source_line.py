"""Claims about `probe.source_line`: code of a notebook's cell is named by the notebook and the
cell, and what Jupyter does for itself is not the training's. A module stands for ipykernel's here;
`e2e/test_examples` runs the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from repro_gate.runs.launch import RunResult
from tests.probe.factors.runs import once, uses_of

# What ipykernel does with a cell: it compiles its text under a name that holds the process's number
# and a hash of the text.
_KERNEL = """
import linecache, os, sys, tempfile, threading, time, types, zlib
sys.modules["jupyter_core"] = types.ModuleType("jupyter_core")
exec(compile("time.time()", "/x/ipykernel_launcher.py", "exec"), {"__name__": "ipykernel", "time": time})  # before the compiler is there
compiler = sys.modules["ipykernel.compiler"] = types.ModuleType("ipykernel.compiler")

def get_file_name(code):
    return "%s/ipykernel_%d/%d.py" % (tempfile.gettempdir(), os.getpid(), zlib.crc32(code.encode()))

compiler.get_file_name = get_file_name
SPACE = {"__name__": "__main__"}

def run(text):
    name = get_file_name(text)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), SPACE)

# Jupyter's own module, which draws and reads the clock for its messages, and starts a thread, before a cell and on behalf of one.
OWN = {"__name__": "ipykernel.kernelbase"}
exec("import os, threading, time\\ndef display():\\n    os.urandom(4), time.time(), threading.Thread(target=time.time).start()", OWN)
OWN["display"]()
"""
_DRAWS = "import os\n\nx = os.urandom(4)"
_CALLS = "def drawn():\n    return os.urandom(2)\ndrawn(); display()"


Kernel = Callable[..., RunResult]


def _notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "source": text.splitlines(True)} for text in cells]
    return json.dumps({"cells": code, "nbformat": 4})


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """Runs the cells of a notebook with these factors, between what stands before and behind."""
    (tmp_path / "kernel.py").write_text(_KERNEL)
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kernel import *"
    cells = (_DRAWS, "y = 1", _CALLS)
    files = {"nb/train.ipynb": _notebook(*cells), "train.py": ""}
    lines = [start, "SPACE['display'] = OWN['display']", *(f"run({text!r})" for text in cells)]

    def run(factors: Mapping[str, object], before: str = "", behind: str = "") -> RunResult:
        (tmp_path / "start.py").write_text("\n".join([before, *lines, behind]))
        return once(tmp_path, files, factors, command=f"python {tmp_path}/start.py")

    return run


def test_a_line_is_told_by_its_cell(kernel: Kernel) -> None:
    found = [kernel({"watch": True}) for _ in range(2)]
    lines = [{(use.file, use.line, use.call) for use in uses_of(run, "entropy")} for run in found]
    assert lines[0] == lines[1]  # whatever the process's number
    cells = {(f"nb/train.ipynb#cell {cell}", line) for cell, line in ((1, 3), (3, 2))}
    assert {(file, line) for file, line, _ in lines[0]} == cells
    assert ("nb/train.ipynb#cell 1", 3, "os.urandom(4)") in lines[0]
    uses = [use for run in found for trace in run.traces for use in trace.uses]
    own = [use.source for use in uses if use.factor in ("clock", "threads")]
    assert not own, "what Jupyter asks for is not told"
    assert {(item.file, item.line) for trace in found[0].traces for item in trace.drawn} == cells


def test_a_notebook_of_the_runs_own_names_nothing(kernel: Kernel) -> None:
    """papermill writes the notebook that it runs beside the one that it was given."""
    copy = "import shutil; shutil.copy('nb/train.ipynb', 'a.ipynb')"
    files = {use.file for use in uses_of(kernel({"watch": True}, copy), "entropy")}
    assert files == {f"nb/train.ipynb#cell {cell}" for cell in (1, 3)}


def test_pinned_jupyter_keeps_its_own_draws(kernel: Kernel) -> None:
    own = "OWN['before'] = __import__('os').urandom\nexec('def ask(): return before(4)', OWN)\n"
    show = "import os; print('jupyter', OWN['ask']().hex(), 'cell', SPACE['x'].hex())"
    pins = {"pin": dict.fromkeys(("entropy", "threads", "clock"))}
    tails = [kernel(pins, behind=own + show).ended.tail[-1].split() for _ in range(2)]
    assert tails[0][1] != tails[1][1] and tails[0][3] == tails[1][3]


def test_jupyters_tip_of_the_day_takes_nothing_from_the_trainings_generator(tmp_path: Path) -> None:
    """IPython 9 draws a tip from `random` whenever a kernel is asked whether it is up, as often as
    it takes to start."""
    tips = "def pick_tip():\n    from random import choice\n    return choice('abc')\n"
    source = "import random, sys\nfrom IPython.core.tips import pick_tip\n"
    source += "[pick_tip() for _ in range(int(sys.argv[1]))]\nprint(random.random())\n"
    files = {"IPython/__init__.py": "", "IPython/core/__init__.py": "", "train.py": source}
    files["IPython/core/tips.py"] = tips
    commands = (f"python train.py {count}" for count in (1, 4))
    one, other = (once(tmp_path, files, {}, command=command).ended.tail for command in commands)
    assert one == other
