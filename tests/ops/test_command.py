"""The command `repro-gate ops`: what it measures, writes and keeps, what it shows of files, and
what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro_gate.cli import main
from repro_gate.ops import command, process
from repro_gate.ops.catalog import cached_path, read, write
from repro_gate.ops.process import Line
from repro_gate.runs.interpreter import Interpreter
from tests.support.operators import DIFFERS, Double, catalog, changed, row

Capture = pytest.CaptureFixture[str]


def run(*more: str) -> int:
    return main(["ops", "--device", "cpu", "--python", sys.executable, *more])


def test_a_catalog_is_kept_and_compared(double: Double, tmp_path: Path, capsys: Capture) -> None:
    double.set("repeats", "races")
    files = {name: tmp_path / f"ops.{name}" for name in ("json", "markdown", "html")}
    old = tmp_path / "old.json"
    write(old, catalog(row("kernel/repeats", DIFFERS)))
    assert run(*(f"--{name}={path}" for name, path in files.items())) == 0
    out, err = capsys.readouterr()
    assert "2 rows of 2 cases" in out and "kernel/races" in out and "both controls are right" in err
    found = read(files["json"])
    assert found.complete and found.command == "repro-gate ops --device cpu"
    assert files["markdown"].read_text().startswith("# Which torch operators")
    assert "<h2>Differ" in files["html"].read_text()
    (kept,) = (double.cache / "repro-gate" / "ops").iterdir()
    assert read(kept) == found
    assert kept == cached_path({"XDG_CACHE_HOME": str(double.cache)}, found.platform)
    assert run("--compare", str(old), "--quiet") == 0
    out = capsys.readouterr().out
    assert "1 newly repeats" in out and "2.13.0+cpu -> 9.9.0" in out


def test_only_a_whole_one_is_kept(double: Double, capsys: Capture) -> None:
    double.set("repeats", "races")
    assert run("--only", "races", "--quiet") == 0 and not list(double.cache.rglob("*.*"))
    assert "1 row" in capsys.readouterr().out


def test_an_interrupted_one_is_shown_written_and_exit_code_3(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    double.set("a", "b", "c")

    def ask(worker: Interpreter, request: dict[str, Any], take: Callable[[Line], None]) -> None:
        def until_b(line: Line) -> None:
            take(line)
            if line.row is not None and line.row.operator == "b":
                raise KeyboardInterrupt

        process.ask(worker, request, until_b)

    monkeypatch.setattr(command, "ask", ask)
    assert run("--json", str(tmp_path / "ops.json")) == 3
    assert "INTERRUPTED" in capsys.readouterr().out and len(read(tmp_path / "ops.json").rows) == 2
    assert not list(double.cache.rglob("*.*"))


def test_if_nothing_can_be_kept_it_is_measured_all_the_same(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    double.set("a")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run() == 0
    out, err = capsys.readouterr()
    assert "1 row of 1 case" in out and "cannot be written" in err


def test_files_are_shown_and_compared(tmp_path: Path, capsys: Capture) -> None:
    old, new, page = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "ops.md"
    write(old, catalog(row("kernel/x")))
    write(new, changed(catalog(row("kernel/x", DIFFERS)), complete=False))
    assert main(["ops", str(new), "--markdown", str(page)]) == 0
    assert "kernel/x" in capsys.readouterr().out and "kernel/x" in page.read_text()
    for first, second, words in ((old, new, "1 newly differs"), (new, old, "1 newly repeats")):
        assert main(["ops", str(second), "--compare", str(first)]) == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{a}", "--only", "b"], "nothing is measured"),
        (["{a}", "--json", "{a}"], "is the file of what is read too"),
        (["--compare", "{a}", "--json", "{a}"], "is the file of what is read too"),
        (["{a}", "--json", "b", "--html", "b"], "is the file of --json too"),
        (["--json", "/nowhere/ops.json"], "cannot be written"),
        (["--compare", "/nowhere.json"], "is not there"),
    ],
)
def test_bad_arguments_and_files_are_refused_before_anything_runs(
    tmp_path: Path, arguments: list[str], said: str, capsys: Capture
) -> None:
    write(tmp_path / "a.json", catalog())
    given = [argument.format(a=tmp_path / "a.json") for argument in arguments]
    assert main(["ops", *given]) == 2
    assert said in capsys.readouterr().err
