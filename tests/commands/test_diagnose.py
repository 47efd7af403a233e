"""Claims about `repro-gate diagnose`: a fault is told as it is found out, its clean twin has
nothing to tell."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.support.gates import ROOT, command, environment, training, with_line

FAULT = "x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-12"
# A file whose name would write to the terminal, and the module that loads it.
NAME = "\x1b[31m::error::.py"
HOSTILE = {
    NAME: "import os\ndef noise():\n    return int.from_bytes(os.urandom(4), 'big') * 1e-12\n",
    "feed.py": f"import importlib.util as u\nspec = u.spec_from_file_location('odd', {NAME!r})\n"
    "odd = u.module_from_spec(spec); spec.loader.exec_module(odd); noise = odd.noise\n",
}


def diagnosed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("diagnose", folder, "--quiet", *arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_fault_is_told_step_by_step_and_named_at_the_end_and_its_names_cannot_reach_the_terminal(
    tmp_path: Path,
) -> None:
    line = with_line("import feed; x += feed.noise()")
    done = diagnosed(training(tmp_path, line, files=HOSTILE))
    assert done.returncode == 1, done.stderr
    story, answer = done.stdout.split("\n\n")
    assert story.startswith("two runs with seed 42: they diverge at step 0, loss\n1. ")
    assert "held fixed: they agree" in story.splitlines()[-1]
    assert "\\x1b[31m::error::.py:3 differs" in story
    assert "drew from the operating system (unseeded-rng)\nConfirmed: " in answer
    assert answer.rstrip().endswith("/docs/causes/unseeded-rng.md)")
    assert "\x1b" not in done.stdout


def test_its_clean_twin_has_nothing_to_diagnose(tmp_path: Path) -> None:
    done = diagnosed(training(tmp_path, with_line("pass")))
    assert (done.returncode, done.stdout) == (0, "two runs with seed 42: they agree\n")


def test_a_training_that_crashes_is_inconclusive(tmp_path: Path) -> None:
    done = diagnosed(training(tmp_path, "raise SystemExit(7)"))
    assert done.returncode == 3 and "deterministic-1" in done.stderr and "1. " not in done.stdout


def test_bounds_end_the_search_and_that_is_said(tmp_path: Path) -> None:
    done = diagnosed(training(tmp_path, with_line(FAULT)), "--set", "diagnosis={runs: 2}")
    assert done.returncode == 1 and "\n1. " in done.stdout and "\n2. " not in done.stdout
    assert "used up" in done.stdout and "docs/causes/unknown.md" in done.stdout


def test_a_diagnosis_that_is_interrupted_does_not_say_that_the_runs_agree(tmp_path: Path) -> None:
    code = training(
        tmp_path,
        with_line("x += 1 if 'clone' in __file__ else 0"),
        "version: 1\ntrain: {run: python train.py 1}\n",
    )
    started = subprocess.Popen(
        command("diagnose", code),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    for line in started.stderr:
        if "robustness: one run" in line:
            started.send_signal(signal.SIGINT)
            break
    _, said = started.communicate(timeout=60)
    assert started.returncode == 3 and "interrupted" in said, said
