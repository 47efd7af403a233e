"""Claims about `factors.files`: what lies outside is noted, and what a run made itself is not."""

from __future__ import annotations

import dbm.dumb
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from repro_gate.trace.format import ASKED
from repro_gate.trace.model import Used
from tests.probe.factors.runs import once

pytestmark = pytest.mark.slow


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside everything that the gate makes."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def watched(tmp_path: Path, source: str, **options: Any) -> list[Used]:
    """The uses of files in a watched run that ends well."""
    done = once(tmp_path, source, {"watch": True}, **options)
    uses = [use for trace in done.traces for use in trace.uses]
    found = [use for use in uses if use.factor in ("files", "leftovers", "process")]
    assert all(use.outside for use in found)
    return found


READERS = """
open(path + "3").read()
pathlib.Path(path + "4").read_text()
os.read(os.open(path + "5", os.O_RDONLY), 99)
json.load(open(path + "6"))
np.fromfile(path + "7", np.uint8).tolist()
np.memmap(path + "8", np.uint8, "r+").tolist()
open(shutil.copy(path + "9", "here")).read()
sqlite3.connect(path + "10")
torch.from_file(path + "11", size=4, dtype=torch.uint8)
safetensors.numpy.load_file(path + "12")
safetensors.torch.load_file(path + "13")
dbm.open(path + "14")
"""
IMPORTS = (
    "import dbm, json, os, pathlib, shutil, sqlite3, torch, safetensors.numpy, safetensors.torch"
)


def test_a_file_that_changes_is_noted_however_it_is_read(tmp_path: Path, outside: Path) -> None:
    """Each line reads the file of its number."""
    source = f"{IMPORTS}\nimport numpy as np; path = '{outside}/'{READERS}"
    seen = []
    for text in ("[1, 2]", "[3, 4, 5]"):
        for number in range(3, 15):
            (outside / str(number)).write_text(text)
        for number in (12, 13):
            save_file({"x": np.array(json.loads(text))}, outside / str(number))
        with dbm.dumb.open(f"{outside}/14", "n") as table:
            table["x"] = text
        uses = watched(tmp_path, source)
        read = [use for use in uses if not use.source.endswith(ASKED)]
        assert {use.file for use in read} == {"train.py"}
        assert {(Path(use.source).stem, use.line) for use in read} == {
            (str(n), n) for n in range(3, 15)
        }
        seen.append({use.line: use.digest for use in read})
    assert not [line for line in seen[0] if seen[0][line] == seen[1][line]]


def test_a_file_that_stays_as_it_is_gives_the_same_digest(tmp_path: Path, outside: Path) -> None:
    (outside / "a.txt").write_text("a")
    source = f"""
    import os
    os.chdir({str(outside)!r})
    open("a.txt").read(), os.path.exists("b.txt"), os.listdir(".")
    """
    first, second = (watched(tmp_path, source) for _ in range(2))
    assert first == second
    a, b = outside / "a.txt", outside / "b.txt"
    assert [use.source for use in first] == [str(a), f"{b}{ASKED}", str(outside)]


def test_a_file_from_an_earlier_run_is_a_leftover(tmp_path: Path, outside: Path) -> None:
    (outside / "old").write_text("x")
    began = (outside / "old").stat().st_ctime + 0.001
    while not (outside / "left").exists() or (outside / "left").stat().st_ctime < began:
        (outside / "left").write_text("x")
    source = f"""
    import os, subprocess, sys
    import numpy as np
    from pathlib import Path
    from safetensors.numpy import load_file, save_file
    os.chdir({str(outside)!r})
    Path("left").read_text()
    Path("old").read_text()
    Path("own").write_text("x")
    Path("own").read_text()
    os.replace("own", "moved")
    Path("moved").read_text()
    save_file({{"x": np.zeros(1)}}, "arrays")
    load_file("arrays")
    subprocess.run([sys.executable, "-c", "open('moved').read()"], check=True)
    """
    uses = watched(tmp_path, source, began=began)
    found = [(use.factor, use.source) for use in uses if not use.source.endswith(ASKED)]
    assert found == [("leftovers", str(outside / "left")), ("files", str(outside / "old"))]


def test_the_runs_own_places_are_no_use_and_the_machines_are(tmp_path: Path) -> None:
    source = """
    import json, os, pathlib, sqlite3, tempfile
    import email.message, numpy
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "x").write_text("x")
        pathlib.Path(folder, "x").read_text()
    home = pathlib.Path.home() / ".cache"
    home.write_text("x")
    home.read_text()
    pathlib.Path("out.txt").write_text("x")
    pathlib.Path("out.txt").read_text()
    for name in ("/dev/null", "/etc/hostname", "/usr/share", "train.py", os.__file__):
        os.path.exists(name)
    print([open('/proc/meminfo').read(), open('/proc/uptime').read()])
    print(open("/proc/self/stat").read(), pathlib.Path(f"/proc/{os.getpid()}/statm").read_text())
    """
    uses = {(use.factor, use.source) for use in watched(tmp_path, source) if use.file}
    assert uses == {
        ("files", "/proc/meminfo"),
        ("files", "/proc/uptime"),
        ("process", "/proc/self/stat"),
        ("process", "/proc/self/statm"),
    }
