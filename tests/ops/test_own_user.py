"""Operators are measured as the training's user, too: what it writes is read, what it crashes in is
a row, and nothing of it is left."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from repro_gate.ops.driver import Wanted, measure
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import UID
from repro_gate.sandbox.start import processes_of
from tests.support.operators import Double
from tests.support.starting import OWN, alone, needs_own_user, python

pytestmark = [needs_own_user, pytest.mark.slow]


def test_operators_are_measured_as_a_user_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("operators")
    system = Path(tempfile.gettempdir())
    # the system's own keeps its bits
    for above in (folder, *folder.parents[: len(folder.relative_to(system).parts) - 1]):
        above.chmod(0o755)
    double = Double(folder, monkeypatch)
    double.set("repeats", "crash", "process")
    script = double.folder / "ops_worker.py"
    script.write_text(
        script.read_text().replace("HERE =", f"assert os.getuid() == {UID}\nHERE =", 1)
    )
    (double.folder / "measured.txt").touch()
    os.chown(double.folder / "measured.txt", UID, -1)
    with alone():
        with confined(OWN, os.environ, Path.cwd(), within_reach=[double.folder]):
            found = measure(Wanted(device="cpu", python=python()), os.environ, OWN, Watch())
        assert processes_of(UID) == []
    outcomes = [row.off.outcome for row in found.rows]
    assert outcomes == ["repeats", "crash", "differs"] and found.complete
