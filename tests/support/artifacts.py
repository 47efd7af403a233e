"""Reads files as the gate does: in one start of an interpreter, the tests' own where none is
named."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from repro_gate.compare.artifacts import Artifact, compare_artifacts
from repro_gate.compare.model import Distance, Divergence
from repro_gate.runs.artifacts import in_place
from repro_gate.runs.interpreter import Interpreter
from repro_gate.runs.reading import read
from repro_gate.sandbox.identity import Sandbox


def read_files(
    *paths: Path, python: str = sys.executable, seconds: float = 120, **more: str
) -> list[Artifact]:
    """What the files hold, in order; `more` goes into the environment."""
    return _read(paths, python, seconds, False, more)[0]


def distances(a: Path, b: Path) -> dict[str, Distance]:
    """How far the tensors of two files are apart, by name."""
    found = _read((a, b), sys.executable, 120, True, {})[1]
    return {name: distance for (_, name), distance in found.items()}


def differences(a: Artifact, b: Artifact) -> tuple[Divergence, ...]:
    return compare_artifacts(a, b, "", 0)


def what(item: Divergence) -> str:
    """In what a leaf differs: `value`, or what its detail begins with."""
    first = item.detail.partition(" ")[0] or "value"
    return {"only": "missing", "every": "structure"}.get(first, first)


def _read(
    paths: tuple[Path, ...], python: str, seconds: float, pairs: bool, more: Mapping[str, str]
) -> tuple[list[Artifact], dict[tuple[int, str], Distance]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "empty").mkdir()
        items = [item for path in paths for item in in_place(path)]
        by = Interpreter(python, {**os.environ, **more}, Sandbox(), place)
        return read(items, by, seconds, pairs=pairs)
