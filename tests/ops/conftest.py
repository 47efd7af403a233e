"""Starts the worker as the gate does: a fresh process of an interpreter, one request, lines in a
file. Or its double."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repro_gate.ops.process import WORKER
from tests.support.operators import Double

Lines = list[dict[str, Any]]


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    return Double(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lines]:
    """Answer a request, and return its lines. `status` is the exit status that is expected."""

    def answer(status: int = 0, **request: Any) -> Lines:
        folder = tmp_path_factory.mktemp("ops")
        out, question = folder / "answer.jsonl", folder / "request.json"
        default = {"device": "cpu", "user": [], "path": [], "pattern": ""}
        whole = {**default, "rows": None, **request, "answer": str(out)}
        question.write_text(json.dumps(whole))
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [sys.executable, str(WORKER), str(question)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return [json.loads(line) for line in out.read_text().splitlines()]

    return answer


@pytest.fixture
def flags_off() -> Iterator[None]:
    """Leave torch's flags as they were."""
    torch = pytest.importorskip("torch")
    fill = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill
