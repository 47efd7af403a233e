"""Claims about `repro-gate diagnose`: a fault is told as it is found out, its clean twin has nothing to tell, and tools get every pair."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.gates import ROOT, command, environment, training, with_line

FAULT = "x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-12"


def diagnosed(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """What one call printed, and its JSON lines."""
    lines = folder / "lines.jsonl"
    done = subprocess.run(
        command("diagnose", folder, "--quiet", "--json-lines", lines, *arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, [json.loads(line) for line in lines.read_text(encoding="ascii").splitlines()] if lines.exists() else []


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    return diagnosed(training(tmp_path_factory.mktemp("fault"), with_line(FAULT)))


def _of(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in events if item["event"] == kind]


def test_a_fault_is_told_step_by_step_and_named_at_the_end(fault: tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]) -> None:
    done, _ = fault
    assert done.returncode == 1, done.stderr
    story, answer = done.stdout.split("\n\n")
    assert (
        story.startswith("two runs with seed 42: they diverge at step 0, loss\n1. ")
        and "entropy: os.urandom in train.py:8 differs" in story
    )
    assert "held fixed: they agree" in story.splitlines()[-1]
    assert "in train.py:8 drew from the operating system (unseeded-rng)\nConfirmed: with that draw held fixed" in answer
    assert answer.rstrip().endswith("/docs/causes/unseeded-rng.md)")


def test_tools_get_every_pair_with_what_was_held_and_what_differed(
    fault: tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]],
) -> None:
    _, events = fault
    (runs,) = _of(events, "runs")
    assert (runs["seed"], runs["identical"], runs["first_divergence"]["kind"]) == (42, False, "loss")
    pairs = _of(events, "pair")
    assert [item["number"] for item in pairs] == list(range(1, len(pairs) + 1))
    assert pairs[0]["setting"]["pinned"] == [] and pairs[0]["first_divergence"]["step"] == 0
    assert ["train.py", 8] in [item["use"]["site"] for item in pairs[0]["uses"] if item["use"]["factor"] == "entropy"]
    assert {"factor": "entropy", "site": ["train.py", 8]} in pairs[-1]["setting"]["pinned"] and pairs[-1]["first_divergence"] is None
    assert events[-1]["event"] == "diagnosis"
    found = events[-1]["diagnosis"]
    assert (found["cause"], found["file"], found["line"], found["confirmed"]) == ("unseeded-rng", "train.py", 8, True)
    assert found["runs"] == 2 * len(pairs)


def test_its_clean_twin_has_nothing_to_diagnose(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, with_line("pass")))
    assert (done.returncode, done.stdout) == (0, "two runs with seed 42: they agree\n")
    assert [item["event"] for item in events] == ["runs", "diagnosis"] and events[1]["diagnosis"] is None


def test_a_training_that_crashes_is_inconclusive(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, "raise SystemExit(7)"))
    assert done.returncode == 3 and "deterministic-1" in done.stderr and _of(events, "pair") == []


def test_a_mistake_in_the_spec_is_a_usage_error(tmp_path: Path) -> None:
    done, _ = diagnosed(training(tmp_path, "pass"), "--set", "diagnosis={runs: 1}")
    assert done.returncode == 2 and "found 1, wanted a whole number, 2 or more" in done.stderr


def test_bounds_end_the_search_and_that_is_said(tmp_path: Path) -> None:
    done, events = diagnosed(training(tmp_path, with_line(FAULT)), "--set", "diagnosis={runs: 2}")
    assert done.returncode == 1 and len(_of(events, "pair")) == 1
    assert events[-1]["diagnosis"]["cause"] == "unknown" and "used up" in done.stdout and "docs/causes/unknown.md" in done.stdout


def test_what_the_training_names_itself_cannot_reach_the_terminal(tmp_path: Path) -> None:
    name = "\x1b[31m::error::.py"
    folder = training(
        tmp_path, with_line("import feed; x += feed.noise()"), files={name: "import os\ndef noise():\n    return os.urandom(1)[0] * 1e-3\n"}
    )
    (folder / "feed.py").write_text(
        f"import importlib.util as u\nspec = u.spec_from_file_location('odd', {name!r})\n"
        "odd = u.module_from_spec(spec); spec.loader.exec_module(odd); noise = odd.noise\n"
    )
    done, events = diagnosed(folder)
    assert done.returncode == 1 and "\x1b" not in done.stdout and "\\x1b[31m" in done.stdout
    assert events[-1]["diagnosis"]["file"] == name


def test_a_diagnosis_that_is_interrupted_does_not_say_that_the_runs_agree(tmp_path: Path) -> None:
    code = training(tmp_path, with_line("x += 1 if 'clone' in __file__ else 0"), "version: 1\ntrain: {run: python train.py 1}\n")
    started = subprocess.Popen(
        command("diagnose", code), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stderr is not None
    for line in started.stderr:
        if "robustness: one run" in line:
            started.send_signal(signal.SIGINT)
            break
    _, said = started.communicate(timeout=60)
    assert started.returncode == 3 and "interrupted" in said, said
