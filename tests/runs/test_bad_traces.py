"""Runs whose trace is cut, forged or cannot be written are `untraced`, and say what is wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from repro_gate.runs.launch import Run
from repro_gate.trace import blocks
from repro_gate.trace import format as fmt
from tests.support.tracing import trace_script

# The SDK alone: a trace in a tenth of a second. What is done to the file afterwards does not depend
# on who recorded.
HEAD = """
import base64, glob, json, os, sys, time
from repro_gate import record, step
def one():
    record("loss", 0.5)
    record("weights", {"a": 1, "b": 2})
    step()
one()
config = json.load(open(os.environ["REPRO_GATE_PROBE"]))
[path] = [item for item in glob.glob(config["traces"] + "/*.jsonl") if os.path.basename(item).startswith("%d-" % os.getpid())]
def append(content):
    with open(path, "ab") as file:
        file.write(content)
def event(**fields):
    append(json.dumps(fields).encode() + b"\\n")
"""


def untraced(run: Run) -> str:
    """The problem of a run whose trace cannot be used: one line, and nothing of it is a result."""
    assert (run.outcome, run.reason_id, run.good) == ("untraced", "trace/unreadable", False), (
        run.outcome,
        run.problem,
        run.ended,
    )
    assert "\n" not in run.problem and len(run.problem) < 500
    assert run.problem.startswith("its trace cannot be used: ")
    return run.problem


# What else is no event is refused in tests/trace/test_reader.py; here a run is what is judged.
FORGERIES = [
    ("event(e='reward')", "is no event of the format"),
    ("append(b'{\"e\":\"note\",\"id\":' + b'9' * 5000 + b'}\\n')", "is no event of the format"),
    ("event(e='step', step=7, ms=1.0, probe_ms=0.0, peak_bytes=1, flags=0)", "step 7 where 1 was"),
    ("for _ in range(70): append(b'x' * (1 << 20))", "a line is longer than 67108864 bytes"),
]


@pytest.mark.parametrize(("code", "said"), FORGERIES)
def test_a_forged_line_is_refused_and_named_and_ends_the_run_at_once(
    code: str, said: str, tmp_path: Path
) -> None:
    run = trace_script(tmp_path, HEAD + code + "\ntime.sleep(60)\n")
    assert said in untraced(run) and ".trace.jsonl:" in run.problem
    assert run.ended.stopped == "trace" and run.ended.seconds < 20


def test_a_run_that_writes_more_than_it_may_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fmt.MAX_OF_RUN, fmt.BYTES, 100_000)
    many = "time.sleep(1)\nfor _ in range(100): append(b' ' * 5_000)\ntime.sleep(60)\n"
    run = trace_script(tmp_path, HEAD + many)
    assert "the traces of this run take more than 100,000 bytes" in untraced(run)
    assert ".trace.jsonl:" in run.problem and "train.py` wrote" in run.problem
    assert run.remedy == "raise capture.every, or lower train.steps"
    assert run.ended.stopped == "trace" and run.ended.seconds < 20


def test_a_disk_without_room_for_the_gates_digests_is_said_to_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(blocks, "IN_MEMORY", 10)
    monkeypatch.setattr(os, "pwrite", full)
    run = trace_script(tmp_path, HEAD)
    assert (
        "no room for its digests in " in untraced(run) and "No space left on device" in run.problem
    )
    assert "free space in the temporary folder" in run.remedy


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.truncate(path, os.path.getsize(path) - 5)", "is no event of the format"),
        ("os.truncate(path, 0)", "`hello` must be the first line"),
        ("time.sleep(1); os.remove(path)", "was removed during the run"),
        ("os.remove(path); os.symlink('/dev/zero', path)", "cannot be opened"),
        ("os.remove(path); os.mkfifo(path)", "is not a regular file"),
        ("time.sleep(1); os.truncate(path, 10)", "was cut back while it was read"),
    ],
)
def test_a_trace_that_is_cut_removed_or_swapped_is_no_result(
    code: str, said: str, tmp_path: Path
) -> None:
    run = trace_script(tmp_path, HEAD + code + "\ntime.sleep(0.5)\n")
    read_before = "was cut back while it was read"  # where the gate looked before the file was cut
    assert run.outcome == "untraced" and (
        said in untraced(run) or ("truncate" in code and read_before in run.problem)
    ), run.problem


LIMITED = (
    "import resource, signal\nsignal.signal(signal.SIGXFSZ, "
    "signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (%d, %d))\n"
)


@pytest.mark.parametrize("catch", ["", "try:\n    one()\nexcept BaseException:\n    pass\n"])
def test_a_trace_that_can_no_longer_be_written_ends_the_training_and_says_why(
    catch: str, tmp_path: Path
) -> None:
    code = (
        LIMITED % (8192, 8192)
        + "for _ in range(500):\n    one()\n"
        + catch
        + "print('went on unseen')\n"
    )
    run = trace_script(tmp_path, HEAD + code)
    problem = untraced(run)
    assert "cannot be written" in problem and "File too large" in problem
    # of its own accord, or by the gate, which saw the broken trace first
    assert run.ended.exit_code in (74, -9) and "went on unseen" not in run.ended.tail
    assert "capture.every" in run.remedy
