"""Asking the training's interpreter: which one, in which environment; its answer is not trusted."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from repro_gate.errors import Inconclusive
from repro_gate.runs import interpreter
from repro_gate.runs.interpreter import interpreter_facts
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.loader import load_spec

ANSWER = (
    'import os; print(json.dumps({"python": sys.executable, "torch": "2", '
    '"environment": json.dumps(dict(os.environ))}), file=out)'
)


@dataclass
class Machine:
    """One whose `python` is this interpreter, under a name of its own."""

    folder: Path
    patch: pytest.MonkeyPatch

    def link(self, name: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nASKED_AS="$0" exec "{sys.executable}" "$@"\n')
        path.chmod(0o755)
        return str(path)

    def asks(self, program: str) -> None:
        head = "import json, sys\nout = open(json.load(open(sys.argv[-1]))['answer'], 'a')\n"
        (self.folder / "ask.py").write_text(head + program)
        self.patch.setattr(interpreter, "ASK", self.folder / "ask.py")

    def facts(self, run: str = "python t.py", *overrides: str, **more: str) -> dict[str, str]:
        spec = self.folder / "repro.yml"
        spec.write_text(f"version: 1\ntrain:\n  run: {json.dumps(run)}\n")
        outer = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "GITHUB_TOKEN": "t"}
        outer |= {"OMP_NUM_THREADS": "3", "LANG": "C.UTF-8", **more}
        return dict(interpreter_facts(load_spec(spec, overrides), outer, Sandbox()))

    def environment(self, *arguments: str) -> dict[str, str]:
        """That of the interpreter that was asked."""
        return dict(json.loads(self.facts(*arguments)["environment"]))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, monkeypatch)
    made.link("bin/python")
    made.asks(ANSWER)
    return made


def test_it_is_asked_as_a_deterministic_run(machine: Machine) -> None:
    more = ("hardware.device=cpu", "train.env={A: b}", "random-state.seed=7")
    seen = machine.environment("python t.py", *more)
    wanted = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "7", "A": "b"}
    assert {**wanted, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "3"}.items() <= seen.items()
    assert not {"GITHUB_TOKEN", "REPRO_GATE_PROBE", "PYTHONPATH"} & seen.keys()
    assert not Path(seen["HOME"]).exists() and not Path(seen["TMPDIR"]).exists()


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("torchrun t.py", "bin/python"),
        ("A=1 B='x y' exec python3.99 t.py", "bin/python3.99"),
        ("{other}/python t.py", "other/python"),
        ("./python t.py", "bin/python"),
        ("python3.98 t.py", "bin/python"),
        ("echo 'unbalanced", "bin/python"),
        ("# nothing but a comment", "bin/python"),
    ],
)
def test_the_interpreter_is_the_one_that_the_command_names_else_python(
    machine: Machine, run: str, name: str
) -> None:
    for other in ("bin/python3.99", "other/python"):
        machine.link(other)
    seen = machine.environment(run.format(other=machine.folder / "other"))
    assert seen["ASKED_AS"] == str(machine.folder / name)


def test_what_the_spec_names_counts(machine: Machine) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in machine.environment()
    other = machine.link("other/python")
    given = f"train.env={{PATH: {machine.folder / 'other'}, PYTHONPATH: /src}}"
    seen = machine.environment("python t.py", given)
    assert seen["ASKED_AS"] == other and seen["PYTHONPATH"] == "/src"
    with pytest.raises(Inconclusive, match="no `python`") as caught:
        machine.facts(PATH=str(machine.folder))
    assert "PATH" in caught.value.remedy
    (machine.folder / "bin/python").write_bytes(b"\x7fELF not really")
    with pytest.raises(Inconclusive, match="cannot be started"):
        machine.facts()


SAYS = "print(json.dumps({'python': '3', 'torch': '2', **%s}), file=out, flush=True)"
UNUSABLE = "no answer that can be used"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", "No module named 'torch'"),
        ("", "ended with status 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended with status -9"),
        ("print('{\"python\": 1', file=out)", UNUSABLE),
        ("print('[]', file=out)", UNUSABLE),
        (SAYS % "{'x': None}", UNUSABLE),
        (SAYS % "{'x': '2' * 5000}", UNUSABLE),
        (SAYS % "dict.fromkeys(map(str, range(300)), '')", UNUSABLE),
        ("print('{\"a\":' * 20000, file=out)", UNUSABLE),
        ("print('{\"python\": \"3\"', end='', file=out)", "ended with status 0"),
        (f"{SAYS % {}}; sys.exit(1)", "cannot say"),
        ("print('why'); print('{\"python\": \"3\"}', file=out)", "has no torch: why$"),
    ],
)
def test_an_answer_that_is_none_is_refused_with_the_last_that_was_said(
    machine: Machine, program: str, message: str
) -> None:
    machine.asks(program)
    with pytest.raises(Inconclusive, match=message) as caught:
        machine.facts()
    assert len(caught.value.message) < 500 and caught.value.remedy


def test_other_lines_do_not_matter(machine: Machine) -> None:
    noise = "print('{}'); print('hello')"
    machine.asks("\n".join((noise, SAYS % "{'threads': 4}", noise)))
    assert machine.facts() == {"python": "3", "torch": "2", "threads": "4"}


HANGS = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"])
print(child.pid, file=open(sys.argv[0] + ".pid", "w"), flush=True)
child.wait()
"""
BABBLES = """
import os, sys
print(os.getpid(), file=open(sys.argv[0] + ".pid", "w"), flush=True)
while True: print("x" * 100000)
"""


@pytest.mark.parametrize("program", [HANGS, BABBLES])
def test_an_interpreter_that_hangs_is_ended_and_so_is_what_it_started_and_endless_output_too(
    program: str, machine: Machine
) -> None:
    machine.asks(program)
    told = machine.folder / "ask.py.pid"
    told.touch()
    for seconds in (1.0, 5.0, 20.0):  # until it was given the time to say whom it started
        machine.patch.setattr(interpreter, "ASK_SECONDS", seconds)
        with pytest.raises(Inconclusive, match=f"no answer in {seconds:g} s"):
            machine.facts()
        if pid := told.read_text():
            break
    assert pid and not psutil.pid_exists(int(pid))
