"""Claims about `probe.factors.files`: what lies outside is noted by its path, and a pinned pair of
runs finds the same there."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path
from typing import Any

import pytest

from repro_gate.probe.factors import recording
from repro_gate.runs.launch import Run
from repro_gate.trace.format import ASKED
from repro_gate.trace.model import Used
from tests.support.tracing import trace_script

pytestmark = pytest.mark.slow


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside everything that the gate makes."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def run(
    tmp_path: Path, source: str, name: str, factors: dict[str, Any], began: float | None = None
) -> Run:
    done = trace_script(tmp_path, source, name=name, factors=factors, began=began)
    assert done.ended.exit_code == 0, done.ended.tail
    return done


def printed(done: Run) -> Any:
    """What a run printed last, a literal."""
    return ast.literal_eval(done.ended.tail[-1])


def watched(tmp_path: Path, source: str, name: str = "watched", **config: Any) -> list[Used]:
    """The uses of files in a watched run."""
    began = config.pop("began", None)
    found = run(tmp_path, source, name, {"watch": True, **config}, began).traces
    return [use for trace in found for use in trace.uses if use.factor in ("files", "leftovers")]


def pair(
    tmp_path: Path,
    source: str,
    between: Any = None,
    pin: tuple[str, ...] = ("files",),
    **outside: Any,
) -> tuple[Any, Any]:
    """What two runs print with a factor pinned; `between` is called between them."""
    factors = {"pin": dict.fromkeys(pin), "outside": outside}
    first = run(tmp_path, source, "a", factors)
    if between is not None:
        between()
    second = run(tmp_path, source, "b", {**factors, "recording": str(first.folder)})
    return printed(first), printed(second)


READERS = {
    "open": "open(path).read()",
    "path": "pathlib.Path(path).read_text()",
    "descriptor": "os.read(os.open(path, os.O_RDONLY), 99)",
    "json": "json.load(open(path))",
    "numpy": "np.fromfile(path, np.uint8).tolist()",
    "memmap": "np.memmap(path, np.uint8, 'r+').tolist()",
    "copied": "open(shutil.copy(path, 'here')).read()",
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_changes_between_two_runs_is_noted_and_held_fixed(
    tmp_path: Path, outside: Path, reader: str
) -> None:
    file = outside / "numbers.json"
    source = (
        "import json, os, pathlib, shutil\nimport numpy as np\npath = "
        f"{str(file)!r}\nprint([{READERS[reader]}])\n"
    )
    seen = []
    for text in ("[1, 2]", "[3, 4, 5]"):
        file.write_text(text)
        uses = [use for use in watched(tmp_path, source, text[1]) if not use.source.endswith(ASKED)]
        seen.append({(use.source, use.file, use.line, use.digest) for use in uses})
    assert [(path, name, line) for path, name, line, _ in seen[0]] == [(str(file), "train.py", 4)]
    assert seen[0] != seen[1]
    first, second = pair(tmp_path, source, lambda: file.write_text("[6]"))
    assert first == second
    file.write_text("[6]")
    assert run(tmp_path, source, "free", {}).ended.tail[-1] != str(first)


def test_a_file_that_stays_as_it_is_gives_the_same_digest(tmp_path: Path, outside: Path) -> None:
    (outside / "a.txt").write_text("a")
    source = (
        "import "
        f"os\nopen({str(outside / 'a.txt')!r}).read()\nos.path.exists({str(outside / 'b.txt')!r})\nos.listdir({str(outside)!r})\n"
    )
    first, second = (watched(tmp_path, source, name) for name in ("a", "b"))
    assert first == second
    assert [use.source for use in first] == [
        str(outside / "a.txt"),
        str(outside / "b.txt") + ASKED,
        str(outside),
    ]


REGISTRY = """
import json, os
from pathlib import Path
folder = Path({folder!r})
runs = json.loads((folder / "runs.json").read_text()) if (folder / "runs.json").exists() else []
runs.append(len(runs))
(folder / "runs.part").write_text(json.dumps(runs))
os.replace(folder / "runs.part", folder / "runs.json")
(folder / ("run-%d" % len(runs))).mkdir()
print([json.loads((folder / "runs.json").read_text()), sorted(os.listdir(folder)), sorted(path.name for path in folder.iterdir())])
"""


def test_what_a_pinned_run_writes_outside_stays_its_own_and_it_reads_it_again(
    tmp_path: Path, outside: Path
) -> None:
    source = REGISTRY.format(folder=str(outside))
    (outside / "runs.json").write_text("[0, 1]")
    before = sorted(os.listdir(outside))
    first, second = pair(tmp_path, source)
    assert first == second == [[0, 1, 2], ["run-3", "runs.json"], ["run-3", "runs.json"]]
    assert sorted(os.listdir(outside)) == before
    assert (outside / "runs.json").read_text() == "[0, 1]"


def test_a_file_pinned_by_its_path_leaves_the_others_alone(tmp_path: Path, outside: Path) -> None:
    (outside / "a").write_text("1")
    (outside / "b").write_text("1")
    source = (
        f"import os\nos.chdir({str(outside)!r})\nprint([open('a').read(), open('b').read(), "
        "sorted(os.listdir('.'))])\n"
    )

    def change() -> None:
        for name in "abc":
            (outside / name).write_text("2")

    first, second = pair(tmp_path, source, change, pin=(), paths=[str(outside / "a")])
    assert first == ["1", "1", ["a", "b"]]
    assert second == ["1", "2", ["a", "b", "c"]]


def test_what_was_left_is_hidden_from_the_first_run_and_from_both_where_it_is_pinned(
    tmp_path: Path, outside: Path
) -> None:
    source = REGISTRY.format(folder=str(outside))
    (outside / "runs.json").write_text("[0]")
    left = [str(outside / "runs.json")]
    first, second = pair(tmp_path, source, pin=(), left=left)
    assert (first[0], second[0]) == ([0], [0, 1])
    assert (outside / "runs.json").read_text() == "[0]"
    first, second = pair(tmp_path / "again", source, pin=(), left=left, paths=left)
    assert first[0] == second[0] == [0]


def test_a_file_from_an_earlier_run_is_a_leftover_and_any_other_is_not(
    tmp_path: Path, outside: Path
) -> None:
    (outside / "old").write_text("x")
    time.sleep(0.05)
    began = time.time()
    time.sleep(0.05)
    (outside / "left").write_text("x")
    time.sleep(0.05)
    source = f"""
    from pathlib import Path
    outside = Path({str(outside)!r})
    (outside / "left").read_text()
    (outside / "old").read_text()
    (outside / "own").write_text("x")
    (outside / "own").read_text()
    """
    uses = watched(tmp_path, source, began=began)
    assert [(use.factor, use.source) for use in uses] == [
        ("leftovers", str(outside / "left")),
        ("files", str(outside / "old")),
    ]


def test_a_data_base_is_held_fixed(tmp_path: Path, outside: Path) -> None:
    source = f"""
    import sqlite3
    with sqlite3.connect({str(outside / "seen.db")!r}) as base:
        base.execute("create table if not exists seen (number integer)")
        base.execute("insert into seen values (1)")
        print(base.execute("select count(*) from seen").fetchall())
    """
    printed_first = printed(run(tmp_path, source, "before", {}))
    assert printed_first == [(1,)]
    assert pair(tmp_path, source) == ([(2,)], [(2,)])
    assert printed(run(tmp_path, source, "after", {})) == [(2,)]
    assert [use.line for use in watched(tmp_path, source)] == [3]


def test_what_the_machine_says_of_itself_is_noted_and_held_fixed(tmp_path: Path) -> None:
    source = "print([open('/proc/meminfo').read(), open('/proc/uptime').read()])\n"
    assert {use.source for use in watched(tmp_path, source)} == {"/proc/meminfo", "/proc/uptime"}
    first, second = pair(tmp_path, source)
    assert first == second


def test_the_runs_own_places_are_no_use(tmp_path: Path) -> None:
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
    """
    assert [use for use in watched(tmp_path, source) if use.file] == []


def test_processes_of_one_run_see_one_private_copy(tmp_path: Path, outside: Path) -> None:
    source = f"""
    import os, subprocess, sys
    path = {str(outside / "cache")!r}
    open(path, "w").write("parent")
    read = subprocess.run([sys.executable, "-c", "print(open(%r).read())" % path], capture_output=True, text=True, check=True).stdout
    child = os.fork()
    if not child:
        open(path, "a").write(" child")
        os._exit(0)
    os.waitpid(child, 0)
    print([read.strip(), open(path).read()])
    """
    assert pair(tmp_path, source) == (["parent", "parent child"],) * 2
    assert not (outside / "cache").exists()


def test_calls_behave_as_ever_on_private_copies(tmp_path: Path, outside: Path) -> None:
    (outside / "deep").mkdir()
    (outside / "deep" / "a").write_text("a")
    source = f"""
    import os, shutil
    from pathlib import Path
    top = Path({str(outside)!r})
    found = [sorted(os.walk(top))[0][1:], [entry.name for entry in os.scandir(top / "deep") if entry.is_file()]]
    found.append(len(list(top.glob("**/*"))))
    for attempt in ("(top / 'gone').read_text()", "(top / 'gone').unlink()", "os.mkdir(top / 'deep')", "os.listdir(top / 'gone')"):
        try:
            eval(attempt)
        except OSError as error:
            found.append(type(error).__name__)
    shutil.copytree(top / "deep", top / "copy")
    os.rename(top / "copy", top / "moved")
    shutil.move(top / "moved" / "a", "a")
    shutil.move("a", top / "b")
    os.symlink("b", top / "link")
    found += [(top / "link").read_text(), os.path.getsize(top / "b"), sorted(os.listdir(top))]
    shutil.rmtree(top / "moved")
    found.append(sorted(os.listdir(bytes(top))))
    print(found)
    """
    free = printed(run(tmp_path, source, "free", {}))
    for name in ("b", "link"):
        (outside / name).unlink()
    first, second = pair(tmp_path, source)
    assert first == second == free
    assert sorted(os.listdir(outside)) == ["deep"]


def test_what_is_too_large_is_named_and_left_as_it_is(tmp_path: Path, outside: Path) -> None:
    with open(outside / "large", "wb") as file:
        file.truncate(recording.MAX_BYTES + 1)
    source = f"import os\nprint(os.path.getsize({str(outside / 'large')!r}))\n"
    done = run(tmp_path, source, "a", {"pin": {"files": None}})
    assert printed(done) == recording.MAX_BYTES + 1
    assert [name for name, _ in done.traces[0].notes] == ["not-held-fixed"]


def test_a_link_in_the_place_of_a_recording_is_not_followed(tmp_path: Path, outside: Path) -> None:
    (outside / "a").write_text("1")
    source = f"print(open({str(outside / 'a')!r}).read())\n"
    first = run(tmp_path, source, "a", {"pin": {"files": None}})
    [kept] = first.folder.glob("*.recorded")
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    (outside / "a").write_text("2")
    assert (
        printed(
            run(tmp_path, source, "b", {"pin": {"files": None}, "recording": str(first.folder)})
        )
        == 2
    )
