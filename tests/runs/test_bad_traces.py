"""Runs whose trace is cut, forged or cannot be written are `untraced`, and say what is wrong. What
else is no trace is refused in tests/trace/test_reader.py; here a run is what is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.runs.launch import RunResult
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
"""


def untraced(run: RunResult) -> str:
    """The problem of a run whose trace cannot be used: one line, and nothing of it is a result."""
    found = (run.outcome, run.reason_id, run.good)
    assert found == ("untraced", "trace/unreadable", False), (run.problem, run.ended)
    assert "\n" not in run.problem and len(run.problem) < 500
    return run.problem


@pytest.mark.parametrize(
    ("code", "said", "remedy"),
    [
        ('append(b\'{"e":"reward"}\\n\')', "is no event of the format", "must not write to"),
        ("append(b' ' * 200_000)", "more than 100,000 bytes", "raise capture.every"),
    ],
    ids=["a forged line", "more than a run may write"],
)
def test_a_trace_that_is_forged_or_too_large_is_named_and_ends_the_run_at_once(
    code: str, said: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fmt.MAX_OF_RUN, fmt.BYTES, 100_000)
    run = trace_script(tmp_path, HEAD + code + "\ntime.sleep(60)\n")
    assert said in untraced(run) and ".trace.jsonl:" in run.problem and remedy in run.remedy
    assert run.ended.stopped == "trace" and run.ended.seconds < 40


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1); os.remove(path)",
        "os.remove(path); os.symlink('/dev/zero', path)",
    ],
)
def test_a_trace_that_is_cut_removed_or_swapped_is_no_result(code: str, tmp_path: Path) -> None:
    untraced(trace_script(tmp_path, HEAD + code + "\ntime.sleep(0.5)\n"))


LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    for _ in range(500):
        one()
except BaseException:
    pass
print('went on unseen')
"""


def test_a_trace_that_cannot_be_written_ends_the_training(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + LIMITED)
    assert "File too large" in untraced(run) and "capture.every" in run.remedy
    # of its own accord, or by the gate, which saw the broken trace first
    assert run.ended.exit_code in (74, -9) and "went on unseen" not in run.ended.tail
