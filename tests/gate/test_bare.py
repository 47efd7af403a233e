"""Claims about the one run without the gate that a crash asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from repro_gate.gate import bare
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.launch import RunResult
from repro_gate.runs.progress import Watch
from tests.support.built_traces import results, run, spec

Asked = Callable[..., tuple[RunResult | None, list[float]]]


def crashed(code: int | None = 1, outcome: str = "crashed", **ended: Any) -> RunResult:
    found = run("deterministic-1", outcome=outcome, reason_id=f"run/{outcome}")
    ending = {"exit_code": code, "seconds": 20.0, **ended}
    return replace(found, ended=replace(found.ended, **ending))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What comes of these runs, and the time limits of the bare runs that were started."""

    def ask(
        *runs: RunResult, came: RunResult | BaseException | None = None, **more: Any
    ) -> tuple[RunResult | None, list[float]]:
        limits: list[float] = []

        def do(limited: Any, *_: object) -> RunResult:
            limits.append(limited.train.timeout)
            if isinstance(came, BaseException):
                raise came
            return came or crashed()

        monkeypatch.setattr(bare, "run", do)
        return bare.bare_run(results(*runs, **more), Watch()), limits

    return ask


def test_only_a_crash_that_left_nothing_to_compare_costs_one_more_run(asked: Asked) -> None:
    for runs, limit in (
        ([crashed()], 60.0),  # three times what the crash took
        ([crashed(), crashed()], 60.0),
        ([crashed(seconds=9.9)], 30.0),
        ([crashed(seconds=1e6)], spec().train.timeout),
        ([crashed(-11, "killed")], 60.0),
    ):
        assert asked(*runs) == (crashed(), [limit])
    for runs, more in (
        ([], {}),
        ([run("deterministic-1"), crashed()], {}),
        ([replace(crashed(), reason_id=NO_DETERMINISTIC)], {}),
        ([crashed(127)], {}),
        ([crashed(None)], {}),
        ([crashed(0)], {}),
        ([crashed(outcome="timed-out")], {}),
        ([crashed()], {"interrupted": "the gate was interrupted"}),
        ([crashed()], {"comparisons": {42: "diverged"}}),
    ):
        assert asked(*runs, **more) == (None, [])
    # what shows nothing is left out
    shows_nothing = crashed(-9), crashed(out_of_memory=True)
    for came in (KeyboardInterrupt(), OSError("no space"), *shows_nothing):
        assert asked(crashed(), came=came) == (None, [60.0])
    # that the gate ended it shows that it went on
    late = crashed(-9, timed_out=True)
    assert asked(crashed(), came=late)[0] == late
