"""Claims about `probe.opened`: what a run read and did not make is listed once, with its line."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import markupsafe._speedups as extension
import pytest

from repro_gate.probe.opened import of_system
from repro_gate.trace.fields import Location, Opened
from tests.support.tracing import Case, trace_cases, trace_script


def read_by(tmp_path: Path, source: str | Mapping[str, str], **options: Any) -> list[Opened]:
    """What all processes of a run opened."""
    run = trace_script(tmp_path, source, **options)
    assert run.ended.exit_code == 0, run.ended.tail
    return [item for trace in run.traces for item in trace.opened]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside everything that the gate makes, with some files."""
    return files_in(tmp_path / "outside")


def files_in(folder: Path) -> Path:
    for name in ("deep", "net.dist-info"):
        (folder / name).mkdir(parents=True)
    for name in ("a.txt", "b.txt", "deep/c.txt", "net.dist-info/METADATA"):
        (folder / name).write_text(name)
    return folder


def test_a_script_lists_itself_and_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    files = {
        "train.py": "import json, sqlite3, email.message, numpy\nimport model\n",
        "model.py": "from pkg import part\n",
        "pkg/__init__.py": "",
        "pkg/part.py": "",
        "never.py": "",
    }
    assert read_by(tmp_path, files) == [
        Opened("train.py", True),
        Opened("model.py", True, Location("train.py", 2)),
        Opened("pkg/__init__.py", True, Location("model.py", 1)),
        Opened("pkg/part.py", True, Location("model.py", 1)),
    ]


HUB = f"models--org--net/snapshots/{40 * 'a'}/config.json"
HEAD = "import ctypes, os, pathlib, shutil, sqlite3, subprocess, sys, tempfile; top = os.getcwd()"
MORE = "\nwith open(outside + '/a.txt', {0!r}) as file:\n    file.write('more')\nopen(file.name).read()"
# script, behind a line that puts the case's own folder of files into `outside`: what is read, by which line
READS: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "once": (
        """
        def load(path):
            return open(path).read()
        for _ in range(3):
            load(outside + "/a.txt")
        os.chdir(outside)
        open("a.txt").read()
        descriptor = os.open("b.txt", os.O_RDONLY)
        open(descriptor).read()
        open(b"deep/../deep/c.txt", "rb").read()
        """,
        [("a.txt", 3), ("b.txt", 8), ("deep/c.txt", 10)],
    ),
    "no_file": (
        """
        os.listdir(outside)
        os.close(os.open(outside, os.O_RDONLY))
        places = outside, outside + "/gone", outside + "/net.dist-info/METADATA"
        for path in (*places, "gone", "", "/", "/dev/null", "/proc/self/status", "/etc/hostname"):
            try:
                open(path).close()
            except OSError:
                pass
        for strange in (None, "nul\\0"):
            try:
                open(strange)
            except (TypeError, ValueError):
                pass
        """,
        [],
    ),
    "own": (
        """
        subprocess.run([sys.executable, "-I", "-c", "open('of-child', 'w').write('x')"], check=True)  # a child without the probe
        open("of-child").read()
        shutil.copy2("data.txt", "copy.txt")  # with the old time of the original
        open("copy.txt").read()
        outside = pathlib.Path(outside)
        (outside / "a.txt").write_text("emptied and written")
        (outside / "a.txt").read_text()
        with tempfile.TemporaryFile("w+") as file:
            file.write("x")
        home = pathlib.Path.home() / ".cache"
        home.write_text("x")
        home.read_text()
        """,
        [("", 4)],
    ),
    # what a file held before is read even where the run writes to it
    "rplus": (MORE.format("r+"), [("a.txt", 2)]),
    "a": (MORE.format("a"), [("a.txt", 4)]),
    "database": (
        "\nsqlite3.connect(outside + '/base.db').execute('select * from t')",
        [("base.db", 2)],
    ),
    "extension": ("\nsys.path.insert(0, outside)\nimport _speedups\n", [("_speedups", 3)]),
}
READS |= {
    # by the path that names its commit
    "hub": (f"\nopen(outside + '/{HUB}').read()", [(HUB, 2)]),
    "no_text": ("\nopen(os.fsencode(outside) + b'/\\xff').read()", [("\\udcff", 2)]),
    "many": (  # more than the trace holds
        """
        import _repro_gate.probe.opened as part
        part.MAX_OPENED = 4  # with those of the driver and this one
        for name in ("a.txt", "b.txt", "deep/c.txt"):
            open(outside + "/" + name).read()
        """,
        [("a.txt", 5)],
    ),
    "mistake": (  # in the probe
        """
        import _repro_gate.probe.opened as part
        part.of_system = None
        print(open(outside + "/a.txt").read())
        sys.audit("open", "a", None, None)
        """,
        [],
    ),
}
if sys.platform == "linux":  # it reads /proc: what is mapped without Python having opened it
    READS["mapped"] = (
        """
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        handle = libc.open((outside + "/a.txt").encode(), 0)
        assert libc.mmap(None, 5, 1, 2, handle, ctypes.c_long(0)) not in (None, ctypes.c_void_p(-1).value)
        """,
        [("a.txt", 0)],
    )


Reads = tuple[Path, Mapping[str, Case]]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """All of `READS` in one run, each with a folder of its own outside."""
    top, cases = tmp_path_factory.mktemp("reads"), {}
    (top / "place" / "workspace").mkdir(parents=True)
    (top / "place" / "workspace" / "data.txt").write_text("x")
    for name, (script, _) in READS.items():
        folder = files_in(top / name)
        shutil.copy(str(extension.__file__), folder)
        (folder / "blob").write_text("{}")
        (folder / HUB).parent.mkdir(parents=True)
        (folder / HUB).symlink_to(folder / "blob")
        (folder / os.fsdecode(b"\xff")).write_text("x")
        with contextlib.closing(sqlite3.connect(folder / "base.db")) as base:
            base.execute("create table t (x)")
        cases[name] = f"outside = {str(folder)!r}" + textwrap.dedent(script)
    return top, trace_cases(top, cases, head=HEAD)


@pytest.mark.parametrize("name", READS)
def test_what_was_read_is_listed_once_and_what_the_run_made_is_not(name: str, reads: Reads) -> None:
    folder, case = reads[0] / name, reads[1][name]
    assert case.exit_code == 0, case.printed
    wanted = [
        (str(folder / path) if path else "data.txt", Location(f"{name}.py", line) if line else None)
        for path, line in READS[name][1]
    ]
    found = [item for item in case.trace.opened if item.path != f"{name}.py" and not item.sought]
    assert [(item.path.partition(".cpython")[0], item.by) for item in found] == wanted
    assert all(item.inside == (item.path == "data.txt") for item in found)
    assert [note for note, _ in case.trace.notes] == ["opened-not-all"] * (name == "many")
    assert name != "mistake" or case.printed == ("a.txt",)


def test_what_an_earlier_run_left_is_marked(tmp_path: Path, outside: Path) -> None:
    before = time.time()
    source = f"""
    import os
    os.chdir({str(outside)!r})
    for name in ("cache", "appended", "empty", "fresh"):
        if name == "appended":
            open(name, "a").write("x")
            open(name).read()
        elif name == "fresh" or not os.path.exists(name):
            open(name, "w").write("" if name == "empty" else "x")
            open(name).read()
        else:
            open(name).read()
    open("a.txt").read()
    """
    read_by(tmp_path, source)
    assert read_by(tmp_path, source, name="again", began=before)[1:] == [
        Opened(str(outside / "cache"), False, Location("train.py", 12), True),
        Opened(str(outside / "appended"), False, Location("train.py", 7), True),
        Opened(str(outside / "empty"), False, Location("train.py", 12)),
        Opened(str(outside / "a.txt"), False, Location("train.py", 13)),
    ]


DATA = """
/run/media/user/disk/train.bin /run/user/1000/train.bin /var/lib/data.csv /var/lib/dpkg-data/x
/data/usr/x /usrdata/x /var/cache/huggingface/model.bin /dev/shm/data.bin /home/user/etc/data.bin
"""
SYSTEM = """
/usr/lib/libz.so /etc/hosts /proc/self/maps /dev/null /dev/shm-of-a-driver /lib64/ld.so
/run/systemd/resolve/stub-resolv.conf /run/nvidia-persistenced/socket /run/nvidia/driver/lib.so
/var/lib/dpkg/status /var/lib/sss/mc/passwd /var/cache/fontconfig/x
"""


def test_the_systems_own_places_are_told_from_those_of_data() -> None:
    assert not [path for path in DATA.split() if of_system(path)]
    assert not [path for path in SYSTEM.split() if not of_system(path)]


def test_declared_data_is_left_out_by_path_and_by_link(tmp_path: Path, outside: Path) -> None:
    workspace = tmp_path / "place" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "data").symlink_to(outside / "deep")
    (workspace / "undeclared").symlink_to(outside / "b.txt")
    paths = ("data/c.txt", str(outside / "deep" / "c.txt"), str(outside / "a.txt"), "undeclared")
    source = f"for path in {paths}:\n    open(path).read()\n"
    assert read_by(tmp_path, source, data=(outside / "deep", outside / "a.txt")) == [
        Opened("train.py", True),
        Opened(str(outside / "b.txt"), False, Location("train.py", 2)),
    ]


def test_a_module_from_outside_is_listed_by_its_source(tmp_path: Path, outside: Path) -> None:
    (outside / "library.py").write_text("X = 1")
    source = f"import sys\nsys.path.append({str(outside)!r})\nimport library\n"
    wanted = [Opened(str(outside / "library.py"), False, Location("train.py", 3))]
    assert read_by(tmp_path, source)[1:] == wanted
    assert os.path.isdir(outside / "__pycache__"), "the second run reads the byte code"
    assert read_by(tmp_path, source, name="again")[1:] == wanted


CHILDREN = {
    "a_forked_child": """
        if os.fork() == 0:
            open(path).read()
            os._exit(0)
        os.wait()
        """,
    "a_forked_child_that_is_killed": """
        if os.fork() == 0:
            open(path).read()
            os.kill(os.getpid(), 9)
        os.wait()
        """,
    "a_program_that_a_fork_becomes": """
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import sys; open(sys.argv[1]).read()", path])
        os.wait()
        """,
    "a_process_that_goes_by_os_exit": "\nopen(path).read()\nos._exit(0)\n",
}


def test_what_was_looked_for_in_the_workspace_and_is_no_file_there_is_listed(
    tmp_path: Path, outside: Path
) -> None:
    source = f"""
    import contextlib, glob, os
    import pkg.part
    for path in ("absent.bin", "{outside}/absent", "train.py"):
        with contextlib.suppress(OSError):
            open(path).read()
    glob.glob("sets/*.png")
    os.listdir("pkg"), os.listdir(), os.listdir("{outside}")
    for _ in range(2):
        open("made", "w").close()
        os.mkdir("own") if not os.path.exists("own") else os.listdir("own")
    """
    files = {"train.py": textwrap.dedent(source), "pkg/part.py": ""}
    found = [item for item in read_by(tmp_path, files) if item.sought]
    assert [(item.path, item.by and item.by.line) for item in found] == [
        ("absent.bin", 6),
        ("sets", 7),
        ("pkg", 8),
        ("own", 11),
    ]
    assert all(item.inside for item in found)


def test_every_kind_of_process_lists_what_it_read(short_path: Path) -> None:
    cases = {}
    for name, source in CHILDREN.items():
        (short_path / name).write_text("x")
        cases[name] = f"path = {str(short_path / name)!r}\n" + textwrap.dedent(source)
    run = trace_cases(short_path, cases, head="import os, sys")[name].run
    found = [(item.path, trace.forked) for trace in run.traces for item in trace.opened]
    outside = sorted((path, forked) for path, forked in found if path.startswith(str(short_path)))
    forked = {name: name != "a_program_that_a_fork_becomes" for name in CHILDREN}
    assert outside == sorted((str(short_path / name), forked[name]) for name in CHILDREN)
