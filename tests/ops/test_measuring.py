"""`repro-gate ops` with the worker's double: every outcome is found and its clean twin is not, what
ends a process is a row; as the training's user, too."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.ops import process
from repro_gate.ops.catalog import Catalog
from repro_gate.ops.command import Choice, measure
from repro_gate.ops.process import Line, ask
from repro_gate.runs.interpreter import Interpreter
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import UID, Sandbox
from repro_gate.sandbox.start import processes_of
from tests.support.operators import Double
from tests.support.starting import OWN, alone, needs_own_user, open_folder, python


def outcomes(found: Catalog) -> dict[str, tuple[str, str]]:
    return {row.operator: row.outcomes for row in found.rows}


def test_each_outcome_is_found_and_its_clean_twin_repeats(double: Double) -> None:
    expected = {
        "repeats": ("repeats", "repeats"),
        "races": ("differs", "repeats"),
        "raises": ("repeats", "raises"),
        "no-kernel": ("no-kernel", "no-kernel"),
        "uninitialised": ("uninitialised", "uninitialised"),
        "process": ("differs", "repeats"),
        "own-inputs": ("repeats", "repeats"),  # other inputs: nothing can be said across processes
        "prints": ("repeats", "repeats"),
    }
    double.set(*expected)
    found = double.measure()
    assert outcomes(found) == expected and found.complete and found.scope == "all"
    assert (found.platform.torch, found.platform.isa) == ("9.9.0", "AVX9")
    rows = {row.operator: row for row in found.rows}
    counts = {name: (row.off.runs, row.off.differing) for name, row in rows.items()}
    assert counts["races"] == (16, 10) and counts["process"] == (16, 8), "both processes count"
    assert "another process" in rows["process"].off.message
    assert "deterministic implementation" in rows["raises"].on.message
    cost = rows["repeats"].price
    assert cost is not None and 1.9 < cost.low < cost.ratio < cost.high < 2.1
    assert rows["raises"].price is None and found.notes == ("a note",)
    executed = double.executed()
    assert executed[: len(expected)] == [f"1 kernel/{name} float32" for name in expected]
    assert "2 kernel/no-kernel float32" not in executed, "there is nothing to measure again"


@pytest.mark.slow
def test_what_ends_the_process_is_a_row(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ROW_SECONDS", 5.0)  # a busy machine takes one for a row
    monkeypatch.setattr(process, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(process, "LEAST_MEMORY", 200 << 20)
    two = {"kernel/crash": {"dtypes": ["float32", "int64"]}}
    double.set("repeats", "hang", "eats", "crash-later", "last", cases=two)
    found = double.measure()
    ended = "it ended the process with signal 6"
    expected = {
        "repeats": ("repeats", ""),
        "hang": ("timeout", "no answer in 5 s"),
        "eats": ("crash", "it took more than 200 MiB of memory"),
        "crash-later": ("crash", f"in a second process: {ended}"),
        "last": ("repeats", ""),
        "crash": ("crash", f"{ended}: free(): invalid pointer"),
    }
    assert len(found.rows) == len(expected) + 1 and found.complete
    for row in found.rows:
        outcome, message = expected[row.operator]
        assert row.off.outcome == outcome and row.off.message.startswith(message), row


@pytest.mark.parametrize(("name", "came"), [("races", "repeats"), ("repeats", "differs")])
def test_a_wrong_control_means_no_catalog(double: Double, name: str, came: str) -> None:
    double.set("repeats", controls={name: came})
    with pytest.raises(Inconclusive, match=f"control/{name} came out wrong: {came}") as refused:
        double.measure()
    assert refused.value.exit_code == 3 and double.executed() == []


def test_a_python_without_torch_no_program_and_an_empty_pattern_are_said(double: Double) -> None:
    double.set("repeats")
    with pytest.raises(UsageError, match="no case fits"):
        double.measure(only="nothing like it")
    double.set("repeats", fails="No module named 'torch'")
    with pytest.raises(Inconclusive, match="No module named 'torch'") as refused:
        double.measure()
    assert "--python" in refused.value.remedy
    with pytest.raises(UsageError, match="--python /nowhere: is no program"):
        double.measure(python="/nowhere")


def instead(double: Double, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    """Let another program answer, with its answer's file as `answer`."""
    program = double.folder / "program"
    program.mkdir()
    (program / "__main__.py").write_text(
        "import json, os, sys, time\nrequest = json.load(open(sys.argv[1]))\n"
        f"out = open(request['answer'], 'a')\n{then}\n"
    )
    monkeypatch.setattr(process, "WORKER", program)


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[" * 100_000,
        '{"began": ["' + "x" * 301 + '", "float32", "forward"]}',
        "x" * (2 << 20),
        "",  # nothing at all, in time
    ],
)
def test_nonsense_ends_a_measurement(
    double: Double, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(process, "START_SECONDS", 5.0 if line else 0.5)
    written = f"out.write({line + chr(10)!r}); out.flush()" if line else ""
    instead(double, monkeypatch, f"{written}\ntime.sleep(30)")
    began, said = time.monotonic(), "cannot be used" if line else r"no answer in 0.5 s"
    with pytest.raises(Inconclusive, match=said) as refused:
        double.measure()
    assert len(refused.value.message) < 400 and time.monotonic() - began < 10


def test_a_worker_that_only_begins_rows_ends_the_measurement(double: Double) -> None:
    """A death in a row that nobody asked for must not be tried for ever."""
    double.set("a")
    script = double.folder / "ops_worker.py"
    begins = 'write({"began": [name, dtype, direction]})'
    dies = 'write({"began": ["b", dtype, direction]}); os.abort()'
    script.write_text(script.read_text().replace(begins, dies))
    with pytest.raises(Inconclusive, match="without a result"):
        double.measure()


def test_an_own_operator_that_cannot_be_executed_is_an_error(double: Double) -> None:
    double.set(cases={"user/no-kernel": {}, "user/add": {}})
    with pytest.raises(UsageError, match="--op no-kernel: cannot be executed"):
        double.measure(op=("no-kernel", "add"))
    assert double.measure(op=("add",)).complete


def test_a_request_follows_no_planted_link(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    # links for the next request and its answer, if they come here; and one for this answer's reader
    then = "out.write('{\"done\": true}\\n'); out.flush()\n"
    then += "for name in (sys.argv[1], request['answer']):\n"
    then += "    os.rename(name, name + '.own'); os.symlink(request['victim'], name)"
    instead(double, monkeypatch, then)
    (tmp_path / "empty").mkdir()
    worker = Interpreter(sys.executable, dict(os.environ), Sandbox(), tmp_path)
    lines: list[Line] = []
    for _ in range(3):
        ask(worker, {"victim": str(victim)}, lines.append)
    assert victim.read_text() == "as it was" and [line.done for line in lines] == [True] * 3


@needs_own_user
@pytest.mark.slow
def test_operators_are_measured_as_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(), open_folder() as folder:
        as_own_user(Double(folder, monkeypatch))


def as_own_user(double: Double) -> None:
    double.set("repeats", "crash", "process")
    script = double.folder / "ops_worker.py"
    script.write_text(
        script.read_text().replace("HERE =", f"assert os.getuid() == {UID}\nHERE =", 1)
    )
    (double.folder / "measured.txt").touch()
    os.chown(double.folder / "measured.txt", UID, -1)
    with confined(OWN, os.environ, Path.cwd(), within_reach=[double.folder]):
        found = measure(Choice(device="cpu", python=python()), os.environ, OWN, Watch())
    assert processes_of(UID) == []
    came = [row.off.outcome for row in found.rows]
    assert came == ["repeats", "crash", "differs"] and found.complete
