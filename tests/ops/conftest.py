"""Starts the worker as the gate does: a fresh process of an interpreter, one request, lines in a
file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import repro_gate

Lines = list[dict[str, Any]]
PACKAGE = Path(repro_gate.__file__).resolve().parent / "ops"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lines]:
    """Answer a request, and return its lines. `status` is the exit status that is expected."""

    def answer(status: int = 0, **request: Any) -> Lines:
        folder = tmp_path_factory.mktemp("ops")
        request["out"] = str(folder / "answer.jsonl")
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, str(PACKAGE), str(folder / "request.json")]
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return [
            json.loads(line)
            for line in Path(request["out"]).read_text(encoding="utf-8").splitlines()
        ]

    return answer


@pytest.fixture
def torch() -> Any:
    """Torch, with the flags as they were, afterwards."""
    module = pytest.importorskip("torch")
    fill = module.utils.deterministic.fill_uninitialized_memory
    yield module
    module.use_deterministic_algorithms(False)
    module.utils.deterministic.fill_uninitialized_memory = fill
