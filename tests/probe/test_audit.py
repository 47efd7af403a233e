"""Claims about `probe.audit`: declared data is not changed, connections to outside are noted."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from repro_gate.trace.model import Trace
from tests.support.tracing import trace_script

PREAMBLE = """
import os, pathlib, shutil, sys, warnings
outcomes = []
def attempt(name, action):
    try:
        action()
        outcomes.append((name, "done"))
    except PermissionError as error:
        outcomes.append((name, "refused" if "repro-gate: declared data is read-only" in str(error) else str(error)))
"""


def probed(tmp_path: Path, source: str) -> tuple[list[tuple[str, str]], Trace]:
    """Run a script without torch under the probe, `data/` and `one.bin` being declared data that is
    linked into its folder."""
    original, place = tmp_path / "original", tmp_path / "place" / "workspace"
    for folder in (original / "data" / "deep", place):
        folder.mkdir(parents=True)
    for file in ("data/a.bin", "data/deep/b.bin", "one.bin", "data-of-another"):
        (original / file).write_bytes(bytes(64))
    for link in ("data", "one.bin"):
        (place / link).symlink_to(original / link)
    script = PREAMBLE + textwrap.dedent(source) + "\nprint(repr(outcomes))"
    run = trace_script(tmp_path, script, data=(place / "data", original / "one.bin"))
    assert run.ended.exit_code == 0, run.ended.tail
    [trace] = [trace for trace in run.traces if "train.py" in trace.argv]
    return ast.literal_eval(run.ended.tail[-1]), trace


def test_whatever_would_change_declared_data_is_refused(tmp_path: Path) -> None:
    outcomes, _ = probed(
        tmp_path,
        """
    import numpy
    here = os.getcwd()
    target = os.path.realpath("data/a.bin")
    attempt("w", lambda: open("data/a.bin", "w"))
    attempt("a", lambda: open("one.bin", "a"))
    attempt("r+b", lambda: open(pathlib.Path("data/deep/b.bin"), "r+b"))
    attempt("x", lambda: open("data/new.bin", "x"))
    attempt("os.open", lambda: os.open("one.bin", os.O_RDWR))
    attempt("by its real path", lambda: open(target, "wb"))
    attempt("memmap", lambda: numpy.memmap("data/a.bin", mode="r+"))
    attempt("remove", lambda: os.remove("data/a.bin"))
    attempt("Path.unlink", lambda: pathlib.Path("data/a.bin").unlink())
    attempt("truncate through the link", lambda: os.truncate("one.bin", 0))
    attempt("rename", lambda: os.rename("data/a.bin", "mine.bin"))
    open("mine.bin", "w").close()
    attempt("replace", lambda: os.replace("mine.bin", "data/a.bin"))
    attempt("rmdir", lambda: os.rmdir("data/deep"))
    attempt("rmtree", lambda: shutil.rmtree("data/deep"))
    attempt("copy over", lambda: shutil.copyfile("mine.bin", "one.bin"))
    os.chdir("data")
    attempt("from inside", lambda: open("a.bin", "w"))
    """,
    )
    assert {name: said for name, said in outcomes if said != "refused"} == {}
    assert len(outcomes) == 16
    original = tmp_path / "original"
    left = {file.name: file.read_bytes() for file in original.rglob("*") if file.is_file()}
    assert left == dict.fromkeys(("a.bin", "b.bin", "one.bin", "data-of-another"), bytes(64))


def test_reading_and_everything_beside_it_is_allowed(tmp_path: Path) -> None:
    outcomes, trace = probed(
        tmp_path,
        """
    import numpy
    attempt("r", lambda: open("data/a.bin").read())
    attempt("rb", lambda: open(os.path.realpath("one.bin"), "rb").read())
    attempt("os.open", lambda: os.close(os.open("one.bin", os.O_RDONLY)))
    attempt("memmap", lambda: numpy.memmap("data/a.bin", mode="r").sum())
    attempt("list", lambda: os.listdir("data"))
    attempt("a name that begins alike", lambda: open(os.path.realpath("data") + "-of-another", "a").close())
    attempt("own file", lambda: open("out.bin", "wb").close())
    attempt("own rename", lambda: os.replace("out.bin", "best.bin"))
    attempt("own remove", lambda: os.remove("best.bin"))
    attempt("the link itself", lambda: os.remove("one.bin"))
    """,
    )
    assert {name: said for name, said in outcomes if said != "done"} == {}
    assert (tmp_path / "original" / "one.bin").exists()
    assert trace.notes == []


def test_connections_that_leave_the_machine_are_noted_once(tmp_path: Path) -> None:
    _, trace = probed(
        tmp_path,
        """
    import socket
    def connect(address):
        sys.audit("socket.connect", None, address)  # the event alone: nothing is sent
    for address in (("192.0.2.1", 80), ("192.0.2.1", 80), ("2001:db8::1", 443, 0, 0), ("files.example.org", 443)):
        connect(address)
    for address in (("127.0.0.1", 1), ("127.9.9.9", 1), ("localhost", 1), ("::1", 1, 0, 0),
                    ("::ffff:127.0.0.1", 1, 0, 0), "/tmp/x.sock", b"", None):
        connect(address)
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:  # how programs learn their own address: nothing is sent
        try:
            own.connect(("192.0.2.77", 80))
        except OSError:
            pass
        sys.audit("socket.sendto", own, ("192.0.2.78", 53))
    """,
    )
    ours = ["192.0.2.1:80", "2001:db8::1:443", "files.example.org:443", "192.0.2.78:53"]
    assert trace.network == ours


def test_the_hook_raises_nothing_but_the_refusal(tmp_path: Path) -> None:
    outcomes, trace = probed(
        tmp_path,
        """
    class Strange:
        def __str__(self):
            raise RuntimeError("no text")
    for address in (("can0",), ("eth0", 3, 0), (3, 1234), (b"x",), (Strange(), 1), ("192.0.2.1", Strange())):
        sys.audit("socket.connect", None, address)
    for event in ("open", "import", "ctypes.dlopen", "sqlite3.connect", "os.chdir", "os.remove", "os.rename", "socket.connect"):
        for args in ((), (None,), ("nul\\0",), ("nul\\0", "w", None), ("a", "r", "flags"), (1, 2, 3), ([], {}, Strange())):
            sys.audit(event, *args)
    attempt("refused still", lambda: open("data/a.bin", "w"))
    for port in range(150):  # a crawler does not flood the trace
        sys.audit("socket.connect", None, ("192.0.2.1", port + 1))
    import _repro_gate.probe.session as part
    part.PROCESS.sessions.clear()
    sys.audit("socket.connect", None, ("192.0.2.9", 1))
    """,
    )
    assert outcomes == [("refused still", "refused")]
    assert trace.network[:4] == ["can0", "eth0:3", "3:1234", "b'x'"] and len(trace.network) == 100
