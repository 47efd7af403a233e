"""Asking the training's interpreter: which one, in which environment; its answer is not trusted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from repro_gate.errors import Inconclusive
from repro_gate.runs import interpreter
from repro_gate.runs.interpreter import interpreter_facts
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec

ANSWER = (
    'import os; print(json.dumps({"python": sys.executable, "torch": "2", '
    '"environment": json.dumps(dict(os.environ))}), file=out)'
)


def spec_of(folder: Path, run: str = "python t.py", *overrides: str) -> Spec:
    (folder / "repro.yml").write_text(f"version: 1\ntrain:\n  run: {json.dumps(run)}\n")
    return load_spec(folder / "repro.yml", overrides)


@pytest.fixture
def outer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose `python` is this interpreter, under a name of its own."""
    (tmp_path / "bin").mkdir()
    link(tmp_path / "bin/python")
    asks(tmp_path, monkeypatch, ANSWER)
    return {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "GITHUB_TOKEN": "t",
        "OMP_NUM_THREADS": "3",
        "LANG": "C.UTF-8",
    }


def link(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nASKED_AS="$0" exec "{sys.executable}" "$@"\n')
    path.chmod(0o755)


def asks(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    head = "import json, sys\nout = open(json.load(open(sys.argv[-1]))['answer'], 'a')\n"
    (folder / "ask.py").write_text(head + program)
    monkeypatch.setattr(interpreter, "ASK", folder / "ask.py")


def environment(facts: dict[str, str]) -> dict[str, str]:
    found = json.loads(facts["environment"])
    assert isinstance(found, dict)
    return found


def test_it_is_asked_as_a_deterministic_run(tmp_path: Path, outer: dict[str, str]) -> None:
    more = ("hardware.device=cpu", "train.env={A: b}", "random-state.seed=7")
    seen = environment(interpreter_facts(spec_of(tmp_path, "python t.py", *more), outer))
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
    tmp_path: Path, outer: dict[str, str], run: str, name: str
) -> None:
    link(tmp_path / "bin/python3.99")
    link(tmp_path / "other/python")
    facts = interpreter_facts(spec_of(tmp_path, run.format(other=tmp_path / "other")), outer)
    assert environment(facts)["ASKED_AS"] == str(tmp_path / name)


def test_what_the_spec_names_counts(tmp_path: Path, outer: dict[str, str]) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in environment(interpreter_facts(spec_of(tmp_path), outer))
    link(tmp_path / "other/python")
    given = f"train.env={{PATH: {tmp_path / 'other'}, PYTHONPATH: /src}}"
    seen = environment(interpreter_facts(spec_of(tmp_path, "python t.py", given), outer))
    assert seen["ASKED_AS"] == str(tmp_path / "other/python") and seen["PYTHONPATH"] == "/src"
    with pytest.raises(Inconclusive, match="no `python`") as caught:
        interpreter_facts(spec_of(tmp_path), {**outer, "PATH": str(tmp_path)})
    assert "PATH" in caught.value.remedy
    (tmp_path / "bin/python").write_bytes(b"\x7fELF not really")
    with pytest.raises(Inconclusive, match="cannot be started"):
        interpreter_facts(spec_of(tmp_path), outer)


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
    tmp_path: Path,
    outer: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    message: str,
) -> None:
    asks(tmp_path, monkeypatch, program)
    with pytest.raises(Inconclusive, match=message) as caught:
        interpreter_facts(spec_of(tmp_path), outer)
    assert len(caught.value.message) < 500 and caught.value.remedy


def test_other_lines_do_not_matter(
    tmp_path: Path, outer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "print('{}'); print('hello')"
    asks(tmp_path, monkeypatch, "\n".join((noise, SAYS % "{'threads': 4}", noise)))
    found = interpreter_facts(spec_of(tmp_path), outer)
    assert found == {"python": "3", "torch": "2", "threads": "4"}


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
    program: str, tmp_path: Path, outer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks(tmp_path, monkeypatch, program)
    told = tmp_path / "ask.py.pid"
    told.touch()
    for seconds in (1.0, 5.0, 20.0):  # until it was given the time to say whom it started
        monkeypatch.setattr(interpreter, "ASK_SECONDS", seconds)
        with pytest.raises(Inconclusive, match=f"no answer in {seconds:g} s"):
            interpreter_facts(spec_of(tmp_path), outer)
        if pid := told.read_text():
            break
    assert pid and not psutil.pid_exists(int(pid))
