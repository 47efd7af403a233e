"""Runs a small script under the real probe, in a real process, without the rest of the gate: what
the tests of probe and runs stand on."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro_gate.checkout.snapshot import Snapshot
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.launch import RunRequest, RunResult, launch
from repro_gate.runs.watching import Tick
from repro_gate.runs.workspaces import GateFolder, Original, Workspace
from repro_gate.spec.model import Capture, DataItem, Spec, Train
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import Trace

# `python` is the interpreter that runs the tests
PATH = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

# one step with torch, without what an optimizer imports
STEP = "record('loss', 1.0)\nstep()\n"
ONE = f"import torch\nfrom repro_gate import record, step\n{STEP}"


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
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    data: Sequence[Path] = (),
    original: Original | None = None,
    began: float | None = None,
    factors: Mapping[str, object] | None = None,
    probe: Mapping[str, object] | None = None,
    tick: Tick = lambda traces: None,
    **planned: Any,
) -> RunResult:
    """One run of `train.py` (or several files, by name) under the probe, in `tmp_path`; the arm is
    `deterministic` unless given. `planned`: what else its request holds."""
    place = tmp_path / "place"
    workspace = place / "workspace"
    for folder in (workspace, place / "home", place / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    for file, text in ({"train.py": source} if isinstance(source, str) else source).items():
        (workspace / file).parent.mkdir(parents=True, exist_ok=True)
        (workspace / file).write_text(textwrap.dedent(text))
    spec = Spec(
        path=tmp_path / "repro.yml",
        train=Train(run=command, steps=steps, timeout=timeout, env=env or {}),
        capture=Capture(every=every),
        data=tuple(DataItem(str(path)) for path in data),
    )
    plan = RunRequest(
        name=name,
        arm=arm or arms.deterministic(seed, frozenset(), steps),
        probe={**(probe or {}), **({} if factors is None else {"factors": factors})},
        **planned,
    )
    folder = GateFolder(
        path=place,
        snapshot=Snapshot(root=workspace, source=workspace, files=0),
        outer={"PATH": PATH, "LANG": "C.UTF-8", "OMP_WAIT_POLICY": "passive"},
        original=original,
        began=began,
    )
    return launch(
        spec, plan, folder, Workspace(workspace, workspace, place / "home", place / "tmp"), tick
    )


def trained(run: RunResult) -> Trace:
    """The one process of a run that recorded something."""
    found = [trace for trace in run.traces if trace.trained]
    assert len(found) == 1, (run.outcome, run.problem, run.ended.tail, len(found))
    return found[0]


def names(trace: Trace, kind: str, step: int) -> list[str]:
    """Names of what was recorded of one kind at one step, in order."""
    return [row[0] for block in blocks(trace, kind, step) for row in block.rows]


def blocks(trace: Trace, kind: str, step: int) -> list[Block]:
    return [block for block in trace.blocks if block.kind == kind and block.step == step]


@dataclass(frozen=True)
class Case:
    """One of several scripts that shared a run: its own trace, the lines that it printed, its exit
    status (below zero: a signal)."""

    trace: Trace
    printed: tuple[str, ...]
    exit_code: int
    run: RunResult


_DRIVER = """
import gc, json, multiprocessing, os, sys
{head}
gc.freeze()  # what all cases share is not collected as each ends, which takes half a second
for name, arguments in json.load(open("cases.json")):
    sys.stdout.flush()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        open(name + ".status", "w").write("%d %d" % (child, -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)))
        continue
    multiprocessing.current_process().name = name
    sys.argv = ["train.py", *arguments]
    os.dup2(os.open(name + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    exec(compile(open(name + ".py").read(), name + ".py", "exec"))
    break
"""


def kept_tensors(path: Path) -> dict[str, Any]:
    """The tensors that a first run kept in a file."""
    import torch

    found = {}
    with path.open("rb") as file:
        for line in iter(file.readline, b""):
            name, dtype, shape, size = json.loads(line)
            content = torch.frombuffer(bytearray(file.read(size)), dtype=getattr(torch, dtype))
            found[name] = content.view(shape)
    return found


def trace_cases(
    tmp_path: Path,
    cases: Mapping[str, str | tuple[str, str]],
    head: str = "import torch, torch._dynamo",
    **options: Any,
) -> dict[str, Case]:
    """Several scripts in one run, each in a fork of a process that has run `head` (importing torch,
    and the compiler that its optimizers import, takes most of a short script's time) and with a
    trace of its own. A case is its source, or its source and its arguments; `options` are those of
    `trace_script`."""
    given = {name: (case, "") if isinstance(case, str) else case for name, case in cases.items()}
    files = {f"{name}.py": textwrap.dedent(source) for name, (source, _) in given.items()}
    arguments_of = [(name, arguments.split()) for name, (_, arguments) in given.items()]
    files |= {"cases.json": json.dumps(arguments_of), "train.py": _DRIVER.replace("{head}", head)}
    run = trace_script(tmp_path, files, timeout=500.0, **options)
    workspace = tmp_path / "place" / "workspace"
    found = {}
    for name in given:
        pid, exit_code = map(int, (workspace / f"{name}.status").read_text().split())
        output = (workspace / f"{name}.out").read_text(errors="replace")
        printed = output.partition("nanobind: leaked")[0]  # after `gc.freeze()`
        [trace] = [trace for trace in run.traces if trace.pid == pid and trace.forked]
        found[name] = Case(trace, tuple(printed.splitlines()), exit_code, run)
    return found
