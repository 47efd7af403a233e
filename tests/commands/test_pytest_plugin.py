"""Claims about `assert_reproducible`: real tests in a pytest of their own, started as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.gates import LOOP, ROOT, environment, training, with_line

_SPEC = "version: 1\ntrain: {run: 'python train.py {seed}', steps: 4, timeout: 2m}\ncost: {measure: false}\n"
_DRAWS = with_line("import os; x += int.from_bytes(os.urandom(6), sys.byteorder) / 2**48")  # never equal in two runs


def _tests(folder: Path, source: str, *arguments: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """pytest on one file of tests, without this repository's own settings."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder / "test_it.py")]
    return subprocess.run(command, cwd=cwd or folder, env=environment(**more), capture_output=True, text=True, timeout=300, check=False)


def test_a_reproducible_training_passes_and_its_report_comes_back(tmp_path: Path) -> None:
    training(tmp_path, LOOP, _SPEC)
    (tmp_path / "elsewhere").mkdir()
    source = """
def test_training(assert_reproducible):
    report = assert_reproducible("repro.yml", seed=7, steps=3, set={"capture.every": 3, "train.env": {"A": "1"}})
    assert (report["verdict"], report["subject"]["seeds"], report["determinism"]["steps"]) == ("pass", [7], 3)
"""
    done = _tests(tmp_path, source, cwd=tmp_path / "elsewhere")  # the fixture's paths start at pytest's root folder
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_a_divergence_fails_with_cause_remedy_and_how_to_see_it_again_and_without_our_code(tmp_path: Path) -> None:
    training(tmp_path / "train", _DRAWS, _SPEC + "diagnosis: {runs: 6}\n")
    source = """
from repro_gate.commands.pytest_plugin import assert_reproducible
def test_training():
    assert_reproducible("train")  # from the current folder
"""
    done = _tests(tmp_path, source)
    failure = done.stdout.partition("Captured stdout")[0]
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout
    line = LOOP.split("\n").index("    # here") + 1
    assert f"E       Failed: repro.yml: fail: two runs with seed 42 diverge at step 0 because of train.py:{line}" in failure
    assert f"cause: os.urandom(6) in train.py:{line} drew from the operating system (unseeded-rng)" in failure
    assert "determinism/diverged: two runs with seed 42" in failure and "remedy: give the generator a seed of its own" in failure
    assert "see it again: repro-gate run train --seed 42" in failure
    assert '>       assert_reproducible("train")' in failure  # the user's own line is shown
    assert "pytest_plugin.py" not in failure and "Traceback" not in done.stdout
    assert "diverges at" in done.stdout.partition("Captured stdout")[2]  # the whole report stands below


def test_an_inconclusive_gate_run_fails_and_says_why(tmp_path: Path) -> None:
    training(tmp_path, "raise SystemExit('no such file: weights.bin')\n", _SPEC)
    done = _tests(tmp_path, "def test_training(assert_reproducible):\n    assert_reproducible()\n")
    assert done.returncode == 1 and "Failed: repro.yml: inconclusive: the question could not be answered" in done.stdout
    assert "run/crashed: run" in done.stdout and "pytest_plugin.py" not in done.stdout


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("assert_reproducible('nowhere')", "repro-gate: nowhere: there is no such file"),
        ("assert_reproducible(set={'train.stpes': 3})", "unknown key, did you mean `steps`?"),
    ],
)
def test_a_bad_spec_fails_with_the_error_of_the_command_line(tmp_path: Path, call: str, said: str) -> None:
    training(tmp_path, LOOP, _SPEC)
    done = _tests(tmp_path, f"def test_training(assert_reproducible):\n    {call}\n")
    assert done.returncode == 1 and "the gate gave no report (exit code 2)" in done.stdout and said in done.stdout
    assert "pytest_plugin.py" not in done.stdout


def test_no_line_of_a_failure_is_a_command_to_github(tmp_path: Path) -> None:
    training(tmp_path, "raise ValueError('##[add-mask]x')\n", _SPEC)
    source = "def test_training(assert_reproducible):\n    assert_reproducible()\n"
    done = _tests(tmp_path, source, GITHUB_ACTIONS="true")
    failure = done.stdout.partition("Captured stdout")[0]
    assert done.returncode == 1 and "# #[add-mask]x" in failure and "##[" not in failure, done.stdout


def test_what_ends_the_wait_ends_the_gate_and_its_training(tmp_path: Path) -> None:
    training(tmp_path, "import pathlib, os, time\npathlib.Path(os.environ['PID']).write_text(str(os.getpid()))\ntime.sleep(600)\n", _SPEC)
    pid, source = tmp_path / "pid", "def test_training(assert_reproducible):\n    assert_reproducible(set={'train.env.PID': %r})\n"
    (tmp_path / "test_it.py").write_text(source % str(pid))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(TMPDIR=str(tmp_path / "tmp")), stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not (pid.is_file() and pid.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)  # to pytest alone, as a time limit's exception comes to it alone
        process.wait(60)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("repro-gate")] == []


def test_every_pytest_start_loads_it_and_nothing_of_the_gate_with_it() -> None:
    (found,) = [entry for entry in entry_points(group="pytest11") if entry.value.startswith("repro_gate")]
    assert found.value == "repro_gate.commands.pytest_plugin"
    code = (
        f"import pytest, sys, json; before = set(sys.modules); import {found.value}; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    ours = {name for name in loaded if name.startswith("repro_gate")}
    assert ours <= {"repro_gate", "repro_gate._version", "repro_gate.commands", "repro_gate.commands.pytest_plugin"}
    assert {name.partition(".")[0] for name in loaded} - {"repro_gate"} <= set(sys.stdlib_module_names)
