"""`repro-gate ops` with the worker's double: every outcome is found and its clean twin is not, what
ends a process is a row, and an interrupted measurement goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.gate import operators
from repro_gate.ops.catalog import Catalog, cached_path
from repro_gate.report.operator_progress import Quiet
from repro_gate.runs import operators as worker
from tests.support.operators import Double


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    return Double(tmp_path, monkeypatch)


def outcomes(found: Catalog) -> dict[str, tuple[str, str]]:
    return {
        row.case.removeprefix("kernel/"): (row.off.outcome, row.on.outcome) for row in found.rows
    }


def test_each_outcome_is_found_and_its_clean_twin_repeats(double: Double) -> None:
    double.set(
        "repeats",
        "races",
        "raises",
        "no-kernel",
        "uninitialised",
        "process",
        "own-inputs",
        "prints",
    )
    found = double.measure()
    assert outcomes(found) == {
        "repeats": ("repeats", "repeats"),
        "races": ("differs", "repeats"),
        "raises": ("repeats", "raises"),
        "no-kernel": ("no-kernel", "no-kernel"),
        "uninitialised": ("uninitialised", "uninitialised"),
        "process": ("differs", "repeats"),
        "own-inputs": ("repeats", "repeats"),  # other inputs: nothing can be said across processes
        "prints": ("repeats", "repeats"),
    }
    rows = {row.operator: row for row in found.rows}
    assert (
        found.complete
        and found.scope == "all"
        and found.platform.torch == "9.9.0"
        and found.platform.isa == "AVX9"
    )
    assert (rows["kernel/races"].off.differing, rows["kernel/races"].off.distinct) == (
        10,
        3,
    ) and rows["kernel/races"].off.max_ulp == 7
    assert (rows["kernel/process"].off.differing, rows["kernel/process"].off.distinct) == (
        8,
        2,
    ) and "another process" in rows["kernel/process"].off.message
    assert rows["kernel/repeats"].off.runs == 16, "both processes count"
    assert (
        rows["kernel/raises"].price is None
        and "deterministic implementation" in rows["kernel/raises"].on.message
    )
    cost = rows["kernel/repeats"].price
    assert (
        cost is not None
        and 1.9 < cost.low < cost.ratio < cost.high < 2.1
        and cost.ratio == pytest.approx(2.0, rel=0.02)
    )
    assert found.repeats.excludes_rate == pytest.approx(1 - 0.05 ** (1 / 10)), (
        "5 alone, 3 beside other work, 2 in another process"
    )
    assert found.notes == ("a note",)
    assert [(entry.entry, entry.says, entry.case) for entry in found.documented] == [
        ("nothing", "raises", None)
    ]


def test_rows_that_do_not_repeat_are_not_measured_again(double: Double) -> None:
    double.set("repeats", "no-kernel")
    double.measure()
    assert double.executed() == [
        "1 kernel/repeats float32",
        "1 kernel/no-kernel float32",
        "2 kernel/repeats float32",
    ]


@pytest.mark.slow
def test_what_crashes_hangs_or_takes_the_memory_is_a_row_and_the_rest_is_measured(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "ROW_SECONDS", 2.0)
    monkeypatch.setattr(operators, "_MEMORY_SHARE", 0.0)
    monkeypatch.setattr(operators, "_LEAST_MEMORY", 200 << 20)
    double.set(
        "repeats",
        "hang",
        "eats",
        "crash-later",
        "last",
        cases={"kernel/crash": {"dtypes": ["float32", "int64"]}},
    )
    found = double.measure()
    came = {(row.operator, row.dtype): row for row in found.rows}
    assert {key: row.off.outcome for key, row in came.items()} == {
        ("kernel/repeats", "float32"): "repeats",
        ("hang", "float32"): "timeout",
        ("eats", "float32"): "crash",
        ("kernel/crash-later", "float32"): "crash",
        ("kernel/last", "float32"): "repeats",
        ("crash", "float32"): "crash",
        ("crash", "int64"): "crash",
    }
    messages = {row.case: row.off.message for row in found.rows}
    assert messages["kernel/hang"] == "it was still running after 2 s"
    assert messages["kernel/eats"] == "it took more than 200 MiB of memory"
    assert messages["kernel/crash"] == "it ended the process with signal 6: free(): invalid pointer"
    assert messages["kernel/crash-later"].startswith(
        "in a second process: it ended the process with signal 6"
    )
    assert found.complete


@pytest.mark.parametrize(
    ("name", "came"), [("races", "repeats"), ("repeats", "differs"), ("repeats", "no-kernel")]
)
def test_a_wrong_control_means_no_catalog(double: Double, name: str, came: str) -> None:
    double.set("repeats", controls={name: came})
    with pytest.raises(
        Inconclusive, match=f"the control `{name}` came out wrong: {came}"
    ) as refused:
        double.measure()
    assert refused.value.exit_code == 3 and double.executed() == []


def test_a_python_without_torch_is_said_so(double: Double) -> None:
    double.set("repeats", fails="No module named 'torch'")
    with pytest.raises(Inconclusive, match="has no torch") as refused:
        double.measure()
    assert "--python" in refused.value.remedy
    with pytest.raises(UsageError, match="--python /nowhere: is no program"):
        double.measure(python="/nowhere")


def test_with_operators_of_ones_own_torchs_list_is_left_out(double: Double) -> None:
    double.set("a")
    found = double.measure(own=("module:function",))
    assert found.scope == "some" and found.documented == ()


def test_a_pattern_that_nothing_fits_is_a_usage_error(double: Double) -> None:
    double.set("repeats")
    with pytest.raises(UsageError, match="no case fits"):
        double.measure(pattern="nothing like it")


class _Interrupts(Quiet):
    """A Ctrl-C once so many rows are done."""

    def __init__(self, after: int) -> None:
        self.after, self.lines = after, list[str]()

    def said(self, text: str) -> None:
        self.lines.append(text)

    def advanced(self, done: int, total: int, now: str) -> None:
        if done == self.after:
            raise KeyboardInterrupt


def test_an_interrupted_measurement_goes_on_where_it_stopped(double: Double) -> None:
    double.set("a", "races", "c", "d", "e")
    first = double.measure(_Interrupts(3))
    assert not first.complete and list(outcomes(first)) == ["a", "races", "c"]
    (double.folder / "measured.txt").unlink()
    watch = _Interrupts(-1)
    second = double.measure(watch)
    assert second.complete and list(outcomes(second)) == ["a", "races", "c", "d", "e"]
    assert (
        double.executed()[:2] == ["1 kernel/d float32", "1 kernel/e float32"]
        and len(double.executed()) == 7
    )
    assert any("3 rows are known from an interrupted start" in line for line in watch.lines)
    (double.folder / "measured.txt").unlink()
    double.measure()
    assert len(double.executed()) == 10, "a complete one leaves nothing to go on with"


def test_fresh_begins_anew_and_another_command_is_another_measurement(double: Double) -> None:
    double.set("a", "b", "c")
    double.measure(_Interrupts(2))
    (double.folder / "measured.txt").unlink()
    assert not double.measure(_Interrupts(0), quick=True).rows
    double.measure(fresh=True)
    assert double.executed().count("1 kernel/a float32") == 2


@pytest.mark.parametrize("damage", [b"1 {", b"\xff\xfe\n", b"3 {}\n", b'1 {"case": 5}\n'])
def test_a_cut_line_is_measured_again_and_a_damaged_file_is_begun_anew(
    double: Double, damage: bytes
) -> None:
    double.set("a", "b")
    double.measure(_Interrupts(1))
    (path,) = double.cache.rglob("*.partial")
    with path.open("ab") as file:
        file.write(damage)
    assert list(outcomes(double.measure())) == ["a", "b"]
    assert not list(double.cache.rglob("*.partial"))


def test_without_a_home_nothing_is_kept_and_all_is_measured(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    double.set("a")
    assert double.measure().complete


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        "[" * 100_000,
        '{"case": "' + "x" * 301 + '"}',
        '{"off": {"outcome": "excellent"}}',
        '{"case": "k", "times_off_ms": [' + ",".join("1" * 1_001) + "]}",
        "x" * (2 << 20),
    ],
)
def test_a_worker_that_writes_nonsense_ends_the_measurement(double: Double, line: str) -> None:
    double.set("a")
    script = double.folder / "ops_worker.py"
    script.write_text(
        "import json, sys, time\nwith open(json.load(open(sys.argv[1]))['out'], 'a') as out:\n"
        f"    out.write({line!r} + chr(10)); out.flush()\ntime.sleep(30)\n"
    )
    began = time.monotonic()
    with pytest.raises(Inconclusive, match="cannot be used") as refused:
        double.measure()
    assert len(refused.value.message) < 400 and time.monotonic() - began < 10


def test_a_worker_that_only_begins_rows_ends_the_measurement(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A death in a row that nobody asked for must not be tried for ever."""
    double.set("a")
    real = (double.folder / "ops_worker.py").read_text()
    (double.folder / "ops_worker.py").write_text(
        real.replace('write({"began": {"case": name,', 'write({"began": {"case": "b",').replace(
            "**row(name, dtype", "**os.abort(), **row(name, dtype"
        )
    )
    with pytest.raises(Inconclusive, match="without a result"):
        double.measure()


def test_the_environment_of_the_worker_holds_no_secret_and_no_probe(double: Double) -> None:
    """The double refuses to start with them: see there."""
    double.set("a")
    assert double.measure().complete


def test_an_unfinished_answer_is_no_row(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "START_SECONDS", 0.5)
    double.set("a")
    (double.folder / "ops_worker.py").write_text("import time\ntime.sleep(30)\n")
    with pytest.raises(Inconclusive, match=r"no answer in 0.5 s"):
        double.measure()


def test_only_measurements_of_this_platform_go_on(double: Double) -> None:
    double.set("a", "b")
    first = double.measure(_Interrupts(1))
    double.set("a", "b", about={"torch": "9.9.1"})
    (double.folder / "measured.txt").unlink()
    second = double.measure()
    assert len(double.executed()) == 4 and cached_path(
        {"HOME": "/h"}, first.platform
    ) != cached_path({"HOME": "/h"}, second.platform)


def test_where_nothing_can_be_kept_it_is_measured_all_the_same(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    double.set("add")
    told: list[str] = []

    class Told(Quiet):
        def said(self, text: str) -> None:
            told.append(text)

    assert double.measure(Told()).complete
    assert [text for text in told if "cannot be written" in text]


def test_an_own_operator_that_cannot_be_executed_is_an_error_with_its_reason(
    double: Double,
) -> None:
    double.set(cases={"user/no-kernel": {}})
    with pytest.raises(UsageError, match="--op no-kernel: cannot be executed"):
        double.measure(own=("no-kernel",))
    double.set(cases={"user/add": {}})
    assert double.measure(own=("add",)).complete


def test_an_own_operator_is_never_taken_from_an_interrupted_start(double: Double) -> None:
    """It may be another by then: the name says nothing about its lines."""
    double.set(cases={"user/add": {}})
    double.measure(own=("add",))
    assert not list(double.cache.rglob("*.partial"))
