"""Starts the worker as the gate does: a fresh process of an interpreter, one request, lines in a
file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from repro_gate.ops.measure import _WORKER
from repro_gate.runs.flags import IN_PROCESS

Lines = list[dict[str, Any]]


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lines]:
    """Answer a request, and return its lines."""
    pytest.importorskip("torch")

    def answer(**request: Any) -> Lines:
        folder = tmp_path_factory.mktemp("ops")
        out, question = folder / "answer.jsonl", folder / "request.json"
        default = {"calls": [], "own": [], "known": False, "path": [], "seconds": 20}
        whole = {**default, "flags": IN_PROCESS, **request, "answer": str(out)}
        question.write_text(json.dumps(whole))
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [sys.executable, str(_WORKER), str(question)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert not done.returncode, done.stderr
        return [json.loads(line) for line in out.read_text().splitlines()]

    return answer
