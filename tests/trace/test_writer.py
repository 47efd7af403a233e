"""What the probe appends is what the gate reads; what cannot be written is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from repro_gate.trace import format as fmt
from repro_gate.trace.fields import Imported, Location, Measured, Opened, Sketched
from repro_gate.trace.model import Drawn, LoaderSeen, Spawned, StepMark, Trace, Undone
from repro_gate.trace.reader import TraceFollower, read_folder
from repro_gate.trace.writer import Later, TraceFailed, TraceWriter

NONCE = "ab" * 16
HELLO = {"nonce": NONCE, "pid": 7, "argv": ["python", "train.py"], "forked": False}
STEP = (("loss", 0), ("gradient", 0), ("gradient", 1))
ROWS = (("fc.weight", "float32", (2, 8)), ("blocks.0.café\n\U0001f600", "bfloat16", ()))


def write_everything(folder: Path, steps: int = 2) -> TraceWriter:
    """One event of every kind but those of a run that was stopped, and `steps` steps."""
    writer = TraceWriter(str(folder), HELLO)
    writer.event("facts", facts={"torch": "2.13.0", "process": "rank0"})
    writer.block(-1, "parameter", ROWS, bytes(range(32)))
    for step in range(steps):
        loss = [float("nan").hex(), (0.1).hex()][step % 2]
        writer.block(step, "loss", (("loss", "float32", ()),), bytes(16), [loss])
        writer.block(step, "gradient", ROWS, bytes(32))
        writer.block(step, "gradient", ROWS, bytes(range(1, 33)))
        flags = writer.flags({"cudnn.benchmark": False, "MKL_CBWR": None})
        writer.event("step", step=step, ms=1.5, probe_ms=0.25, peak_bytes=1 << 20, flags=flags)
    undone = {"flag": "cudnn.benchmark", "value": "True", "file": "/w/train.py", "line": 3}
    writer.event("undone", **undone, step=0)
    far = ["parameter", "fc.weight", "float32", [2, 8], 0.5, 3, None, 2.0, 8.0, steps - 1]
    writer.event("distances", rows=[far])
    weight = ["fc.weight", "float32", [2, 8]]
    sketches = [["gradient", *weight, [-0.5, 2, 1e300]], ["parameter", *weight, None]]
    writer.event("sketches", rows=sketches)
    writer.event("network", rows=["192.0.2.1:443"])
    by = {"file": "train.py", "line": 3}
    opened = [["train.py", True, None, False], ["/mnt/x.bin", False, by, True]]
    writer.event("opened", rows=opened)
    modules = [["pkg", "/src/pkg/__init__.py", ""], ["ops", "/venv/site-packages/ops.py", "ops"]]
    writer.event("imports", rows=modules)
    writer.event("distributions", versions={"torch": "2.13.0+cu128"})
    writer.event("nonfinite", rows=[["parameter", "fc.weight", -1, True]])
    writer.event("drawn", source="uuid.uuid4", file="train.py", line=3)
    writer.event("spawned", pid=12, file="train.py", line=4)
    writer.event("loaders", workers=2, base_seed=-5)
    writer.event("loaders", workers=0, base_seed=None)
    writer.event("variables", values={"OMP_NUM_THREADS": "2"})
    writer.event("unmoved", rows=[["module", "EMA", "ab" * 16]])
    # half of a surrogate pair, which can be encoded nowhere
    writer.event("notes", rows=[["state-not-kept", "too little\udc80room"]])
    writer.event("end", reason="exit", steps=steps)
    return writer


def read(folder: Path) -> Trace:
    """The one trace of a folder."""
    (trace,) = read_folder(folder, NONCE)
    return trace


def so_far(writer: TraceWriter) -> Trace:
    """A trace that is being written."""
    return TraceFollower(Path(writer.path), NONCE).poll()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_everything(tmp_path)
    trace = read(tmp_path)
    two = [(step, kind, at) for step in (0, 1) for kind, at in STEP]
    places = [(item.step, item.kind, item.at) for item in trace.blocks]
    assert places == [(-1, "parameter", 0), *two]
    assert trace.blocks[0].rows == ROWS
    kept = [trace.blocks[at].digests for at in (0, 3)]
    assert kept == [bytes(range(32)), bytes(range(1, 33))]
    losses = [item.values for item in trace.blocks if item.kind == "loss"]
    assert losses == [("nan",), ((0.1).hex(),)]
    far = {"max_abs": 0.5, "max_ulp": 3, "l2": None, "reference_l2": 2.0, "largest": 8.0}
    named = {"name": "fc.weight", "dtype": "float32", "shape": (2, 8)}
    read_by = Location("train.py", 3)
    wanted = {
        "pid": 7,
        "key": "rank0",
        "argv": ("python", "train.py"),
        "forked": False,
        "end": "exit",
        "steps": [StepMark(step, 1.5, 0.25, 1 << 20, 0) for step in (0, 1)],
        "settings": [{"cudnn.benchmark": False, "MKL_CBWR": None}],
        "undone": [Undone("cudnn.benchmark", "True", "/w/train.py", 3, 0)],
        "distances": [Measured(step=1, kind="parameter", **named, **far)],  # type: ignore[arg-type]
        "sketches": [
            Sketched("gradient", "fc.weight", "float32", (2, 8), (-0.5, 2.0, 1e300)),
            Sketched("parameter", "fc.weight", "float32", (2, 8), None),
        ],
        "network": ["192.0.2.1:443"],
        "opened": [Opened("train.py", True), Opened("/mnt/x.bin", False, read_by, True)],
        "imports": [
            Imported("pkg", "/src/pkg/__init__.py"),
            Imported("ops", "/venv/site-packages/ops.py", "ops"),
        ],
        "distributions": {"torch": "2.13.0+cu128"},
        "nonfinite": [("parameter", "fc.weight", -1, True)],
        "drawn": [Drawn("uuid.uuid4", "train.py", 3)],
        "spawned": [Spawned(12, "train.py", 4)],
        "loaders": [LoaderSeen(2, -5), LoaderSeen(0, None)],
        "variables": {"OMP_NUM_THREADS": "2"},
        "notes": [("state-not-kept", "too little?room")],
        "unmoved": [("module", "EMA", "ab" * 16)],
    }
    assert {name: getattr(trace, name) for name in wanted} == wanted


def test_names_and_flags_are_written_once(tmp_path: Path) -> None:
    writer = write_everything(tmp_path, steps=20)
    events = [json.loads(line)["e"] for line in Path(writer.path).read_bytes().splitlines()]
    assert events.count("table") == 3  # parameter, loss, gradient
    assert events.count("flags") == 1
    assert events.count("block") == 61
    # a reading of the flags that differs is written again
    assert [writer.flags({"a": value}) for value in (True, False, True)] == [1, 2, 1]


class Waiting(Later):
    """What a device gives when it is told to."""

    def __init__(self, fails: bool = False) -> None:
        self.arrived, self.fails = False, fails

    def ready(self) -> bool:
        return self.arrived

    def fields(self) -> dict[str, Any]:
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return {"digests": bytes(32)}


class Timed(Waiting):
    """Times of which the host knows some."""

    def without_device(self) -> dict[str, Any]:
        return {"ms": 7.5, "probe_ms": 0.5}


def test_what_waits_for_a_device_holds_back_what_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, first, second = TraceWriter(str(tmp_path), HELLO), Waiting(), Waiting()

    def written() -> list[str]:
        return [json.loads(line)["e"] for line in Path(writer.path).read_bytes().splitlines()]

    writer.block(0, "gradient", ROWS, first)
    writer.block(0, "parameter", ROWS, second)
    writer.event("notes", rows=[["a", "b"]])
    assert written() == ["hello", "table"]
    first.arrived = True
    writer.write(wait=False)
    assert written() == ["hello", "table", "block", "table"]
    writer.write(wait=True)
    assert written() == ["hello", "table", "block", "table", "block", "notes"]
    # no more waits than fits in memory
    monkeypatch.setattr("repro_gate.trace.writer.MOST_WAITING", 3)
    before = len(written())
    for step in range(10):
        writer.block(step, "gradient", ROWS, Waiting())
    assert len(written()) == before + 7


def test_of_what_did_not_arrive_the_rest_is_kept_and_the_loss_is_said(tmp_path: Path) -> None:
    """The device fails in the second of three steps; in its twin it does not."""
    for fails in (True, False):
        folder = tmp_path / str(fails)
        folder.mkdir()
        writer = TraceWriter(str(folder), HELLO)
        flags = writer.flags({})
        for step in range(3):
            block, times = Waiting(fails and step > 0), Timed(fails and step > 0)
            block.arrived = times.arrived = True
            if not times.fails:
                times.fields = times.without_device  # type: ignore[method-assign]
            writer.block(step, "gradient", ROWS, block)
            writer.event("step", times, step=step, peak_bytes=1, flags=flags)
        writer.event("end", reason="exit", steps=3)
        trace = read(folder)
        assert [(mark.step, mark.ms) for mark in trace.steps] == [(0, 7.5), (1, 7.5), (2, 7.5)]
        assert [block.step for block in trace.blocks] == ([0] if fails else [0, 1, 2])
        said = "from step 1 on, a block or more did not arrive from the device: CUDA error: an"
        assert [(name, text[: len(said)]) for name, text in trace.notes] == [("lost", said)] * fails


def test_while_a_graph_is_captured_no_device_is_asked_and_what_comes_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repro_gate.trace.writer.MOST_WAITING", 3)
    captures = [True]
    writer = TraceWriter(str(tmp_path), HELLO, lambda: bool(captures))
    later = Waiting()
    later.ready = lambda: not captures or pytest.fail("asked")  # type: ignore[method-assign]
    writer.event("notes", rows=[["a", "b"]])  # nothing waits: it is written
    assert so_far(writer).notes == [("a", "b")]
    writer.block(0, "gradient", ROWS, later)
    for number in range(9):
        writer.event("notes", rows=[["c", str(number)]])
    assert len(so_far(writer).notes) == 1
    captures.clear()
    writer.write(wait=False)
    assert [block.step for block in so_far(writer).blocks] == [0]
    # a process that ends in a capture does not wait for a device either
    captures.append(True)
    times = Timed()
    times.ready = times.fields = lambda: pytest.fail("asked")  # type: ignore[method-assign]
    writer.event("step", times, step=0, peak_bytes=1, flags=writer.flags({}))
    writer.write(wait=True)
    assert so_far(writer).steps[0].ms == 7.5


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path), HELLO)
    size = os.path.getsize(writer.path)
    with pytest.raises(ValueError, match="JSON"):
        writer.event("step", ms=float("nan"))
    assert os.path.getsize(writer.path) == size
    with pytest.raises(TraceFailed, match="No such file"):
        TraceWriter(str(tmp_path / "gone"), HELLO)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_leaves_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / fmt.FAILURE_FILE).write_bytes(b" " * fmt.FAILURE_BYTES)
    writer = TraceWriter(str(tmp_path), HELLO)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file)
    writer._identity = writer._opened()
    os.close(full)
    with pytest.raises(TraceFailed, match="No space left"):
        writer.event("notes", rows=[["x", "y"]])
    content = (tmp_path / fmt.FAILURE_FILE).read_bytes()
    assert len(content) == fmt.FAILURE_BYTES  # no new block was needed
    assert "No space left" in json.loads(content)["error"]
    assert json.loads(content)["pid"] == os.getpid()
    assert "cannot be written" in capsys.readouterr().err


def test_a_descriptor_that_the_training_closed_and_took_is_left_to_it(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path), HELLO)
    number = writer._file
    os.close(number)
    with open(tmp_path / "theirs", "wb", buffering=0) as file:
        assert file.fileno() == number
        writer.event("notes", rows=[["x", "y"]])
        file.write(b"mine")
    assert (tmp_path / "theirs").read_bytes() == b"mine"
    assert read(tmp_path).notes == [("x", "y")]
    os.unlink(writer.path)
    os.close(writer._file)
    with pytest.raises(TraceFailed, match="No such file"):
        writer.event("notes", rows=[["x", "z"]])
