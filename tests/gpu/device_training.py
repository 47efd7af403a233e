"""Runs a training on the device under the real probe: `trace_script` with what a GPU machine's
processes need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from repro_gate.compare.model import Comparison
from repro_gate.compare.traces import compare_runs
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.launch import RunResult
from tests.support.tracing import PATH, trace_script

DETERMINISTIC = arms.deterministic(42, frozenset(), None)
DEFAULT = arms.default(42, None)
_NAMES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CC")
OUTER = {name: os.environ[name] for name in _NAMES if name in os.environ}


def attempt(
    tmp_path: Path,
    source: str,
    condition: Arm = DETERMINISTIC,
    name: str = "run",
    command: str = "python3 train.py",
    **more: str,
) -> RunResult:
    """One run on the device, however it ended; `more` goes into its environment."""
    options = {"command": command, "timeout": 240, "env": {**OUTER, **more}}
    return trace_script(tmp_path / name, source, arm=condition, name=name, **options)


def train(
    tmp_path: Path, source: str, condition: Arm = DETERMINISTIC, name: str = "run"
) -> RunResult:
    """One run on the device that came to its end."""
    run = attempt(tmp_path, source, condition, name)
    assert run.good, (run.outcome, run.problem, run.ended.tail)
    return run


def train_bare(folder: Path, source: str) -> str:
    """What a training prints without the probe, in the environment that the deterministic arm
    gives."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(source)
    own = {**OUTER, **DETERMINISTIC.environment, "PATH": PATH, "HOME": str(folder)}
    command = ["python3", "train.py"]
    return subprocess.check_output(command, cwd=folder, env=own, text=True, timeout=240)


def pair(
    tmp_path: Path, source: str, condition: Arm = DETERMINISTIC
) -> tuple[RunResult, RunResult, Comparison]:
    """Two runs of one condition that came to their end, and their comparison."""
    names = (f"{condition.name}-1", f"{condition.name}-2")
    first, second = (train(tmp_path, source, condition, name) for name in names)
    return first, second, compare_runs(first.traces, second.traces)


def differing(comparison_of: tuple[RunResult, RunResult, Comparison], kind: str) -> set[str]:
    """Names whose digests differ anywhere between two runs, of one kind."""
    first, second = ([trace for trace in run.traces if trace.trained] for run in comparison_of[:2])
    found: set[str] = set()
    for a, b in zip(first, second, strict=True):
        for left, right in zip(a.blocks, b.blocks, strict=True):
            if left.kind == kind:
                assert left.rows == right.rows
                for at, row in enumerate(left.rows):
                    place = slice(16 * at, 16 * at + 16)
                    if left.digests[place] != right.digests[place]:
                        found.add(row[0])
    return found
