"""Claims about `runs.series`: what is left of a series whose data is not as declared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.runs import series
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.order import gate_runs
from repro_gate.runs.progress import Watch
from tests.support.built_traces import run, spec, training


@pytest.mark.parametrize("outcome", ["finished", "crashed"])
def test_no_run_counts_on_data_that_is_not_as_declared(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that can be done without, as the control that ended badly."""

    def did(_: object, __: object, request: RunRequest, ___: object) -> RunResult:
        return replace(run(request.name, training(2), outcome=outcome), request=request)

    monkeypatch.setattr(series, "run", did)
    monkeypatch.setattr(series, "gpu_processes", lambda: ())
    folder: Any = SimpleNamespace(snapshot=SimpleNamespace(notes=()))
    watch = Watch()
    ended: list[str] = []
    monkeypatch.setattr(watch, "run_ended", lambda it: ended.append(it.name))
    planned = gate_runs(spec(), control_first=True)
    found = series.do_runs(spec(), folder, watch, planned, sound=lambda *, waits: not waits)
    assert ended == ["reseeded"] and found.unsound
    assert not found.runs and not found.auxiliary and not found.by_name
