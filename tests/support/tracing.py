"""Runs a small script under the real probe, in a real process, without the rest of the gate: what the tests of probe and runs stand on."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.launch import Original, Plan, Run, Site, launch
from repro_gate.spec.model import Capture, Spec, Train
from repro_gate.trace.model import Block, Trace

PATH = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # `python` is the interpreter that runs the tests


def trace_script(
    tmp_path: Path,
    source: str | Mapping[str, str],
    *,
    command: str = "python train.py",
    name: str = "run",
    arm: Arm | None = None,
    steps: int | None = None,
    every: int = 1,
    seed: int = 42,
    keep_final: bool = False,
    keep_step: int | None = None,
    reference: Sequence[Trace] = (),
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    data: Sequence[Path] = (),
    observe: bool = False,
    original: Original | None = None,
    began: float | None = None,
) -> Run:
    """One run of `train.py` (or several files, by name) under the probe, in `tmp_path`; the arm is `deterministic` unless given."""
    place = tmp_path / "place"
    workspace = place / "workspace"
    for folder in (workspace, place / "home", place / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    for file, text in ({"train.py": source} if isinstance(source, str) else source).items():
        (workspace / file).parent.mkdir(parents=True, exist_ok=True)
        (workspace / file).write_text(textwrap.dedent(text))
    spec = Spec(tmp_path / "repro.yml", train=Train(run=command, steps=steps, timeout=timeout, env=env or {}), capture=Capture(every=every))
    plan = Plan(name, arm or arms.deterministic(seed, frozenset(), steps), keep_final, keep_step, tuple(reference), observe)
    site = Site(place, workspace, workspace, place / "runs", {"PATH": PATH, "LANG": "C.UTF-8"}, tuple(data), original=original, began=began)
    return launch(spec, plan, site, lambda traces: None)


def trained(run: Run) -> Trace:
    """The one process of a run that recorded something."""
    found = [trace for trace in run.traces if trace.trained]
    assert len(found) == 1, (run.outcome, run.problem, run.ended.tail, [trace.argv for trace in found])
    return found[0]


def names(trace: Trace, kind: str, step: int) -> list[str]:
    """Names of what was recorded of one kind at one step, in order."""
    return [row[0] for block in blocks(trace, kind, step) for row in block.rows]


def blocks(trace: Trace, kind: str, step: int) -> list[Block]:
    """The blocks of one kind at one step, in order."""
    return [block for block in trace.blocks if block.kind == kind and block.step == step]
