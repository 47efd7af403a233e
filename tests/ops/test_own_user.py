"""Operators are measured as the training's user, too: what it writes is read, what it crashes in is
a row, and nothing of it is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro_gate.ops.command import Choice, measure
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import processes_of
from tests.support.operators import Double
from tests.support.starting import OWN, alone, needs_own_user, open_folder, python

pytestmark = [needs_own_user, pytest.mark.slow]


def test_operators_are_measured_as_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(), open_folder() as folder:
        measured(Double(folder, monkeypatch))


def measured(double: Double) -> None:
    double.set("repeats", "crash", "process")
    script = double.folder / "ops_worker.py"
    script.write_text(
        script.read_text().replace("HERE =", f"assert os.getuid() == {UID}\nHERE =", 1)
    )
    (double.folder / "measured.txt").touch()
    os.chown(double.folder / "measured.txt", UID, -1)
    with confined(OWN, os.environ, Path.cwd(), within_reach=[double.folder]):
        found = measure(Choice(device="cpu", python=python()), os.environ, OWN, Watch())
    assert processes_of(UID) == []
    outcomes = [row.off.outcome for row in found.rows]
    assert outcomes == ["repeats", "crash", "differs"] and found.complete
