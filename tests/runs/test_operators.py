"""Claims about `runs.operators`: one process of the worker, whose files are untrusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from repro_gate.runs import operators
from repro_gate.runs.operators import Line, Worker, ask
from repro_gate.sandbox.identity import Sandbox

HOSTILE = """
import json, os, sys
request = json.load(open(sys.argv[1]))
with open(request["out"], "a") as out:
    out.write('{"done": true}\\n')
os.rename(sys.argv[1], sys.argv[1] + ".own")
os.symlink(request["victim"], sys.argv[1])  # for the next request, if it comes to this folder
"""


def test_a_request_does_not_follow_what_an_earlier_worker_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, victim = tmp_path / "worker.py", tmp_path / "victim"
    program.write_text(HOSTILE)
    victim.write_text("as it was")
    monkeypatch.setattr(operators, "WORKER", program)
    (tmp_path / "empty").mkdir()
    worker = Worker(
        python=sys.executable,
        environment=dict(os.environ),
        folder=tmp_path,
        sandbox=Sandbox(),
        memory=1 << 33,
        row_seconds=60.0,
    )
    lines: list[Line] = []
    for _ in range(3):
        assert ask(worker, {"mode": "controls", "victim": str(victim)}, lines.append) is None
    assert victim.read_text() == "as it was" and [line.done for line in lines] == [True] * 3
