"""Claims about `repro-gate run --only diagnosis`."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from repro_gate.cli import main
from repro_gate.commands import diagnosis as command
from repro_gate.errors import Inconclusive
from repro_gate.gate.options import Options
from repro_gate.runs.results import Results
from tests.support import reports
from tests.support.built_traces import spec
from tests.support.gates import call, training, with_line

FAULT = "x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-12"
Diagnosed = tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]
# A file whose name would write to the terminal, and the module that loads it.
NAME = "\x1b[31m::error::.py"
HOSTILE = {
    NAME: "import os\ndef noise():\n    return int.from_bytes(os.urandom(4), 'big') * 1e-12\n",
    "feed.py": f"import importlib.util as u\nspec = u.spec_from_file_location('odd', {NAME!r})\n"
    "odd = u.module_from_spec(spec); spec.loader.exec_module(odd); noise = odd.noise\n",
}


def diagnosed(folder: Path, *arguments: str) -> Diagnosed:
    """What one call printed, and its JSON lines."""
    lines = folder / "lines.jsonl"
    alone = ("--only", "diagnosis", "--quiet", "--json-lines", lines)
    done = call("run", folder, *alone, *arguments, timeout=300)
    text = lines.read_text(encoding="ascii") if lines.exists() else ""
    return done, [json.loads(line) for line in text.splitlines()]


def _of(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in events if item["event"] == kind]


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    code = with_line("import feed; x += feed.noise()")
    return diagnosed(training(tmp_path_factory.mktemp("fault"), code, files=HOSTILE))


def test_a_fault_is_told_step_by_step_and_its_names_are_escaped(fault: Diagnosed) -> None:
    done, _ = fault
    assert done.returncode == 1, done.stderr
    story, answer = done.stdout.split("\n\n")
    assert "diverge at step 0 (loss)\n1. " in story and "agree" in story.splitlines()[-1]
    assert answer.rstrip().endswith("/docs/causes/unseeded-rng.md)")
    assert "\x1b" not in done.stdout and "\\x1b[31m" in done.stdout
    _, events = fault
    (runs,) = _of(events, "runs")
    assert (runs["seed"], runs["identical"]) == (42, False)
    assert runs["first_divergence"]["kind"] == "loss"
    pairs = _of(events, "pair")
    first, last = pairs[0], pairs[-1]
    assert [item["number"] for item in pairs] == list(range(1, len(pairs) + 1))
    assert first["setting"]["pinned"] == [] and first["first_divergence"]["step"] == 0
    uses = [[item["use"][key] for key in ("factor", "file", "line")] for item in first["uses"]]
    assert ["entropy", NAME, 3] in uses
    assert {"factor": "entropy", "site": [NAME, 3]} in last["setting"]["pinned"]
    assert last["first_divergence"] is None
    assert events[-1]["event"] == "diagnosis"
    found = events[-1]["diagnosis"]
    assert (found["cause"], found["file"], found["line"]) == ("unseeded-rng", NAME, 3)
    assert found["confirmed"] and found["runs"] == 2 * len(pairs)


def test_its_clean_twin_has_nothing_to_diagnose(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, with_line("pass")))
    assert (done.returncode, done.stdout) == (0, "two runs with seed 42: they agree\n")
    assert [item["event"] for item in events] == ["runs", "diagnosis"]
    assert events[1]["diagnosis"] is None


def test_a_training_that_crashes_is_inconclusive(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, "raise SystemExit(7)"))
    assert done.returncode == 3 and "deterministic-1" in done.stderr and _of(events, "pair") == []


def test_bounds_end_the_search_and_that_is_said(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, with_line(FAULT)), "--set", "diagnosis={runs: 2}")
    assert done.returncode == 1 and len(_of(events, "pair")) == 1
    assert events[-1]["diagnosis"]["cause"] == "unknown" and "used up" in done.stdout


def test_an_interrupted_diagnosis_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"folder": None, "reader": None, "comparisons": {42: reports.SAME}}
    results = Results(spec=spec(), interrupted="a signal came", **found)
    monkeypatch.setattr(command, "diagnose_alone", lambda *_: (results, None))
    with pytest.raises(Inconclusive, match="a signal came"):
        command.diagnose(spec(), Options(), Namespace(json_lines=None, quiet=True))


def test_an_option_that_it_would_ignore_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = str(training(tmp_path, "raise SystemExit('it was started')"))
    report = str(tmp_path / "report.json")
    for option in (("--json", report), ("--against", "HEAD"), ("--fail-fast",), ("--verbose",)):
        assert main(["run", code, "--only", "diagnosis", *option]) == 2
        assert f"remedy: leave out {option[0]}\n" in capsys.readouterr().err
    assert main(["run", code, "--only", "diagnosis", "--record"]) == 2
    assert "--record does one run and compares nothing" in capsys.readouterr().err
    for more in ([], ["--only", "resume"]):
        assert main(["run", code, "--json-lines", str(tmp_path / "lines"), *more]) == 2
        assert "--json-lines needs --only diagnosis" in capsys.readouterr().err
    assert not (tmp_path / "lines").exists()
